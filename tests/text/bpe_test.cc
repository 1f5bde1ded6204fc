#include "text/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ramify::text {
namespace {

using Ids = std::vector<int32_t>;

Ids merged(const MergeTable& table, const Ids& letters) {
  std::vector<WordMerger::Token> tokens;
  for (size_t i = 0; i < letters.size(); ++i) tokens.push_back({letters[i], {i, i + 1}});
  WordMerger(table).merge(tokens);
  Ids all;
  size_t covered = 0;
  for (const auto& token : tokens) {
    all.push_back(token.id);
    EXPECT_EQ(token.source.begin, covered);
    covered = token.source.end;
  }
  EXPECT_EQ(covered, letters.size());
  return all;
}

// The definition: the earliest merge that fits somewhere, at the leftmost place where it does, over and over.
Ids merged_slowly(const std::vector<Merge>& merges, Ids word) {
  while (true) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank].left == word[i] && merges[rank].right == word[i + 1]) best = rank, place = i;
      }
    }
    if (best == merges.size()) return word;
    word[place] = merges[best].result;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(MergeTable, PairsAreFoundAndTheLastOfTwoCounts) {
  const std::vector<Merge> merges = {{0, 1, 2}, {1, 0, 3}, {0, 1, 4}};
  const MergeTable table(merges);
  ASSERT_NE(table.find(0, 1), nullptr);
  EXPECT_EQ(table.find(0, 1)->rank, 2);
  EXPECT_EQ(table.find(0, 1)->result, 4);
  EXPECT_EQ(table.find(1, 0)->rank, 1);
  EXPECT_EQ(table.find(1, 1), nullptr);
  EXPECT_EQ(MergeTable({}).find(0, 0), nullptr);
}

TEST(WordMerger, EarlierMergesWinAndLeftOnesGoFirst) {
  const std::vector<Merge> merges = {{1, 2, 3}, {0, 1, 4}, {0, 0, 5}, {5, 0, 6}};
  const MergeTable table(merges);
  EXPECT_EQ(merged(table, {0, 1, 2}), (Ids{0, 3}));
  EXPECT_EQ(merged(table, {0, 1, 1}), (Ids{4, 1}));
  EXPECT_EQ(merged(table, {0, 0, 0, 0, 0}), (Ids{5, 6}));  // pairs first, from the left; then a pair with the rest
  EXPECT_EQ(merged(table, {}), Ids{});
  EXPECT_EQ(merged(table, {2}), Ids{2});
}

// Merges of any ids, each of which gives a new one or one that other merges give, too.
RC_GTEST_PROP(WordMerger, DoesWhatTheDefinitionSays, ()) {
  const auto seed = *rc::gen::arbitrary<uint32_t>();
  std::mt19937 random(seed);
  std::vector<Merge> merges;
  int32_t next = 3;
  for (int i = 0; i < 12; ++i) {
    const Merge merge{static_cast<int32_t>(random() % next), static_cast<int32_t>(random() % next), next};
    const bool is_new = std::none_of(merges.begin(), merges.end(), [&](const Merge& other) {
      return other.left == merge.left && other.right == merge.right;
    });
    if (is_new) merges.push_back(merge), ++next;
  }
  std::shuffle(merges.begin(), merges.end(), random);
  const MergeTable table(merges);
  for (int i = 0; i < 100; ++i) {
    Ids word(random() % 30);
    for (int32_t& letter : word) letter = static_cast<int32_t>(random() % 3);
    RC_ASSERT(merged(table, word) == merged_slowly(merges, word));
  }
}

// A word that is looked at anew after every merge would take days.
TEST(WordMerger, MillionLettersAreMerged) {
  std::vector<Merge> merges;
  for (int32_t i = 0; i < 18; ++i) merges.push_back({i, i, i + 1});
  const MergeTable table(merges);
  EXPECT_EQ(merged(table, Ids(1 << 20, 0)), (Ids{18, 18, 18, 18}));
  Ids mixed(1'000'000);
  std::mt19937 random(3);
  for (int32_t& letter : mixed) letter = static_cast<int32_t>(random() % 2);
  EXPECT_LT(merged(table, mixed).size(), mixed.size());
}

}  // namespace
}  // namespace ramify::text
