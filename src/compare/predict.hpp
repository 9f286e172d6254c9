// What a DUT with certain faults would have delivered: the inputs are computed again with the faults planted, or GOLDEN
// is changed as a fault would change it.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "bitcube/compare/diff.hpp"

namespace bitcube::compare_detail {

/// Where the elements of a row-major matrix are in a layout (machine/geometry.hpp), and back.
class StorageMap {
 public:
  /// Nothing where the matrix is not made of whole CELLs or fractals, or the layout moves nothing.
  static std::optional<StorageMap> make(machine::TileLayout layout, unsigned bits, uint64 rows, uint64 columns);

  uint64 stored(uint64 flat) const noexcept;
  uint64 flat(uint64 stored) const noexcept;

 private:
  uint64 block_rows_ = 1;  // of a CELL or fractal
  uint64 block_columns_ = 1;
  uint64 rows_ = 0;  // of blocks
  uint64 columns_ = 0;
  bool by_columns_ = false;            // blocks below each other follow each other
  std::vector<std::uint32_t> stored_;  // inside a block
  std::vector<std::uint32_t> flat_;
};

/// Faults in how one side of a product was read.
struct SideFaults {
  const Format* format = nullptr;  // other than its own
  bool swap_k = false;             // lanes 2i and 2i+1 of a line
  bool swap_lines = false;         // the same of lines
  bool transposed = false;
  unsigned reversed_micro = 0;  // bit 0: E1_8, bit 1: E1_16 of HiF4 scale words
  bool swapped_scale_bytes = false;
  bool micro_first = false;  // reversed before the bytes were swapped
  enum class Scales : std::uint8_t { normal, ignored, by_lines, by_groups } scales = Scales::normal;
  std::size_t group = 0;               // lanes per scale; 0: the format's own
  const StorageMap* layout = nullptr;  // of the matrix ...
  bool is_stored = false;              // ... in which it lies, but was read as row-major; else the other way round

  bool any() const noexcept {
    return format != nullptr || swap_k || swap_lines || transposed || reversed_micro != 0 || swapped_scale_bytes ||
           scales != Scales::normal || group != 0 || layout != nullptr;
  }
};

enum class BiasUse : std::uint8_t { normal, missing, twice, first, after_scaling, group_scaled };
enum class CUse : std::uint8_t { normal, missing, last, after_bias };

/// A DUT's ways, all right to begin with; each hypothesis spoils some of them.
struct Faults {
  /// Something below up to `words` is spoilt, so GOLDEN has to be computed again.
  bool recompute = false;

  // Conversion
  const Format* from = nullptr;
  const Format* via = nullptr;  // rounded to this first
  EncodeControl control{};

  // Quantisation
  Hif4Profile hif4 = hif4_profiles[0];
  ScaleRounding scale_rule = ScaleRounding::floor;
  Rounding lane_rounding = Rounding::rne;
  const Format* element = nullptr;
  std::size_t group = 0;
  bool unit_tensor_scale = false;
  bool scales_of_dut = false;  // lanes as they follow from DUT's scales, where those are one step from GOLDEN's

  // Product
  SideFaults a;
  SideFaults b;
  bool exchanged = false;
  const AccumulationProfile* profile = nullptr;
  std::size_t accumulation_group = 0;
  std::size_t k_block = 0;
  bool k_reversed = false;
  BiasUse bias = BiasUse::normal;
  CUse c = CUse::normal;

  // Post-process
  PreQuantMode mode = no_quant;
  Relu relu = Relu::none;
  Rounding rounding = Rounding::rne;
  bool saturate = false;
  const ConversionProfile* conversion_profile = &pto_profile;
  bool relu_after = false;
  bool offset_first = false;
  bool no_intermediate = false;  // saturation, before the offset is added
  bool no_offset = false;
  bool no_scale = false;
  bool first_parameter = false;

  // The words as they were computed, changed; some look at what DUT has there.
  using WordFault = std::function<uint64(const ComparedPart&, uint64 index, uint64 word, uint64 dut)>;
  std::vector<WordFault> words;
  /// Where they were put: nothing for words that are lost.
  using PlaceFault = std::function<std::optional<uint64>(const ComparedPart&, uint64 index)>;
  std::vector<PlaceFault> places;
  /// Places of DUT that no word comes to: they hold 0, or what nobody knows.
  bool rest_is_zero = false;
};

/// The parts of a result one after the other, so that an element is one number.
class Elements {
 public:
  explicit Elements(std::span<const ComparedPart> parts);

  uint64 total() const noexcept { return offsets_.back(); }
  std::span<const ComparedPart> parts() const noexcept { return parts_; }
  uint64 offset(std::size_t part) const noexcept { return offsets_[part]; }
  std::pair<std::size_t, uint64> locate(uint64 index) const noexcept;
  uint64 golden(uint64 index) const noexcept;
  uint64 dut(uint64 index) const noexcept;

 private:
  std::span<const ComparedPart> parts_;
  std::vector<uint64> offsets_;
};

/// What is the same for many faults.
struct SampleCache;

/// Elements that are computed together.
struct Sample {
  std::vector<uint64> indices;
  std::vector<std::size_t> rows{};  // of a product: the indices are rows x columns
  std::vector<std::size_t> columns{};
  std::vector<uint64> units{};           // of a quantisation
  std::shared_ptr<SampleCache> cache{};  // of a sample that is computed often
};

struct Predicted {
  std::vector<uint64> words;    // of the sample's indices
  std::vector<bool> unknown{};  // empty: all are known
};

/// Computes words from the inputs.
class Source {
 public:
  virtual ~Source() = default;
  /// The right ways.
  virtual Faults faults() const { return {}; }
  virtual Expected<Predicted> evaluate(const Faults& faults, const Sample& sample) const = 0;
  /// About `size` elements around these, which are in ascending order.
  virtual Sample around(std::span<const uint64> indices, std::size_t size) const = 0;
  /// All elements, in pieces.
  virtual std::size_t pieces() const = 0;
  virtual Sample piece(std::size_t i) const = 0;
};

/// GOLDEN itself, where there are no inputs.
std::unique_ptr<Source> golden_source(const Elements& elements);
std::unique_ptr<Source> conversion_source(const Elements& elements, const ConversionInputs& inputs);
std::unique_ptr<Source> quantization_source(const Elements& elements, const QuantizationInputs& inputs);
std::unique_ptr<Source> product_source(const ProductInputs& inputs, const Format& accumulator, std::size_t group);

/// One way to be wrong, of one hypothesis.
struct Variant {
  std::string_view id;  // of hypotheses()
  std::string title;
  std::string slot;         // two variants of one slot exclude each other
  bool recomputes = false;  // from the inputs
  bool looks_at_dut = false;
  bool provable = true;    // else what it finds is a hint
  bool fitted = false;     // to the mismatches, or one of a row of lengths: one or two mismatches are a hint
  bool reencodes = false;  // puts the same values in another way, so that two of a slot may follow each other
  std::function<void(Faults&)> plant;
  std::string remedy{};  // instead of the hypothesis's
};

/// Whether DUT's scale is one step from GOLDEN's. HiF4: in its E6M2 byte.
bool is_scale_step(const ComparedPart& scales, uint64 golden, uint64 dut) noexcept;

/// Everything that may have gone wrong with these inputs, in the order of hypotheses().
std::vector<Variant> variants_of(const DiffInputs& inputs, const Elements& elements,
                                 std::span<const Comparison> comparisons);

}  // namespace bitcube::compare_detail
