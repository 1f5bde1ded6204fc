#include "report/tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <queue>
#include <string_view>
#include <unordered_set>

#include "report/html.h"
#include "report/page.h"
#include "report/patch_grid.h"
#include "report/shade.h"
#include "report/token_flow.h"

namespace ramify::report {
namespace {

constexpr int64_t kMaxNodes = 20000;  // drawn of one tree
constexpr int64_t kOpenRows = 40;     // seen without a click
constexpr double kOpenMass = 0.02;    // less is not worth a row of its own
constexpr int64_t kMaxNesting = 60;   // elements in elements; browsers stop at some hundreds
constexpr size_t kPreviewTokens = 16;

bool are_leaves_of(const TreeNode& node, std::string_view kind) {
  const auto is_such_leaf = [&](const TreeNode& child) { return child.children.empty() && child.kind == kind; };
  return !node.children.empty() && std::all_of(node.children.begin(), node.children.end(), is_such_leaf);
}

bool is_text_level(const TreeNode& node) {
  return node.kind == "text" || node.kind == "paragraph" || node.kind == "sentence";
}

// The node whose children are the tokens, where all of `node` is one run of text: a title of one sentence in one
// paragraph is drawn as one row. Null: it is not.
const TreeNode* text_run(const TreeNode& node) {
  const TreeNode* run = &node;
  while (run->children.size() == 1 && is_text_level(*run) && !are_leaves_of(*run, "token")) run = &run->children[0];
  return are_leaves_of(*run, "token") ? run : nullptr;
}

bool is_folded(const TreeNode& node) {
  return !node.children.empty() && !text_run(node) && !are_leaves_of(node, "patch");
}

// The nodes to show open: from the root the ones with most mass (without masses, the upper ones), as long as the rows
// fit a screen or so.
std::unordered_set<const TreeNode*> choose_open(const TreeNode& root) {
  struct Candidate {
    double weight;
    int64_t number;
    const TreeNode* node;
    bool operator<(const Candidate& other) const {
      return weight != other.weight ? weight < other.weight : number > other.number;
    }
  };
  std::unordered_set<const TreeNode*> open;
  std::priority_queue<Candidate> candidates;
  candidates.push({1, 0, &root});
  int64_t number = 0;
  int64_t rows = 1;
  while (!candidates.empty()) {
    const TreeNode& node = *candidates.top().node;
    const double weight = candidates.top().weight;
    candidates.pop();
    const auto children = std::ssize(node.children);
    if (&node != &root && rows + children > kOpenRows) continue;
    open.insert(&node);
    rows += children;
    for (const TreeNode& child : node.children) {
      if (!is_folded(child) || (child.mass >= 0 && child.mass < kOpenMass)) continue;
      candidates.push({child.mass >= 0 ? child.mass : weight - 1, ++number, &child});
    }
  }
  return open;
}

class TreeWriter {
 public:
  explicit TreeWriter(const TreeNode& root) : shade_(root.leaves), open_(choose_open(root)) { write(root); }

  std::string take() { return std::move(html_); }

 private:
  struct Frame {
    const TreeNode* node;
    size_t next = 0;
  };

  void write(const TreeNode& root) {
    begin(root);
    while (!frames_.empty()) {
      Frame& top = frames_.back();
      const auto left = std::ssize(top.node->children) - static_cast<int64_t>(top.next);
      if (left == 0 || drawn_ >= kMaxNodes) {
        if (left > 0) html_ += fmt::format("<p class=\"more\">and {} more</p>", with_commas(left));
        end();
      } else {
        begin(top.node->children[top.next++]);
      }
    }
  }

  // Draws a row; a folded node stays on the stack until its children are drawn. Below kMaxNesting the children follow
  // as rows of the same element.
  void begin(const TreeNode& node) {
    ++drawn_;
    if (!is_folded(node)) {
      html_ += "<div class=\"row\">" + content(node) + share(node) + "</div>";
      return;
    }
    const auto depth = std::ssize(frames_);
    frames_.push_back({&node});
    const std::string row = summary(node, depth) + share(node);
    if (depth >= kMaxNesting) {
      html_ += "<div class=\"row\">" + row + "</div>";
      return;
    }
    const char* indent = depth < 8 ? "kids" : depth < 20 ? "kids deep" : "kids deeper";
    html_ += fmt::format("<details class=\"node\"{}><summary class=\"row\">{}</summary><div class=\"{}\">",
                         open_.contains(&node) ? " open" : "", row, indent);
  }

  void end() {
    frames_.pop_back();
    if (std::ssize(frames_) < kMaxNesting) html_ += "</div></details>\n";
  }

  static std::string label(const TreeNode& node) {
    if (node.label.empty()) return node.kind == "object" ? "<b class=\"label\">record</b> " : "";
    return "<b class=\"label\">" + isolated(node.label, 200) + "</b> ";
  }

  // The row of a node that can be folded.
  static std::string summary(const TreeNode& node, int64_t depth) {
    std::string html = "<span class=\"what\">" + label(node) + "<span class=\"meta\">" + escape(node.kind, 40);
    html += fmt::format(" of {}", with_commas(std::ssize(node.children)));
    if (node.leaves > std::ssize(node.children)) html += fmt::format(", {} leaves", with_commas(node.leaves));
    if (depth >= kMaxNesting) html += fmt::format(", depth {}", depth);
    return html + "</span><span class=\"preview\">" + isolated(preview(node), 120) + "</span></span>";
  }

  // The row of a node that is drawn whole.
  std::string content(const TreeNode& node) {
    std::string html = "<span class=\"what\">";
    if (const TreeNode* run = text_run(node)) {
      const auto room = static_cast<size_t>(std::max<int64_t>(kMaxNodes - drawn_, 1));
      drawn_ += std::min(std::ssize(run->children), kMaxNodes);
      if (node.kind != "sentence" && node.kind != "paragraph") html += label(node);
      return html + "<span class=\"flow\" dir=\"auto\">" + token_flow_html(run->children, shade_, room) +
             "</span></span>";
    }
    html += label(node);
    if (!node.children.empty()) return html + patch_grid_html(node.children, shade_) + "</span>";
    if (node.kind == "empty") return html + "<span class=\"meta\">empty</span></span>";
    if (!node.text.empty()) html += "<span class=\"value\">" + isolated(node.text, 600) + "</span> ";
    return html + "<span class=\"meta\">" + escape(node.kind, 40) + "</span></span>";
  }

  std::string share(const TreeNode& node) const {
    if (node.mass < 0) return "";
    const double width = 100 * std::clamp(node.mass, 0.0, 1.0);
    return fmt::format(
        "<span class=\"share\" title=\"{}\"><span class=\"track\"><i style=\"width:{:.1f}%\"></i>"
        "<u style=\"left:{:.1f}%\"></u></span><span class=\"percent\">{}</span></span>",
        shade_.note(node), width, 100 * shade_.even_share(node), percent(node.mass));
  }

  // The first tokens below a node.
  static std::string preview(const TreeNode& node) {
    std::vector<const TreeNode*> tokens;
    std::vector<const TreeNode*> stack = {&node};
    for (int visits = 0; visits < 200 && !stack.empty() && tokens.size() < kPreviewTokens; ++visits) {
      const TreeNode* top = stack.back();
      stack.pop_back();
      if (top->kind == "token") tokens.push_back(top);
      const size_t children = std::min(top->children.size(), kPreviewTokens);
      for (size_t i = children; i-- > 0;) stack.push_back(&top->children[i]);
    }
    return plain_text(tokens);
  }

  Shade shade_;
  std::unordered_set<const TreeNode*> open_;
  std::vector<Frame> frames_;
  std::string html_;
  int64_t drawn_ = 0;
};

}  // namespace

std::string tree_html(const TreeNode& root) {
  std::string html = "<div class=\"tree\"><div class=\"tools\">";
  if (is_folded(root)) {
    html +=
        "<button type=\"button\" data-fold=\"open\">Open all</button>"
        "<button type=\"button\" data-fold=\"close\">Close all</button>";
  }
  if (root.mass >= 0) html += Shade::legend_html();
  return html + "</div>\n" + TreeWriter(root).take() + "</div>\n";
}

std::string tree_page(const std::string& title, std::span<const Table> tables, const TreeNode& root) {
  std::string body = "<header><h1>" + isolated(title, 300) + "</h1></header>\n<section>\n";
  for (const Table& table : tables) body += table_html(table);
  return page_html(title, body + "</section>\n<section>\n" + tree_html(root) + "</section>\n");
}

}  // namespace ramify::report
