// Names of what the machine has, both ways. Private to the room.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bitcube/isa/forms.hpp"
#include "bitcube/machine/rules.hpp"
#include "bitcube/machine/state.hpp"

namespace bitcube::program {

std::span<const std::string_view> layout_names() noexcept;
/// Also ND, DN, M16, M32, N8.
std::optional<machine::TileLayout> find_layout(std::string_view name) noexcept;
std::span<const std::string_view> fault_class_names() noexcept;
std::optional<machine::FaultClass> find_fault_class(std::string_view name) noexcept;

/// The name of a code of one of the tables of isa/codes.hpp, and back.
std::string_view name_in(std::span<const isa::CodeName> table, unsigned code) noexcept;
std::optional<unsigned> code_in(std::span<const isa::CodeName> table, std::string_view name) noexcept;

/// Four digits, PE0 first.
std::string mask_text(unsigned mask);
/// "OF NX", or "none".
std::string flags_text(Flags flags);
/// "FP32"; "none" for DTYPE_NONE.
std::string_view type_text(DataType type) noexcept;

}  // namespace bitcube::program
