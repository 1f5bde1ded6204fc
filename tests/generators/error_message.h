// The message of the std::invalid_argument that a call throws.
#pragma once

#include <stdexcept>
#include <string>

namespace ramify::testing {

template <class Call>
std::string error_message(Call&& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace ramify::testing
