#include "text/json_files.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "text/utf8.h"

namespace ramify::text {

using nlohmann::json;

json read_json_file(const std::string& path) {
  constexpr size_t kMaxJsonBytes = size_t{256} << 20;
  try {
    return json::parse(io::read_file(path, kMaxJsonBytes));
  } catch (const json::exception& error) {
    throw io::Error(path +
                    ": is not valid JSON: " + io::json_reason(valid_utf8(error.what())));  // it quotes what it read
  }
}

bool json_flag(const json& settings, const char* key, bool otherwise) {
  const auto found = settings.find(key);
  return found == settings.end() || found->is_null() ? otherwise : found->get<bool>();
}

int32_t json_id(const json& number) {
  if (!number.is_number_integer()) return -1;
  const auto id = number.get<int64_t>();  // a larger one becomes negative
  return id >= 0 && id <= std::numeric_limits<int32_t>::max() ? static_cast<int32_t>(id) : -1;
}

std::vector<std::string> tokens_by_id(const json& ids, const std::string& path) {
  if (!ids.is_object()) throw io::Error(path + ": the vocabulary is no object of ids by token");
  if (ids.size() > kMaxTokens) throw io::Error(path + ": has too many tokens for a vocabulary");
  std::vector<std::string> tokens(ids.size());
  std::vector<bool> seen(ids.size());
  for (const auto& [token, number] : ids.items()) {
    if (!number.is_number_integer()) {
      throw io::Error(path + ": token " + io::printable(token) + " has an id that is no whole number");
    }
    const auto id = number.get<int64_t>();
    if (id < 0 || id >= static_cast<int64_t>(tokens.size()) || seen[static_cast<size_t>(id)]) {
      throw io::Error(path + ": token " + io::printable(token) + " has the id " + std::to_string(id) +
                      "; expected each from 0 to " + std::to_string(tokens.size() - 1) + " once");
    }
    seen[static_cast<size_t>(id)] = true;
    tokens[static_cast<size_t>(id)] = token;
  }
  return tokens;
}

}  // namespace ramify::text
