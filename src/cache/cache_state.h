// What a HierarchicalCache holds: checked options, and an open path for every sequence and key head.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/open_path.h"
#include "ramify/cache.h"

namespace ramify {

struct HierarchicalCache::State {
  CacheOptions options;
  cpu::PathShape shape;
  std::vector<std::vector<cpu::OpenPath>> sequences;  // [sequences][key heads]
};

// c10::ValueError for options that no cache can have.
cpu::PathShape path_shape(const CacheOptions& options);

// The file's form of a cache, which begins with what the numbers mean. c10::ValueError for anything else.
std::string write_cache(const CacheOptions& options, const std::vector<std::vector<cpu::OpenPath>>& sequences);
CacheOptions read_cache_options(std::string_view bytes);
std::vector<std::vector<cpu::OpenPath>> read_cache(std::string_view bytes, const cpu::PathShape& shape,
                                                   int64_t key_heads);

}  // namespace ramify
