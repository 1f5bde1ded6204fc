// Trees over the tokens of texts: windows, sentences, paragraphs.
#include "models/text_hierarchy.h"

#include <gtest/gtest.h>

#include "generators/error_message.h"
#include "ramify/builders.h"

namespace ramify::models {
namespace {

using testing::error_message;

// Nested brackets of leaf numbers: "((0 1) (2 3 4))".
std::string drawn(const Forest& forest, int64_t node) {
  if (forest.is_leaf(node)) return std::to_string(forest.first_leaf()[node]);
  std::string text = "(";
  for (int64_t child = forest.first_child()[node]; child < forest.first_child()[node + 1]; ++child) {
    text += (text.size() > 1 ? " " : "") + drawn(forest, child);
  }
  return text + ")";
}

std::string drawn(const std::string& hierarchy, const std::vector<TextStructure>& texts) {
  const Forest forest = TextHierarchy::parse(hierarchy).build(texts);
  std::string text;
  for (int64_t tree = 0; tree < forest.num_trees(); ++tree) {
    if (forest.tree_begin()[tree] == forest.tree_begin()[tree + 1]) {
      text += "[]";
    } else {
      text += drawn(forest, forest.tree_begin()[tree]);
    }
  }
  return text;
}

const TextStructure kText{.tokens = 8, .sentences = {0, 3, 5}, .paragraphs = {0, 5}};

TEST(TextHierarchy, NodesThatStandAloneAreTrees) {
  EXPECT_EQ(drawn("3,alone", {kText}), "(0 1 2)(3 4 5)(6 7)");
  EXPECT_EQ(drawn("2,2,alone", {kText, {}, {.tokens = 1}}), "((0 1) (2 3))((4 5) (6 7))((8))");
  EXPECT_EQ(drawn("2,sentences,alone", {kText}), "((0 1) (2))((3 4))((5 6) (7))");
  EXPECT_EQ(TextHierarchy::parse("2,sentences,alone").text(), "2,sentences,alone");
  for (const char* wrong : {"alone", "alone,2", "2,alone,3", "2*,alone", "2,alone,alone"}) {
    EXPECT_NE(error_message([&] { TextHierarchy::parse(wrong); }).find("alone"), std::string::npos) << wrong;
  }
}

TEST(TextHierarchy, WindowsAreThoseOfTheBuilders) {
  EXPECT_EQ(drawn("2,2", {kText}), "(((0 1) (2 3)) ((4 5) (6 7)))");
  const std::vector<int64_t> lengths = {8};
  EXPECT_TRUE(std::ranges::equal(TextHierarchy::parse("3*").build(std::vector{kText}).first_child(),
                                 windows(lengths, Branching::parse("3*")).first_child()));
}

TEST(TextHierarchy, SentencesAndParagraphsFollowTheText) {
  EXPECT_EQ(drawn("sentences", {kText}), "((0 1 2) (3 4) (5 6 7))");
  EXPECT_EQ(drawn("sentences,paragraphs", {kText}), "(((0 1 2) (3 4)) ((5 6 7)))");
  EXPECT_EQ(drawn("paragraphs", {kText}), "((0 1 2 3 4) (5 6 7))");
}

TEST(TextHierarchy, WindowsDoNotCrossTheSegmentsAboveThem) {
  EXPECT_EQ(drawn("2,sentences", {kText}), "(((0 1) (2)) ((3 4)) ((5 6) (7)))");
  EXPECT_EQ(drawn("sentences,2", {kText}), "(((0 1 2) (3 4)) ((5 6 7)))");
  EXPECT_EQ(drawn("2*,paragraphs", {kText}), "(((((0 1) (2 3)) ((4)))) ((((5 6) (7)))))");
}

TEST(TextHierarchy, TextsOfABatchAreTreesOfTheirOwn) {
  const TextStructure empty, one{.tokens = 1, .sentences = {0}, .paragraphs = {0}};
  EXPECT_EQ(drawn("sentences", {one, empty, kText}), "((0))[]((1 2 3) (4 5) (6 7 8))");
  const Forest forest = TextHierarchy::parse("sentences").build(std::vector{one, empty, kText});
  EXPECT_EQ(forest.num_trees(), 3);
  EXPECT_EQ(forest.tree_leaf_begin(), (std::vector<int64_t>{0, 1, 1, 9}));
}

TEST(TextHierarchy, IsWrittenAsItIsRead) {
  for (const char* text : {"2,4,8,16", "16*", "4,16*", "sentences", "8,sentences,4*,paragraphs,2"}) {
    EXPECT_EQ(TextHierarchy::parse(text).text(), text);
  }
}

TEST(TextHierarchy, WhatIsNoHierarchyIsRefused) {
  EXPECT_EQ(error_message([] { TextHierarchy::parse("2,words"); }),
            "hierarchy: 'words' in '2,words' is no level; expected sizes of windows from the bottom up (2,4,8,16 or "
            "16*), sentences, paragraphs, alone");
  EXPECT_EQ(error_message([] { TextHierarchy::parse("paragraphs,sentences"); }),
            "hierarchy: paragraphs hold sentences; write sentences before paragraphs in 'paragraphs,sentences'");
  EXPECT_EQ(error_message([] { TextHierarchy::parse("sentences,sentences"); }),
            "hierarchy: 'sentences,sentences' names a level twice");
  EXPECT_NE(error_message([] { TextHierarchy::parse("4*,2,sentences"); }), "");
  for (const char* text :
       {"", ",", "2,", "0", "-1", "2.5", "sentences,0", "1*,sentences", "sentences,1*", "99999999999999999999"}) {
    EXPECT_NE(error_message([&] { TextHierarchy::parse(text); }), "") << text;
  }
}

}  // namespace
}  // namespace ramify::models
