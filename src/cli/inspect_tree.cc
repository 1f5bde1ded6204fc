#include "inspect_tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "signal/tree_json.h"

namespace ramify::cli {
namespace {

using signal::NodeLabel;
using signal::Signal;

constexpr int32_t kMostChildren = 12;  // of a family, on a terminal
constexpr size_t kDeepest = 24;        // levels

// Letters of UTF-8: bytes that do not continue one.
size_t letters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut(std::string_view text, size_t width) {
  if (letters(text) <= width) return std::string(text);
  size_t end = 0, count = 0;
  while (count < width || (text[end] & 0xC0) == 0x80) count += (text[end++] & 0xC0) != 0x80;
  return std::string(text.substr(0, end)) + "…";
}

std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

class TreeDrawing {
 public:
  TreeDrawing(const Signal& signal, size_t width) : signal_(signal), width_(width), leaves_(leaf_counts(signal)) {
    size_t child = 1;
    for (const int32_t children : signal.children) {
      first_child_.push_back(child);
      child += static_cast<size_t>(children);
    }
  }

  std::string draw() {
    add_node(0, "", "");
    while (!open_.empty()) {
      const Open next = std::move(open_.back());
      open_.pop_back();
      if (next.omitted > 0) {
        add_line(next.indent + "└─ ", fmt::format("… {} more", next.omitted), kNoNode);
      } else {
        add_node(next.node, next.indent + (next.is_last ? "└─ " : "├─ "), next.indent + (next.is_last ? "   " : "│  "));
      }
    }
    return std::move(lines_);
  }

 private:
  static constexpr size_t kNoNode = ~size_t{0};

  struct Open {
    size_t node = 0;
    std::string indent;
    bool is_last = false;
    int32_t omitted = 0;  // stands for so many that are not drawn
  };

  // One line for the node and its only descendants, down to a leaf or to where there are several; then those.
  void add_node(size_t node, const std::string& head, const std::string& indent) {
    std::string text = describe(node);
    while (signal_.children[node] == 1 && !has_children_of(node, "token") && !has_children_of(node, "patch")) {
      node = first_child_[node];
      const bool is_named = signal_.labels[node].label != "0";
      text += " > " + (is_named ? describe(node) : describe_kind(node));
    }
    add_line(head, text, node);
    if (!has_children_of(node, "token") && !has_children_of(node, "patch")) add_children(node, indent);
  }

  // Children are put on the stack from the last.
  void add_children(size_t node, const std::string& indent) {
    const int32_t count = signal_.children[node];
    if (count == 0) return;
    if (indent.size() / 3 >= 2 * kDeepest) {
      open_.push_back({0, indent, true, count});
      return;
    }
    const int32_t shown = count > kMostChildren ? kMostChildren - 1 : count;
    if (shown < count) open_.push_back({0, indent, true, count - shown});
    for (int32_t c = shown; c-- > 0;) {
      open_.push_back({first_child_[node] + static_cast<size_t>(c), indent, c + 1 == count, 0});
    }
  }

  // Tokens and patches are told in the line of their parent.
  bool has_children_of(size_t node, std::string_view kind) const {
    return signal_.children[node] > 0 && signal_.labels[first_child_[node]].kind == kind;
  }

  std::string describe(size_t node) const {
    const std::string& label = signal_.labels[node].label;
    return label.empty() ? describe_kind(node) : on_one_line(label) + " · " + describe_kind(node);
  }

  std::string describe_kind(size_t node) const {
    const NodeLabel& label = signal_.labels[node];
    std::string text = label.kind;
    if (!label.text.empty()) text += ": " + label.text;
    if (has_children_of(node, "patch")) text += fmt::format(" ({} patches)", signal_.children[node]);
    if (has_children_of(node, "token")) {
      text += ":";
      for (int32_t c = 0; c < signal_.children[node]; ++c) {
        text += (c == 0 ? " " : " | ") + signal_.labels[first_child_[node] + static_cast<size_t>(c)].text;
        if (text.size() > 4 * width_) break;
      }
    }
    return on_one_line(std::move(text));
  }

  void add_line(const std::string& head, const std::string& text, size_t node) {
    const std::string count =
        node == kNoNode || signal_.children[node] == 0 ? "" : fmt::format("  [{}]", leaves_[node]);
    const size_t used = letters(head) + count.size() + 1;
    lines_ += head + cut(text, width_ > used + 8 ? width_ - used : 8) + count + "\n";
  }

  const Signal& signal_;
  size_t width_;
  std::vector<int32_t> leaves_;
  std::vector<size_t> first_child_;
  std::vector<Open> open_;
  std::string lines_;
};

}  // namespace

std::string draw_tree(const Signal& signal, size_t width) {
  return TreeDrawing(signal, width).draw();
}

report::TreeNode tree_for_page(const Signal& signal) {
  return signal::fold_tree<report::TreeNode>(
      signal, [&](size_t node, int64_t leaves, std::vector<report::TreeNode> children) {
        const NodeLabel& label = signal.labels[node];
        return report::TreeNode{label.label, label.kind, label.text, -1, leaves, std::move(children)};
      });
}

}  // namespace ramify::cli
