// Paths as users write them, and the tree of fields.
#include "signal/path.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generators/error_message.h"

namespace ramify::signal {
namespace {

using testing::error_message;

TEST(Path, IsKeysAndItems) {
  EXPECT_EQ(parse_path(""), std::vector<PathStep>{});
  EXPECT_EQ(parse_path("a"), (std::vector<PathStep>{{"a", false}}));
  EXPECT_EQ(parse_path("a.b"), (std::vector<PathStep>{{"a", false}, {"b", false}}));
  EXPECT_EQ(parse_path("a[].b"), (std::vector<PathStep>{{"a", false}, {"", true}, {"b", false}}));
  EXPECT_EQ(parse_path("[].b"), (std::vector<PathStep>{{"", true}, {"b", false}}));
  EXPECT_EQ(parse_path("a[][]"), parse_path("a[]"));  // arrays in arrays share their items
}

TEST(Path, EveryKeyCanBeWritten) {
  for (const std::string key : {"a.b", "[]", "a[0]", "\\", "", "_", "\\_", "é", " "}) {
    const std::vector<PathStep> steps = {{"x", false}, {key, false}, {"", true}, {key, false}};
    EXPECT_EQ(parse_path(write_path(steps)), steps) << key;
  }
}

TEST(Path, SaysWhatIsWrong) {
  for (const std::string path : {".", "a.", ".a", "a..b", "a[0]", "a[", "a]", "a[]b", "a\\"}) {
    EXPECT_NE(error_message([&] { parse_path(path); }).find("expected keys joined by dots"), std::string::npos) << path;
  }
}

TEST(FieldTree, FindsWhatWasAdded) {
  FieldTree tree({}, {});
  const int32_t node = tree.add("a[].b");
  EXPECT_EQ(tree.path(node), "a[].b");
  EXPECT_EQ(tree.find("a[].b"), node);
  EXPECT_EQ(tree.find("a[].c"), FieldTree::kNone);
  EXPECT_EQ(tree.add("a[].b"), node);
  const int32_t items = tree.find("a[]");
  EXPECT_EQ(tree.find_item(items), items);  // an array among them has its items here, too
}

TEST(FieldTree, KeepsOnlyWhatIsAskedFor) {
  FieldTree tree({"a", "b.c"}, {"a.x"});
  EXPECT_EQ(tree.use(0), FieldTree::Use::partly);
  EXPECT_EQ(tree.use(tree.find("a")), FieldTree::Use::kept);
  EXPECT_EQ(tree.use(tree.find("a.x")), FieldTree::Use::left_out);
  EXPECT_EQ(tree.use(tree.add("a.y")), FieldTree::Use::kept);
  EXPECT_EQ(tree.use(tree.find("b")), FieldTree::Use::partly);
  EXPECT_EQ(tree.use(tree.find("b.c")), FieldTree::Use::kept);
  EXPECT_EQ(tree.use(tree.add("b.d")), FieldTree::Use::left_out);
  EXPECT_EQ(tree.use(tree.add("c")), FieldTree::Use::left_out);
}

}  // namespace
}  // namespace ramify::signal
