#include "names.hpp"

#include <algorithm>
#include <array>

namespace bitcube::program {
namespace {

using machine::FaultClass;
using machine::TileLayout;

constexpr auto layouts = []() {
  std::array<std::string_view, 7> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = machine::name_of(static_cast<TileLayout>(i));
  return names;
}();

struct LayoutAlias {
  std::string_view name;
  TileLayout layout;
};
constexpr std::array<LayoutAlias, 5> layout_aliases{{{"ND", TileLayout::row_major},
                                                     {"DN", TileLayout::column_major},
                                                     {"M16", TileLayout::cube_m16},
                                                     {"M32", TileLayout::cube_m32},
                                                     {"N8", TileLayout::cube_n8}}};

constexpr std::size_t fault_count = static_cast<std::size_t>(FaultClass::bundle_post_commit);
constexpr auto faults = []() {
  std::array<std::string_view, fault_count> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = machine::name_of(static_cast<FaultClass>(i + 1));
  return names;
}();

template <typename Names>
std::optional<std::size_t> find(const Names& names, std::string_view name) noexcept {
  const auto at =
      std::find_if(names.begin(), names.end(), [&](std::string_view n) { return equal_ignoring_case(n, name); });
  if (name.empty() || at == names.end()) return std::nullopt;
  return static_cast<std::size_t>(at - names.begin());
}

}  // namespace

std::span<const std::string_view> layout_names() noexcept {
  return layouts;
}

std::optional<TileLayout> find_layout(std::string_view name) noexcept {
  if (const auto i = find(layouts, name)) return static_cast<TileLayout>(*i);
  for (const LayoutAlias& alias : layout_aliases) {
    if (equal_ignoring_case(alias.name, name)) return alias.layout;
  }
  return std::nullopt;
}

std::span<const std::string_view> fault_class_names() noexcept {
  return faults;
}

std::optional<FaultClass> find_fault_class(std::string_view name) noexcept {
  const auto i = find(faults, name);
  if (!i) return std::nullopt;
  return static_cast<FaultClass>(*i + 1);
}

std::string_view name_in(std::span<const isa::CodeName> table, unsigned code) noexcept {
  for (const isa::CodeName& row : table) {
    if (row.code == code) return row.name;
  }
  return {};
}

std::optional<unsigned> code_in(std::span<const isa::CodeName> table, std::string_view name) noexcept {
  for (const isa::CodeName& row : table) {
    if (equal_ignoring_case(row.name, name)) return row.code;
  }
  return std::nullopt;
}

std::string mask_text(unsigned mask) {
  return fmt::format("{:04b}", mask);
}

std::string flags_text(Flags flags) {
  std::string text;
  for (const FlagName& row : flag_names) {
    if (has(flags, row.flag)) text += fmt::format("{}{}", text.empty() ? "" : " ", row.name);
  }
  return text.empty() ? "none" : text;
}

std::string_view type_text(DataType type) noexcept {
  const Format* format = find_format(static_cast<unsigned>(type));
  return format == nullptr ? "none" : format->name;
}

}  // namespace bitcube::program
