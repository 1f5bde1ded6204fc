#include "models/text_hierarchy.h"

#include <algorithm>
#include <stdexcept>

#include "ramify/builders.h"

namespace ramify::models {
namespace {

using Kind = TextHierarchy::Kind;

// Groups of groups of tokens, from the bottom up, over all texts at once.
class LevelBuilder {
 public:
  explicit LevelBuilder(std::span<const TextStructure> texts) : texts_(texts) {
    int64_t first = 0;
    for (const TextStructure& text : texts) {
      text_begin_.push_back(first);
      for (int64_t i = 0; i < text.tokens; ++i) groups_.push_back(first + i);
      first += text.tokens;
    }
    text_begin_.push_back(first);
  }

  // One group a segment that begins at `begins`.
  void add_segments(std::span<const int64_t> begins) { add_level(begins, static_cast<int64_t>(groups_.size())); }

  // At most `size` to a group, none across `barriers`.
  void add_windows(int64_t size, bool repeat, std::span<const int64_t> barriers) {
    do {
      add_level(barriers, size);
    } while (repeat && groups_.size() > barriers.size());
  }

  // Where the segments of a kind begin, in tokens over all texts; windows: where texts begin.
  std::vector<int64_t> begins(Kind kind) const {
    std::vector<int64_t> begins;
    for (size_t t = 0; t < texts_.size(); ++t) {
      if (texts_[t].tokens == 0) continue;
      begins.push_back(text_begin_[t]);
      if (kind == Kind::window) continue;
      for (const int64_t begin : kind == Kind::sentences ? texts_[t].sentences : texts_[t].paragraphs) {
        if (begin > 0 && begin < texts_[t].tokens) begins.push_back(text_begin_[t] + begin);
      }
    }
    return begins;
  }

  // A tree a text, or a tree a group.
  Forest finish(bool alone) {
    if (alone) return from_segments(levels_);
    std::vector<int64_t> trees;
    size_t next = 0;
    for (size_t t = 0; t < texts_.size(); ++t) {
      const size_t first = next;
      while (next < groups_.size() && groups_[next] < text_begin_[t + 1]) ++next;
      trees.push_back(static_cast<int64_t>(next - first));
    }
    levels_.push_back(std::move(trees));
    return from_segments(levels_);
  }

 private:
  void add_level(std::span<const int64_t> barriers, int64_t size) {
    std::vector<int64_t> counts, starts;
    size_t barrier = 0;
    for (const int64_t start : groups_) {
      while (barrier < barriers.size() && barriers[barrier] < start) ++barrier;
      const bool at_barrier = barrier < barriers.size() && barriers[barrier] == start;
      if (counts.empty() || at_barrier || counts.back() == size) {
        counts.push_back(0);
        starts.push_back(start);
      }
      ++counts.back();
    }
    levels_.push_back(std::move(counts));
    groups_ = std::move(starts);
  }

  std::span<const TextStructure> texts_;
  std::vector<int64_t> text_begin_;
  std::vector<int64_t> groups_;  // the first token of each
  std::vector<std::vector<int64_t>> levels_;
};

Branching branching_of(const TextHierarchy& hierarchy) {
  Branching branching;
  for (const TextHierarchy::Level& level : hierarchy.levels) branching.sizes.push_back(level.size);
  branching.repeat_last = hierarchy.levels.back().repeat;
  return branching;
}

TextHierarchy::Level parse_level(std::string_view word, std::string_view text) {
  if (word == "sentences") return {.kind = Kind::sentences};
  if (word == "paragraphs") return {.kind = Kind::paragraphs};
  if (word == "alone") return {.kind = Kind::alone};
  try {
    const Branching window = Branching::parse(word);
    if (window.sizes.size() == 1) return {.size = window.sizes[0], .repeat = window.repeat_last};
  } catch (const std::invalid_argument&) {
  }
  throw std::invalid_argument("hierarchy: '" + std::string(word) + "' in '" + std::string(text) +
                              "' is no level; expected sizes of windows from the bottom up (2,4,8,16 or 16*), "
                              "sentences, paragraphs, alone");
}

}  // namespace

TextHierarchy TextHierarchy::parse(std::string_view text) {
  TextHierarchy hierarchy;
  const auto position = [&](Kind kind) { return std::ranges::find(hierarchy.levels, kind, &Level::kind); };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const Level level = parse_level(text.substr(begin, end - begin), text);
    if (level.repeat && level.size < 2) {
      throw std::invalid_argument("hierarchy: '" + std::string(text) +
                                  "' has a star behind 1, which never ends; expected at least 2");
    }
    if (level.kind != Kind::window && position(level.kind) != hierarchy.levels.end()) {
      throw std::invalid_argument("hierarchy: '" + std::string(text) + "' names a level twice");
    }
    if (position(Kind::alone) != hierarchy.levels.end() || (level.kind == Kind::alone && hierarchy.levels.empty()) ||
        (level.kind == Kind::alone && hierarchy.levels.back().repeat)) {
      throw std::invalid_argument(
          "hierarchy: in '" + std::string(text) +
          "' alone is out of place; expected it once, behind the last level, which has no star");
    }
    if (level.kind == Kind::sentences && position(Kind::paragraphs) != hierarchy.levels.end()) {
      throw std::invalid_argument("hierarchy: paragraphs hold sentences; write sentences before paragraphs in '" +
                                  std::string(text) + "'");
    }
    if (level.kind == Kind::window && !hierarchy.levels.empty() && hierarchy.levels.back().repeat) {
      throw std::invalid_argument("hierarchy: in '" + std::string(text) +
                                  "' a window follows one with a star, which leaves nothing to group");
    }
    hierarchy.levels.push_back(level);
    begin = end + 1;
  }
  if (!hierarchy.follows_text() && !hierarchy.stands_alone()) Branching::parse(text);  // for its checks
  return hierarchy;
}

std::string TextHierarchy::text() const {
  std::string text;
  for (const Level& level : levels) {
    if (!text.empty()) text += ",";
    text += level.kind == Kind::sentences    ? "sentences"
            : level.kind == Kind::paragraphs ? "paragraphs"
            : level.kind == Kind::alone      ? "alone"
                                             : std::to_string(level.size) + (level.repeat ? "*" : "");
  }
  return text;
}

bool TextHierarchy::follows_text() const {
  const auto is_of_text = [](const Level& level) {
    return level.kind == Kind::sentences || level.kind == Kind::paragraphs;
  };
  return std::ranges::any_of(levels, is_of_text);
}

bool TextHierarchy::stands_alone() const {
  return !levels.empty() && levels.back().kind == Kind::alone;
}

Forest TextHierarchy::build(std::span<const TextStructure> texts) const {
  if (!follows_text() && !stands_alone()) {
    std::vector<int64_t> lengths;
    for (const TextStructure& text : texts) lengths.push_back(text.tokens);
    return windows(lengths, branching_of(*this));
  }
  LevelBuilder builder(texts);
  for (size_t l = 0; l < levels.size() - (stands_alone() ? 1 : 0); ++l) {
    if (levels[l].kind != Kind::window) {
      builder.add_segments(builder.begins(levels[l].kind));
      continue;
    }
    const auto above = std::find_if(levels.begin() + static_cast<int64_t>(l), levels.end(),
                                    [](const Level& level) { return level.kind != Kind::window; });
    const bool has_segments = above != levels.end() && above->kind != Kind::alone;
    builder.add_windows(levels[l].size, levels[l].repeat, builder.begins(has_segments ? above->kind : Kind::window));
  }
  return builder.finish(stands_alone());
}

}  // namespace ramify::models
