// Reports as a page: one HTML file with its pictures, that needs no other file, no script and no network.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bitcube/compare/diff.hpp"
#include "bitcube/document.hpp"
#include "bitcube/report/statistics.hpp"

namespace bitcube::report {

/// What a page says of itself.
struct PageHead {
  std::string title;
  std::string command;         // with which the page can be made again
  std::string date{};          // as text; empty: none, so that the page depends on nothing but its inputs
  std::vector<Fact> inputs{};  // the files: name, and what they are
  std::vector<std::string> warnings{};
};

/// Tensors that have pictures of their own; all others are in the tables of all tensors.
inline constexpr std::size_t kPicturedTensors = 12;

/// The page of tensors in block formats. Those with the lowest SQNR have pictures of their own, at most `pictured`.
/// `formats` are the ways in which each of them was quantised. Strings may hold anything: they are escaped, and bytes
/// that are no UTF-8 replaced. The page is XML as well as HTML. The same arguments give the same bytes.
std::string tensor_page(const PageHead& head, std::span<const QuantizeOptions> formats,
                        std::span<const TensorReport> tensors, std::size_t pictured = kPicturedTensors);

/// The page of a comparison of two results: where they differ, how much, and why. Otherwise as tensor_page().
std::string comparison_page(const PageHead& head, const Diff& diff);

/// The name of a way to quantise: its format, and after a colon what is not the default: "hif4:paper", "mxfp4:rceil".
std::string label_of(const QuantizeOptions& options);

}  // namespace bitcube::report
