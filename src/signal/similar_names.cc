#include "signal/similar_names.h"

#include <algorithm>
#include <vector>

namespace ramify::signal {
namespace {

constexpr size_t kLongestName = 64;  // longer ones are not compared: the time grows with the square

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

size_t most_that_differ(std::string_view name) {
  return name.size() < 3 ? 0 : name.size() < 6 ? 1 : 2;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool is_same = lower(a[i - 1]) == lower(b[j - 1]);
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (is_same ? 0 : 1)});
      const bool is_exchanged =
          i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (is_exchanged) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row.back();
}

std::string similar_name(std::string_view name, std::span<const std::string> known) {
  if (name.size() > kLongestName) return "";
  std::string nearest;
  size_t least = most_that_differ(name) + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() > name.size() + 2 || candidate.size() + 2 < name.size()) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance >= least || distance >= candidate.size()) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::string nearest = similar_name(name, known);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace ramify::signal
