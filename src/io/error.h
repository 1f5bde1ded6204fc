// What every reader and writer of files throws: the file (and the line, where there are lines), what was found there,
// and what was expected.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace ramify::io {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A name out of an untrusted file, fit for a message: in quotes, control characters escaped, long ones cut short.
std::string printable(std::string_view name);

// What the JSON library says of a mistake, without its own name in front, and never longer than a line:
// "parse error at line 1, column 5: ..."
std::string json_reason(std::string_view message);

// "PATH: cannot <action>: <the system's reason of the last error>"
Error system_error(const std::string& path, const std::string& action);

}  // namespace ramify::io
