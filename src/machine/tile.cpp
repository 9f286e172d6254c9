#include "bitcube/machine/tile.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace bitcube::machine {

namespace {

constexpr std::uint32_t bits_of(const Format& f) noexcept {
  return f.lane_bits;
}

/// Bytes of one run: the lanes of one row (M) or column (N8) of a CELL, which lie side by side.
struct Runs {
  std::size_t lanes = 0;
  std::size_t bytes = 0;
  std::size_t lines_per_cell = 0;
};
Runs runs_of(const TileDescriptor& d, unsigned element_bits) noexcept {
  const CellShape cell = *cell_shape(d.layout, element_bits);
  const bool n8 = d.layout == TileLayout::cube_n8;
  const std::size_t lanes = n8 ? cell.rows : cell.columns;
  return {lanes, lanes * element_bits / 8, n8 ? cell.columns : cell.rows};
}

/// Copies a run and, for 4-bit elements in M16, swaps its columns 4..7 with 8..11: bytes 2, 3 with bytes 4, 5. The swap
/// is its own inverse, so it serves both directions.
void copy_run(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes, bool swapped) noexcept {
  std::memcpy(to, from, bytes);
  if (!swapped) return;
  std::memcpy(to + 2, from + 4, 2);
  std::memcpy(to + 4, from + 2, 2);
}

uint64 load(std::span<const std::uint8_t> bytes, unsigned bits, std::size_t index) noexcept {
  if (bits == 4) {
    return index / 2 < bytes.size() ? (uint64{bytes[index / 2]} >> (4 * (index % 2))) & 0xF : 0;
  }
  const std::size_t width = bits / 8;
  uint64 word = 0;
  if ((index + 1) * width <= bytes.size()) std::memcpy(&word, bytes.data() + index * width, width);
  return word;
}

void store(std::span<std::uint8_t> bytes, unsigned bits, std::size_t index, uint64 word) noexcept {
  if (bits == 4) {
    if (index / 2 >= bytes.size()) return;
    const unsigned shift = 4 * (index % 2);
    std::uint8_t& byte = bytes[index / 2];
    byte = static_cast<std::uint8_t>((byte & ~(0xFU << shift)) | ((word & 0xFU) << shift));
    return;
  }
  const std::size_t width = bits / 8;
  if ((index + 1) * width <= bytes.size()) std::memcpy(bytes.data() + index * width, &word, width);
}

std::string_view reason(DescriptorFault fault) noexcept {
  switch (fault) {
    case DescriptorFault::none:
      return "";
    case DescriptorFault::type:
      return "the layout does not take this type";
    case DescriptorFault::capacity:
      return "a capacity is a multiple of 128 bytes, at most 64 KiB Local or 256 KiB Shared";
    case DescriptorFault::shape:
      return "the layout has no such shape";
    case DescriptorFault::room:
      return "the capacity is too small for the shape";
    case DescriptorFault::derived:
      return "the derived fields are inconsistent";
    case DescriptorFault::location:
      return "a CUBE layout lies in the matrix unit";
  }
  return "";
}

Expected<Tile> fill(const DescriptorResult& d, std::span<const uint64> words) {
  if (!d) return Error{std::string(reason(d.fault))};
  const std::size_t count = std::size_t{d.descriptor.valid_rows} * d.descriptor.valid_columns;
  if (words.size() != count) {
    return Error{fmt::format("{} words, but the valid region is {} x {}", words.size(), d.descriptor.valid_rows,
                             d.descriptor.valid_columns)};
  }
  Tile tile(d.descriptor);
  for (std::uint32_t r = 0; r < d.descriptor.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < d.descriptor.valid_columns; ++c) {
      tile.store_element(r, c, words[std::size_t{r} * d.descriptor.valid_columns + c]);
    }
  }
  tile.set_extent(Definedness::Extent::valid);
  return tile;
}

std::uint32_t capacity_for(std::uint64_t bytes) noexcept {
  std::uint32_t capacity = cell_bytes;
  while (capacity < bytes && capacity < shared_capacity_limit) capacity *= 2;
  return capacity;
}

}  // namespace

const Format* tile_format(DataType type) noexcept {
  static constexpr auto table = []() {
    std::array<const Format*, 32> t{};
    for (const Format& f : formats) t[static_cast<std::size_t>(f.type)] = &f;
    t[static_cast<std::size_t>(DataType::e6m2)] = nullptr;
    t[static_cast<std::size_t>(DataType::rcpe6m2)] = nullptr;
    return t;
  }();
  const auto code = static_cast<std::size_t>(type);
  return code < table.size() ? table[code] : nullptr;
}

DescriptorResult describe_cube(TileLayout layout, DataType type, std::uint32_t valid_rows, std::uint32_t valid_columns,
                               std::uint32_t capacity, std::uint32_t limit) noexcept {
  const Format* format = tile_format(type);
  if (format == nullptr || !cell_shape(layout, bits_of(*format))) return {DescriptorFault::type};
  const auto geometry = cube_geometry(layout, bits_of(*format), valid_rows, valid_columns);
  if (!geometry) return {DescriptorFault::shape};
  if (!legal_capacity(capacity, limit)) return {DescriptorFault::capacity};
  if (geometry->storage_bytes > capacity) return {DescriptorFault::room};
  TileDescriptor d;
  d.type = type;
  d.layout = layout;
  d.location = Location::matrix;
  d.capacity_bytes = capacity;
  d.rows = geometry->rows;
  d.columns = geometry->columns;
  d.valid_rows = valid_rows;
  d.valid_columns = valid_columns;
  d.cube_k_repeat = geometry->k_repeat;
  d.cube_n_repeat = geometry->n_repeat;
  d.cube_cell_count = geometry->cells;
  d.cube_storage_bytes = geometry->storage_bytes;
  return {DescriptorFault::none, d};
}

DescriptorResult describe_ordinary(TileLayout layout, DataType type, std::uint32_t valid_rows,
                                   std::uint32_t valid_columns, std::uint32_t columns, std::uint32_t capacity,
                                   std::uint32_t limit) noexcept {
  const Format* format = tile_format(type);
  if (format == nullptr || is_cube(layout)) return {DescriptorFault::type};
  if (!legal_capacity(capacity, limit)) return {DescriptorFault::capacity};
  if (valid_rows == 0 || valid_columns == 0 || !is_power_of_two(columns) || valid_columns > columns ||
      columns > extent_limit || valid_rows > extent_limit) {
    return {DescriptorFault::shape};
  }
  const auto rows = ordinary_rows(layout, bits_of(*format), columns, capacity);
  if (!rows || valid_rows > *rows) return {DescriptorFault::room};
  TileDescriptor d;
  d.type = type;
  d.layout = layout;
  d.capacity_bytes = capacity;
  d.rows = *rows;
  d.columns = columns;
  d.valid_rows = valid_rows;
  d.valid_columns = valid_columns;
  return {DescriptorFault::none, d};
}

DescriptorFault check_descriptor(const TileDescriptor& d, std::uint32_t limit) noexcept {
  const bool cube = is_cube(d.layout);
  DescriptorResult derived =
      cube ? describe_cube(d.layout, d.type, d.valid_rows, d.valid_columns, d.capacity_bytes, limit)
           : describe_ordinary(d.layout, d.type, d.valid_rows, d.valid_columns, d.columns, d.capacity_bytes, limit);
  if (!derived) return derived.fault;
  if (cube && d.location != Location::matrix) return DescriptorFault::location;
  derived.descriptor.location = d.location;
  derived.descriptor.allocation_mask = d.allocation_mask;
  return derived.descriptor == d ? DescriptorFault::none : DescriptorFault::derived;
}

void Definedness::set_extent(Extent extent) {
  extent_ = extent;
  bits_.clear();
}

void Definedness::to_bits(const TileDescriptor& d) {
  if (extent_ == Extent::bits) return;
  Tile shape;
  shape.descriptor() = d;
  const std::size_t count = std::size_t{d.capacity_bytes} * 8 / bits_of(shape.format());
  std::vector<bool> bits(count, false);
  if (extent_ == Extent::valid || extent_ == Extent::all) {
    const bool all = extent_ == Extent::all;
    const std::uint32_t rows = all ? d.rows : d.valid_rows;
    const std::uint32_t columns = all ? d.columns : d.valid_columns;
    for (std::uint32_t r = 0; r < rows; ++r) {
      for (std::uint32_t c = 0; c < columns; ++c) bits[shape.index(r, c)] = true;
    }
  }
  extent_ = Extent::bits;
  bits_ = std::move(bits);
}

void Definedness::define(const TileDescriptor& descriptor, std::size_t index) {
  if (extent_ == Extent::all) return;
  to_bits(descriptor);
  bits_[index] = true;
}

void Definedness::undefine(const TileDescriptor& descriptor, std::size_t index) {
  to_bits(descriptor);
  bits_[index] = false;
}

Tile::Tile(const TileDescriptor& descriptor) : descriptor_(descriptor), bytes_(descriptor.capacity_bytes, 0) {}

std::size_t Tile::index(std::uint32_t row, std::uint32_t column) const noexcept {
  const unsigned bits = bits_of(format());
  return is_cube(descriptor_.layout)
             ? cube_index(descriptor_.layout, bits, descriptor_.cube_k_repeat, row, column)
             : ordinary_index(descriptor_.layout, bits, descriptor_.rows, descriptor_.columns, row, column);
}

uint64 Tile::element(std::uint32_t row, std::uint32_t column) const noexcept {
  return load(bytes_, bits_of(format()), index(row, column));
}

bool Tile::defined(std::uint32_t row, std::uint32_t column) const noexcept {
  switch (defined_.extent()) {
    case Definedness::Extent::none:
      return false;
    case Definedness::Extent::all:
      return true;
    case Definedness::Extent::valid:
      return row < descriptor_.valid_rows && column < descriptor_.valid_columns;
    case Definedness::Extent::bits:
      break;
  }
  const std::size_t i = index(row, column);
  return i < defined_.bits().size() && defined_.bits()[i];
}

void Tile::set_element(std::uint32_t row, std::uint32_t column, uint64 word) {
  store_element(row, column, word);
  if (!defined(row, column)) defined_.define(descriptor_, index(row, column));
}

void Tile::undefine_element(std::uint32_t row, std::uint32_t column) {
  if (defined(row, column)) defined_.undefine(descriptor_, index(row, column));
}

void Tile::store_element(std::uint32_t row, std::uint32_t column, uint64 word) noexcept {
  store(bytes_, bits_of(format()), index(row, column), word);
}

bool Tile::contents_defined() const noexcept {
  const auto extent = defined_.extent();
  if (extent == Definedness::Extent::valid || extent == Definedness::Extent::all) return true;
  if (extent == Definedness::Extent::none) return false;
  return defined_valid_elements() == std::size_t{descriptor_.valid_rows} * descriptor_.valid_columns;
}

std::size_t Tile::defined_valid_elements() const noexcept {
  std::size_t count = 0;
  for (std::uint32_t r = 0; r < descriptor_.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < descriptor_.valid_columns; ++c) count += defined(r, c) ? 1U : 0U;
  }
  return count;
}

std::vector<uint64> Tile::valid_words() const {
  std::vector<uint64> words;
  words.reserve(std::size_t{descriptor_.valid_rows} * descriptor_.valid_columns);
  for (std::uint32_t r = 0; r < descriptor_.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < descriptor_.valid_columns; ++c) words.push_back(element(r, c));
  }
  return words;
}

bool operator==(const Tile& a, const Tile& b) {
  if (a.descriptor_ != b.descriptor_ || a.bytes_ != b.bytes_) return false;
  const auto ea = a.defined_.extent();
  const auto eb = b.defined_.extent();
  if (ea == eb && ea != Definedness::Extent::bits) return true;
  if (ea == eb && a.defined_.bits() == b.defined_.bits()) return true;
  // The same elements can be described in two ways.
  for (std::uint32_t r = 0; r < a.descriptor_.rows; ++r) {
    for (std::uint32_t c = 0; c < a.descriptor_.columns; ++c) {
      if (a.defined(r, c) != b.defined(r, c)) return false;
    }
  }
  return true;
}

bool same_tile(const TileRef& a, const TileRef& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

Expected<Tile> make_cube_tile(TileLayout layout, DataType type, std::uint32_t valid_rows, std::uint32_t valid_columns,
                              std::span<const uint64> words, std::uint32_t capacity) {
  if (capacity == 0) {
    const Format* format = tile_format(type);
    const auto geometry =
        format == nullptr ? std::nullopt : cube_geometry(layout, bits_of(*format), valid_rows, valid_columns);
    capacity = capacity_for(geometry ? geometry->storage_bytes : 0);
  }
  return fill(describe_cube(layout, type, valid_rows, valid_columns, capacity), words);
}

Expected<Tile> make_ordinary_tile(TileLayout layout, DataType type, std::uint32_t valid_rows,
                                  std::uint32_t valid_columns, std::span<const uint64> words, std::uint32_t columns,
                                  std::uint32_t capacity, std::uint32_t limit) {
  const Format* format = tile_format(type);
  const bool fractal = layout == TileLayout::zn || layout == TileLayout::nz;
  if (columns == 0 && valid_columns != 0 && valid_columns <= extent_limit) {
    columns = round_up_to_power_of_two(valid_columns);
    if (fractal && format != nullptr) columns = std::max(columns, fractal_columns(bits_of(*format)));
  }
  if (capacity == 0 && format != nullptr) {
    const std::uint32_t rows = fractal ? divide_up(valid_rows, fractal_rows) * fractal_rows : valid_rows;
    capacity = capacity_for((std::uint64_t{rows} * columns * bits_of(*format) + 7) / 8);
  }
  return fill(describe_ordinary(layout, type, valid_rows, valid_columns, columns, capacity, limit), words);
}

LaneImage gather_lines(const Tile& tile) {
  const TileDescriptor& d = tile.descriptor();
  const unsigned bits = bits_of(tile.format());
  const Runs runs = runs_of(d, bits);
  const bool swapped = d.layout == TileLayout::cube_m16 && bits == 4;
  const std::size_t lines = d.layout == TileLayout::cube_n8 ? d.valid_columns : d.valid_rows;
  const std::size_t k_repeat = d.cube_k_repeat;
  LaneImage image;
  image.bytes.resize(lines * k_repeat * runs.bytes);
  std::uint8_t* to = image.bytes.data();
  for (std::size_t line = 0; line < lines; ++line) {
    const std::uint8_t* from = tile.bytes().data() + line / runs.lines_per_cell * k_repeat * cell_bytes +
                               line % runs.lines_per_cell * runs.bytes;
    for (std::size_t cell = 0; cell < k_repeat; ++cell, to += runs.bytes, from += cell_bytes) {
      copy_run(to, from, runs.bytes, swapped);
    }
  }
  image.view = {image.bytes.data(), bits, k_repeat * runs.lanes, 1};
  return image;
}

std::vector<std::uint32_t> gather_words(const Tile& tile) {
  const auto wide = tile.valid_words();
  std::vector<std::uint32_t> words(wide.size());
  std::transform(wide.begin(), wide.end(), words.begin(), [](uint64 w) { return static_cast<std::uint32_t>(w); });
  return words;
}

LaneView row_major_view(const Tile& tile, std::size_t first, std::size_t line_stride,
                        std::size_t lane_stride) noexcept {
  const unsigned bits = bits_of(tile.format());
  return {tile.bytes().data() + first * bits / 8, bits, line_stride, lane_stride};
}

void scatter(Tile& tile, std::span<const std::uint8_t> elements, std::size_t element_bytes) noexcept {
  const TileDescriptor& d = tile.descriptor();
  const unsigned bits = bits_of(tile.format());
  tile.set_extent(Definedness::Extent::valid);
  if (is_cube_m(d.layout) && bits != 4) {
    const Runs runs = runs_of(d, bits);
    const std::size_t row_bytes = d.valid_columns * element_bytes;
    for (std::size_t row = 0; row < d.valid_rows; ++row) {
      const std::uint8_t* from = elements.data() + row * row_bytes;
      std::uint8_t* to = tile.bytes().data() + row / runs.lines_per_cell * d.cube_k_repeat * cell_bytes +
                         row % runs.lines_per_cell * runs.bytes;
      for (std::size_t at = 0; at < row_bytes; at += runs.bytes, to += cell_bytes) {
        std::memcpy(to, from + at, std::min(runs.bytes, row_bytes - at));
      }
    }
    return;
  }
  for (std::uint32_t r = 0; r < d.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < d.valid_columns; ++c) {
      uint64 word = 0;
      std::memcpy(&word, elements.data() + (std::size_t{r} * d.valid_columns + c) * element_bytes, element_bytes);
      tile.store_element(r, c, word);
    }
  }
}

}  // namespace bitcube::machine
