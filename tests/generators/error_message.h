// The message of the exception that a call throws: std::invalid_argument, unless another type is asked for.
#pragma once

#include <stdexcept>
#include <string>

namespace ramify::testing {

template <class Exception = std::invalid_argument, class Call>
std::string error_message(Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace ramify::testing
