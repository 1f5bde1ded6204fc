// Trees as HTML: what is drawn how, and that no tree is too deep, too wide or too strange.
#include "report/tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "report/html_check.h"
#include "report/page_text.h"

namespace ramify::report {
namespace {

TreeNode token(std::string text, double mass = -1) {
  return {"0", "token", std::move(text), mass, 1, {}};
}

TreeNode node(std::string label, std::string kind, std::vector<TreeNode> children, double mass = -1) {
  int64_t leaves = 0;
  for (const TreeNode& child : children) leaves += child.leaves;
  return {std::move(label), std::move(kind), "", mass, leaves, std::move(children)};
}

TEST(Tree, TextFlowsAndTokensAreShadedByTheirMass) {
  const std::string html =
      tree_html(node("title", "text", {node("0", "sentence", {token("deep", 0.9), token("trees", 0.1)}, 1)}, 1));
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_TRUE(has(html, "title=\"90.00% of the attention, 1.8 times an even share\">deep</span> <span")) << html;
  EXPECT_EQ(count(html, "class=\"row\""), 1U) << "one sentence is one row";
  EXPECT_TRUE(has(html, ">100.0%</span>"));
}

TEST(Tree, EvenAttentionIsEvenlyShadedInAnyLength) {
  for (const int leaves : {2, 200}) {
    std::vector<TreeNode> tokens(leaves, token("x", 1.0 / leaves));
    EXPECT_EQ(count(tree_html(node("", "text", tokens, 1)), "<span class=\"s3\""), static_cast<size_t>(leaves));
  }
}

TEST(Tree, MarksOfTokenizersBecomeSpaces) {
  const auto flow = [](std::vector<std::string> words) {
    std::vector<TreeNode> tokens;
    for (std::string& word : words) tokens.push_back(token(std::move(word)));
    const std::string html = tree_html(node("", "text", tokens));
    std::string text;
    const size_t begin = html.find("dir=\"auto\">") + 11;
    for (size_t at = begin; at < html.find("</span></span>", begin); ++at) {
      if (html[at] == '<')
        at = html.find('>', at);
      else
        text += html[at];
    }
    return text;
  };
  EXPECT_EQ(flow({"we", "do", "n't", "know", "(", "yet", ")", "."}), "we don&#39;t know (yet).");
  EXPECT_EQ(flow({"un", "##fold", "##ing", "it"}), "unfolding it");
  EXPECT_EQ(flow({"▁un", "fold", "▁it", "."}), "unfold it.");
  EXPECT_EQ(flow({"the", "Ġtree"}), "the tree");
}

TEST(Tree, WithoutMassesThereAreNoBarsAndNoLegend) {
  const std::string html = tree_html(node("", "object", {{"year", "number", "1993", -1, 1, {}}, token("a")}));
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_FALSE(has(html, "class=\"share\""));
  EXPECT_FALSE(has(html, "class=\"shades\""));
  EXPECT_TRUE(has(html, "1993"));
}

TEST(Tree, PatchesStandWhereTheirLabelsSay) {
  std::vector<TreeNode> patches;
  for (const char* label : {"0,0", "0,1", "0, 2", "1,0"}) patches.push_back({label, "patch", "", 0.25, 1, {}});
  const std::string html = tree_html(node("photo", "image", patches, 1));
  EXPECT_TRUE(has(html, "--columns:3"));
  EXPECT_TRUE(has(html, "grid-area:2/1"));
  patches.back().label = "99999999999999999999,1";
  EXPECT_TRUE(has(tree_html(node("photo", "image", patches, 1)), "--columns:2")) << "else a square";
}

TEST(Tree, CountsSayOfWhat) {
  const auto sentence = [](const char* label) { return node(label, "sentence", {token("a"), token("b")}); };
  const TreeNode paragraph = node("0", "paragraph", {sentence("0"), sentence("1"), sentence("2")});
  const TreeNode number = {"n", "number", "1", -1, 1, {}};
  const std::string html =
      tree_html(node("", "object",
                     {node("body", "text", {paragraph, paragraph}), node("list", "array", {number, number}),
                      node("bag", "set", {number, number, number}), node("net", "graph", {number, number}),
                      node("odd", "strange", {number, number})}));
  for (const std::string part : {"5 fields", "2 paragraphs", "paragraph 0</bdi>", "3 sentences", ">2 items",
                                 "set, 3 items", "graph, 2 nodes", "strange, 2 parts"}) {
    EXPECT_TRUE(has(html, part)) << part << html;
  }
  EXPECT_FALSE(has(html, " of 2"));
}

TEST(Tree, ChainsOfOnlyChildrenAreOneRow) {
  const TreeNode sentences =
      node("0", "paragraph",
           {node("0", "sentence", {token("a"), token("b")}), node("1", "sentence", {token("c"), token("d")})});
  const TreeNode section = node("0", "object", {node("text", "text", {sentences})});
  const std::string html = tree_html(node("", "object", {node("sections", "array", {section})}));
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(count(html, "class=\"row\""), 3U) << "one for the chain, one a sentence";
  EXPECT_EQ(count(html, "&rsaquo;"), 3U);
  EXPECT_TRUE(has(html, "2 sentences"));
  EXPECT_EQ(count(html, "<details class=\"node\" open>"), 1U);

  TreeNode deep = {"end", "number", "7", 1, 1, {}};
  for (int64_t depth = 0; depth < kMaxTreeDepth; ++depth) deep = node(std::to_string(depth), "array", {deep}, 1);
  const std::string row = tree_html(deep);
  EXPECT_EQ(count(row, "class=\"row\""), 1U);
  EXPECT_TRUE(has(row, "<bdi>1999</bdi>") && has(row, "\xE2\x80\xA6") && has(row, "<bdi>end</bdi>")) << row;
}

TEST(Tree, LabelsStandOnTheirItems) {
  const TreeNode word = node("0", "text", {node("0", "sentence", {token("the", 0)}, 0)}, 0);
  std::vector<TreeNode> words(100, word);
  const TreeNode root = node("", "object", {{"year", "number", "1984", 1, 1, {}}, node("words", "array", words, 0)}, 1);
  const TreeNode& array = root.children[1];
  ItemLabels labels = {{&root, &array}, {}};
  labels.of[&array.children[0]] = {"DET", "DET"};
  labels.of[&array.children[1]] = {"<NOUN>", "DET"};
  labels.of[&array.children[2]] = {"DET", ""};
  const std::string html = tree_html(root, labels);
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(count(html, "<span class=\"item\">"), 3U);
  EXPECT_EQ(count(html, "<span class=\"ok\">"), 1U);
  EXPECT_EQ(count(html, "<span class=\"no\">"), 1U);
  EXPECT_EQ(count(html, "<details class=\"node\" open>"), 2U) << "many items without attention are open, too";
}

TEST(Tree, WhatMattersIsOpen) {
  std::vector<TreeNode> children;
  for (int i = 0; i < 30; ++i) {
    const double mass = i == 29 ? 0.8 : 0.2 / 29;
    std::vector<TreeNode> numbers(3, {"n", "number", "1", mass / 3, 1, {}});
    children.push_back(node("part " + std::to_string(i), "object", numbers, mass));
  }
  const std::string html = tree_html(node("", "object", children, 1));
  EXPECT_EQ(count(html, "<details class=\"node\""), 31U);
  EXPECT_EQ(count(html, "<details class=\"node\" open>"), 2U) << "the record and its last part";
}

TEST(Tree, DeepTreesAreDrawnFlatBelowADepth) {
  TreeNode root = token("end", 1);
  for (int64_t depth = 0; depth < kMaxTreeDepth; ++depth) {
    std::vector<TreeNode> children;
    children.push_back(std::move(root));
    children.push_back({"1", "number", "7", 0, 1, {}});
    root = TreeNode{std::to_string(depth), "array", "", 1, depth + 2, std::move(children)};
  }
  const HtmlCheck check(tree_html(root));
  EXPECT_EQ(check.error(), "");
  EXPECT_LT(check.depth(), 200U) << "browsers stop at 512";
  EXPECT_TRUE(has(tree_html(root), "depth 1999"));
}

TEST(Tree, WideTreesAreCutAndCounted) {
  std::vector<TreeNode> children(30000, {"n", "number", "1", -1, 1, {}});
  const std::string numbers = tree_html(node("", "array", children));
  EXPECT_EQ(HtmlCheck(numbers).error(), "");
  EXPECT_TRUE(has(numbers, "and 10,001 more</p>"));
  const std::string tokens = tree_html(node("", "text", std::vector<TreeNode>(30000, token("x"))));
  EXPECT_TRUE(has(tokens, "and 10,001 more tokens"));
  const std::string patches =
      tree_html(node("", "image", std::vector<TreeNode>(100000, TreeNode{"", "patch", "", -1, 1, {}})));
  EXPECT_EQ(HtmlCheck(patches).error(), "");
  EXPECT_LT(patches.size(), 8U << 20);
}

TEST(Tree, EscapesEverything) {
  for (const std::string& text : hostile_texts()) {
    std::vector<TreeNode> leaves = {{text, text, text, 0.1, 1, {}},
                                    {text, "number", text, 0.1, 1, {}},
                                    {text, "empty", text, 0.1, 1, {}},
                                    node(text, "text", {token(text, 0.1), token("##" + text, 0.1)}, 0.2),
                                    node(text, "image", {{text, "patch", text, 0.1, 1, {}}}, 0.2),
                                    node(text, text, {token(text, 0.1), {text, "set", "", 0.1, 0, {}}}, 0.3)};
    const Table table = {text, {{text}}, {{text}}};
    const std::string html = tree_page(text, std::span(&table, 1), node(text, text, leaves, 1));
    EXPECT_EQ(HtmlCheck(html).error(), "") << text.substr(0, 50);
    EXPECT_EQ(HtmlCheck(html).count("script"), 1);
  }
}

RC_GTEST_PROP(TreeLaws, AnyTreeIsWellFormed, ()) {
  static const std::vector<std::string> kinds = {"object", "array",  "text",  "paragraph", "sentence",
                                                 "token",  "number", "image", "patch",     "odd"};
  const auto draw = [](const std::string& label) {
    return TreeNode{label,
                    *rc::gen::elementOf(kinds),
                    *rc::gen::arbitrary<std::string>(),
                    *rc::gen::element(-1.0, 0.0, 0.5, 1.0),
                    *rc::gen::inRange<int64_t>(0, 9),
                    {}};
  };
  TreeNode root = draw("root");
  std::vector<TreeNode*> nodes = {&root};
  for (int level = 0; level < 4; ++level) {
    std::vector<TreeNode*> next;
    for (TreeNode* parent : nodes) {
      const int children = *rc::gen::inRange(0, 4);
      for (int i = 0; i < children; ++i) parent->children.push_back(draw(std::to_string(i)));
      for (TreeNode& child : parent->children) next.push_back(&child);
    }
    nodes = next;
  }
  RC_ASSERT(HtmlCheck(tree_html(root)).error() == "");
}

}  // namespace
}  // namespace ramify::report
