// Why two results differ: hypotheses about a fault are tried on the data, and those that explain it are reported.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/compare/compare.hpp"
#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/document.hpp"
#include "bitcube/numeric/encode.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube {

// ---- What was computed

/// GOLDEN is a conversion of these words (TCVT, numerics 7): one part, PartRole::result.
struct ConversionInputs {
  std::span<const std::byte> words;
  const Format* from = nullptr;
  EncodeControl control{};
};

/// GOLDEN is this tensor, quantised: the parts are its codes and, if there are two, its scales, both with the quantised
/// axis last as in QuantizedTensor.
struct QuantizationInputs {
  std::span<const std::byte> words;
  const Format* source = nullptr;
  std::vector<uint64> shape;
  std::size_t axis = 0;
  QuantizeOptions options{};
};

/// GOLDEN is D = post-process(C + A * B + bias): one part, M x N.
struct ProductInputs {
  Operand a;
  Operand b;
  MatmulOptions options{};
  PostprocessOptions postprocess{};
};

struct DiffInputs {
  std::vector<ComparedPart> parts;  // all of one result
  std::optional<ConversionInputs> conversion{};
  std::optional<QuantizationInputs> quantization{};
  std::optional<ProductInputs> product{};
};

// ---- Hypotheses

/// A kind of fault. The table is in the order in which equally good explanations are preferred: simplest first.
struct Hypothesis {
  std::string_view id;
  std::string_view title;   // what was done instead
  std::string_view needs;   // what it is tried on
  std::string_view remedy;  // where to look in the DUT
};

/// Every hypothesis.
std::span<const Hypothesis> hypotheses() noexcept;
/// The hypothesis of this id, or nullptr.
const Hypothesis* find_hypothesis(std::string_view id) noexcept;

enum class Certainty : std::uint8_t {
  complete,  // the prediction is the DUT, bit for bit, everywhere
  mostly,    // it explains 90 % of the mismatches or more, and makes few of its own
  hint,      // the data look like it, but GOLDEN and DUT alone cannot prove it
};

constexpr std::string_view name_of(Certainty certainty) noexcept {
  constexpr std::string_view names[] = {"complete", "mostly", "hint"};
  return names[static_cast<std::size_t>(certainty)];
}

/// An explanation: one hypothesis, or two together.
struct Diagnosis {
  std::vector<std::string> ids;  // of hypotheses(), one or two
  std::string title;             // with the choice that fits: "other tie rule: RNA instead of RNE"
  Certainty certainty = Certainty::complete;
  uint64 explains = 0;                           // mismatches that it predicts, bit for bit
  uint64 of = 0;                                 // mismatches
  uint64 introduces = 0;                         // elements that agree, where it predicts a difference
  std::string detail{};                          // a sentence on what was found, or empty
  std::string remedy{};                          // what to look at, or what to give so that it can be told for certain
  std::vector<std::string> indistinguishable{};  // titles of others with the same prediction on this data
  bool in_golden = false;                        // the fault is GOLDEN's: DUT is what the inputs give
};

struct DiffOptions {
  CompareOptions compare{};
  std::size_t diagnoses = 5;  // at most
  bool diagnose = true;
  bool pairs = true;  // tries two hypotheses together where none alone is complete
};

struct Diff {
  std::vector<Comparison> parts;
  std::vector<Diagnosis> diagnoses{};     // best first; empty if nothing differs, or nothing explains it
  std::vector<std::string> warnings{};    // trivial results, a GOLDEN that is not what the inputs give
  std::optional<uint64> golden_faults{};  // elements of GOLDEN that are not what the inputs give; only with inputs
  std::optional<uint64> dut_faults{};     // the same of DUT
  uint64 tried = 0;                       // hypotheses and pairs of them
  std::string explain_command{};          // what to run next on the first mismatch, if the caller said so

  bool equal() const noexcept;
  bool passes() const noexcept;
  uint64 mismatches() const noexcept;
  /// The inputs give DUT, and not GOLDEN.
  bool golden_is_wrong() const noexcept { return golden_faults.value_or(0) != 0 && dut_faults == uint64{0}; }
};

/// Compares all parts and, where they differ, looks for the reason; where the inputs give DUT and not GOLDEN, for that
/// of GOLDEN. Errors: as compare(), and inputs that do not fit the parts.
Expected<Diff> diff(const DiffInputs& inputs, const DiffOptions& options = {});

/// The report: its text for people and its JSON are made from it.
Document document_of(const Diff& diff, std::string_view golden, std::string_view dut);
/// The JSON of the document, and beside it equal, passes, mismatches, tried, golden_faults, warnings, parts and
/// diagnoses with counts as numbers.
std::string json_of(const Diff& diff, std::string_view golden, std::string_view dut, int indent = 2);

}  // namespace bitcube
