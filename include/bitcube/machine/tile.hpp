// A Tile: its descriptor, its stored bytes, and which elements are defined (architecture 1.3, 1.4, 1.8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bitcube/cube/operand.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/machine/geometry.hpp"

namespace bitcube::machine {

enum class Location : std::uint8_t { any, vector, matrix, memory };

/// The format of a Tile type, or nullptr: DTYPE_NONE and reserved codes, 15 and 21 among them (architecture 1.2).
const Format* tile_format(DataType type) noexcept;

/// What the machine knows of a Tile. The derived fields are stored, as hardware stores them; a descriptor is legal only
/// if they are what geometry derives.
struct TileDescriptor {
  DataType type = DataType::none;
  TileLayout layout = TileLayout::row_major;
  Location location = Location::any;
  std::uint8_t allocation_mask = 0;  // PE0 is bit 3
  std::uint32_t capacity_bytes = 0;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t valid_rows = 0;
  std::uint32_t valid_columns = 0;
  std::uint32_t cube_k_repeat = 0;
  std::uint32_t cube_n_repeat = 0;
  std::uint32_t cube_cell_count = 0;
  std::uint32_t cube_storage_bytes = 0;

  friend bool operator==(const TileDescriptor&, const TileDescriptor&) = default;
};

/// Why there is no such descriptor.
enum class DescriptorFault : std::uint8_t {
  none,
  type,      // no Tile type, or not one of this layout
  capacity,  // no legal capacity
  shape,     // the extents are zero, too large, or no shape of this layout
  room,      // a legal shape that the capacity does not hold
  derived,   // stored derived fields are not what the rest derives
  location,  // a CUBE layout outside the matrix unit
};

struct DescriptorResult {
  DescriptorFault fault = DescriptorFault::none;
  TileDescriptor descriptor{};

  explicit operator bool() const noexcept { return fault == DescriptorFault::none; }
};

/// The descriptor of a CUBE Tile with this valid shape in `capacity` bytes.
DescriptorResult describe_cube(TileLayout layout, DataType type, std::uint32_t valid_rows, std::uint32_t valid_columns,
                               std::uint32_t capacity, std::uint32_t limit = local_capacity_limit) noexcept;
/// The descriptor of an ordinary Tile with `columns` physical columns; the rows follow from the capacity.
DescriptorResult describe_ordinary(TileLayout layout, DataType type, std::uint32_t valid_rows,
                                   std::uint32_t valid_columns, std::uint32_t columns, std::uint32_t capacity,
                                   std::uint32_t limit = local_capacity_limit) noexcept;
/// Why a stored descriptor is not legal (architecture 1.4).
DescriptorFault check_descriptor(const TileDescriptor& descriptor, std::uint32_t limit) noexcept;

/// Which elements hold a value. Nearly every Tile is defined nowhere, exactly in its valid region, or everywhere; only
/// writes of single elements need a bit each.
class Definedness {
 public:
  enum class Extent : std::uint8_t { none, valid, all, bits };

  Extent extent() const noexcept { return extent_; }
  /// By storage index, with Extent::bits.
  const std::vector<bool>& bits() const noexcept { return bits_; }
  void set_extent(Extent extent);
  void define(const TileDescriptor& descriptor, std::size_t index);
  void undefine(const TileDescriptor& descriptor, std::size_t index);

 private:
  void to_bits(const TileDescriptor& descriptor);

  Extent extent_ = Extent::none;
  std::vector<bool> bits_;
};

class Tile {
 public:
  Tile() = default;
  /// All bytes 0, no element defined.
  explicit Tile(const TileDescriptor& descriptor);

  const TileDescriptor& descriptor() const noexcept { return descriptor_; }
  /// For hand-made states: changes the description and nothing else.
  TileDescriptor& descriptor() noexcept { return descriptor_; }
  const Format& format() const noexcept { return *tile_format(descriptor_.type); }
  std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }
  std::span<std::uint8_t> bytes() noexcept { return bytes_; }
  const Definedness& definedness() const noexcept { return defined_; }

  /// Storage index of an element inside the physical extents, in elements.
  std::size_t index(std::uint32_t row, std::uint32_t column) const noexcept;
  uint64 element(std::uint32_t row, std::uint32_t column) const noexcept;
  bool defined(std::uint32_t row, std::uint32_t column) const noexcept;
  /// Writes one element and defines it.
  void set_element(std::uint32_t row, std::uint32_t column, uint64 word);
  void undefine_element(std::uint32_t row, std::uint32_t column);
  /// Writes the bits of an element; definedness stays.
  void store_element(std::uint32_t row, std::uint32_t column, uint64 word) noexcept;
  void set_extent(Definedness::Extent extent) { defined_.set_extent(extent); }

  /// Whether every valid element is defined.
  bool contents_defined() const noexcept;
  std::size_t defined_valid_elements() const noexcept;

  /// The valid region, row by row, one word per element.
  std::vector<uint64> valid_words() const;

  /// Same descriptor, same bytes, same elements defined.
  friend bool operator==(const Tile& a, const Tile& b);

 private:
  TileDescriptor descriptor_;
  std::vector<std::uint8_t> bytes_;
  Definedness defined_;
};

/// Tiles never change once they are in a register, so copies of the machine share them.
using TileRef = std::shared_ptr<const Tile>;

/// Whether two registers hold equal Tiles, or both none.
bool same_tile(const TileRef& a, const TileRef& b);

/// A Tile in the matrix unit with this valid region, row by row. `capacity` 0: the smallest power of two that holds it.
/// Errors: a shape or capacity that is not legal, a wrong number of words.
Expected<Tile> make_cube_tile(TileLayout layout, DataType type, std::uint32_t valid_rows, std::uint32_t valid_columns,
                              std::span<const uint64> words, std::uint32_t capacity = 0);
/// The same in an ordinary layout; `columns` 0: the next power of two.
Expected<Tile> make_ordinary_tile(TileLayout layout, DataType type, std::uint32_t valid_rows,
                                  std::uint32_t valid_columns, std::span<const uint64> words, std::uint32_t columns = 0,
                                  std::uint32_t capacity = 0, std::uint32_t limit = local_capacity_limit);

/// The valid region of a Tile as the product wants it: contiguous lines of lanes.
struct LaneImage {
  std::vector<std::uint8_t> bytes;
  LaneView view;
};
/// Lines are the rows of an M layout, the columns of N8: the direction in which K runs fastest. CUBE layouts only.
LaneImage gather_lines(const Tile& tile);
/// The valid region as row-major words of 32 bits.
std::vector<std::uint32_t> gather_words(const Tile& tile);
/// A view of row-major storage: element (line, lane) at line * line_stride + lane * lane_stride from `first`.
LaneView row_major_view(const Tile& tile, std::size_t first, std::size_t line_stride, std::size_t lane_stride) noexcept;

/// Fills the valid region from row-major elements of element_bytes bytes each, a 4-bit lane in the low bits of its
/// byte, and defines exactly that region.
void scatter(Tile& tile, std::span<const std::uint8_t> elements, std::size_t element_bytes) noexcept;

}  // namespace bitcube::machine
