// JSON files of published tokenizers, read with a limit on their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/error.h"

namespace ramify::text {

inline constexpr size_t kMaxTokenBytes = 4096;
inline constexpr size_t kMaxTokens = size_t{1} << 24;

// io::Error("PATH: ...") for what is not JSON.
nlohmann::json read_json_file(const std::string& path);

// settings[key]; `otherwise` where there is none, or a null.
bool json_flag(const nlohmann::json& settings, const char* key, bool otherwise);

// The id of a token; -1 for what is no whole number, negative, or too large for one.
int32_t json_id(const nlohmann::json& number);

// Tokens by id, from an object of ids by token. io::Error("PATH: ...") unless the ids are 0, 1, 2, ... without a gap,
// each once.
std::vector<std::string> tokens_by_id(const nlohmann::json& ids, const std::string& path);

}  // namespace ramify::text
