// The one way in which bitcube reports failure: an error is a value, never an exception.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace bitcube {

/// What was wrong, where, and what would be right, in one sentence for a person.
struct Error {
  std::string message;
};

/// A value of type T, or the Error that prevented it. Test with `if (result)`, then use `*result` or `result->`.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  /// Precondition of the accessors: the object holds what is asked for.
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }
  const Error& error() const noexcept { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or the Error.
template <>
class [[nodiscard]] Expected<void> {
 public:
  Expected() = default;
  Expected(Error error) : error_(std::move(error)) {}

  explicit operator bool() const noexcept { return !error_.has_value(); }
  const Error& error() const noexcept { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace bitcube
