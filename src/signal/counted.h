// "1 record", "2 records", "3 classes": for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ramify::signal {

inline std::string counted(int64_t count, std::string_view one, std::string_view several = {}) {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text.append(one);
  return several.empty() ? text.append(one) + "s" : text.append(several);
}

}  // namespace ramify::signal
