// What every function of the C interface does: run, turn whatever goes wrong into a status and a text, throw nothing.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>

#include "bitcube.h"
#include "bitcube/expected.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/numeric/profile.hpp"
#include "bitcube/numeric/rounding.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube::bindings {

/// Leaves a call; the text is in place. It never leaves the room.
struct Failure {
  bitcube_status status;
};

/// The text of bitcube_last_error(), of this thread: cut where it is full, and not allocated, so that it cannot fail.
inline constexpr std::size_t error_room = 1024;
std::span<char, error_room> error_text() noexcept;
void set_error(std::string_view text) noexcept;

/// Writes into the text itself, so that nothing is allocated.
template <typename... Args>
[[noreturn]] void fail(bitcube_status status, fmt::format_string<Args...> format, Args&&... args) {
  const auto text = error_text();
  *fmt::format_to_n(text.data(), text.size() - 1, format, std::forward<Args>(args)...).out = '\0';
  throw Failure{status};
}

/// Leaves the call with what the library says. Lack of memory is the one error of the library that has a status of its
/// own; guarded.hpp gives it this ending.
[[noreturn]] void fail(const Error& error);

template <typename Body>
bitcube_status call(const Body& body) noexcept {
  try {
    body();
    return BITCUBE_OK;
  } catch (const Failure& failure) {
    return failure.status;
  } catch (const std::bad_alloc&) {
    set_error("not enough memory");
    return BITCUBE_NO_MEMORY;
  } catch (const std::length_error&) {
    set_error("not enough memory");
    return BITCUBE_NO_MEMORY;
  } catch (const std::exception& failure) {
    set_error(failure.what());
    return BITCUBE_INTERNAL;
  } catch (...) {
    set_error("an unknown exception");
    return BITCUBE_INTERNAL;
  }
}

/// The value of an Expected, or the end of the call.
template <typename T>
T value_of(Expected<T> result) {
  if (!result) fail(result.error());
  return *std::move(result);
}
inline void check(const Expected<void>& result) {
  if (!result) fail(result.error());
}

inline void require(const void* pointer, std::string_view name) {
  if (pointer == nullptr) fail(BITCUBE_BAD_ARGUMENT, "{}: NULL", name);
}
/// Memory of 0 bytes needs no address.
inline void require(const void* pointer, std::size_t size, std::string_view name) {
  if (size != 0) require(pointer, name);
}
inline bool yes_or_no(std::int32_t value, std::string_view name) {
  if (value != 0 && value != 1) fail(BITCUBE_BAD_ARGUMENT, "{}: {}, but it is 0 or 1", name, value);
  return value == 1;
}
inline void require_zero(std::uint64_t value, std::string_view name) {
  if (value != 0) fail(BITCUBE_BAD_ARGUMENT, "{}: {}, but it must be 0", name, value);
}
template <std::size_t N>
void require_zero(const std::uint32_t (&values)[N], std::string_view name) {
  for (const std::uint32_t value : values) require_zero(value, name);
}
inline void require_size(std::size_t size, std::size_t wanted, std::string_view name) {
  if (size != wanted) fail(BITCUBE_BAD_SIZE, "{}: {}, but {} are needed", name, size, wanted);
}
/// A shape has no end of its own, so an absurd length would read whatever follows it; files stop at 64 dimensions too.
inline void require_shape(const void* shape, std::size_t rank) {
  require(shape, rank, "shape");
  if (rank > 64) fail(BITCUBE_BAD_SIZE, "shape: {} dimensions, but at most 64 are accepted", rank);
}
inline std::size_t product(std::size_t a, std::size_t b, std::string_view name) {
  std::size_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) fail(BITCUBE_BAD_SIZE, "{}: more than memory can hold", name);
  return out;
}

inline const Format& format_of_code(std::int32_t type, std::string_view name) {
  const Format* format = find_format(static_cast<unsigned>(type));
  if (format == nullptr) fail(BITCUBE_UNKNOWN, "{}: there is no type with code {}", name, type);
  return *format;
}
/// The row of a table whose codes are its indices.
template <typename Row, std::size_t N>
const Row& row_of(const std::array<Row, N>& table, std::int32_t code, std::string_view name) {
  if (code < 0 || static_cast<std::size_t>(code) >= N) {
    fail(BITCUBE_UNKNOWN, "{}: {}, but the codes are 0 to {}", name, code, N - 1);
  }
  return table[static_cast<std::size_t>(code)];
}
inline const ConversionProfile& profile_of(std::int32_t code) {
  return row_of(conversion_profiles, code, "profile");
}
/// A mode, or `otherwise` where none is asked for.
inline Rounding rounding_of(std::int32_t code, Rounding otherwise) {
  if (code == 0) return otherwise;
  if (code < 0 || static_cast<std::size_t>(code) > roundings.size()) {
    fail(BITCUBE_UNKNOWN, "rounding: {}, but the codes are 0 to {}", code, roundings.size());
  }
  return static_cast<Rounding>(code);
}
inline Execution execution_of(std::uint32_t threads, std::int32_t reference) {
  Execution execution;
  execution.threads = threads;
  execution.reference = yes_or_no(reference, "reference");
  return execution;
}
inline std::span<const std::byte> bytes_at(const void* memory, std::size_t size) noexcept {
  return {static_cast<const std::byte*>(memory), size};
}
inline std::span<std::byte> bytes_at(void* memory, std::size_t size) noexcept {
  return {static_cast<std::byte*>(memory), size};
}
/// The options, or the default ones.
template <typename Options>
Options options_of(const Options* options) noexcept {
  return options == nullptr ? Options{} : *options;
}

}  // namespace bitcube::bindings
