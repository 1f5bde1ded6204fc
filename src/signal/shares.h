// How several processes divide work between them: which records of a batch each one takes, and how each reads a part of
// the files and still has all records.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ramify::signal {

// One of several processes that do the same work together.
struct Member {
  int64_t rank = 0, size = 1;
  // What every member says, in the order of ranks; all must ask alike. Not needed by one alone.
  std::function<std::vector<std::string>(std::string own)> gather;
};

// The places (ascending) of the items that `rank` takes, so that all have about the same sum of sizes: the largest item
// first, each to who has least so far. Every item is taken by one; where there are few, some take none.
std::vector<int64_t> balanced_share(std::span<const int64_t> sizes, int64_t rank, int64_t ranks);

}  // namespace ramify::signal
