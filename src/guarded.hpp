// No exception of the libraries below crosses the API.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>

#include "bitcube/expected.hpp"

namespace bitcube {

/// The result of work(), or why there was none. `what` names the operation for the message.
template <typename Work>
auto guarded(std::string_view what, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Error{fmt::format("{}: not enough memory", what)};
  } catch (const std::length_error&) {
    return Error{fmt::format("{}: not enough memory", what)};
  } catch (const std::exception& failure) {
    return Error{fmt::format("{}: {}", what, failure.what())};
  }
}

}  // namespace bitcube
