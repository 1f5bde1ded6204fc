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
constexpr size_t kMaxChain = 6;  // labels of a chain in one row

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

// The last of a chain of only children; what it has is what each of them has.
const TreeNode& chain_end(const TreeNode& node) {
  const TreeNode* end = &node;
  while (end->children.size() == 1 && is_folded(*end)) end = &end->children[0];
  return *end;
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
  const TreeNode& top = chain_end(root);
  candidates.push({1, 0, &top});
  int64_t number = 0;
  int64_t rows = 1;
  while (!candidates.empty()) {
    const TreeNode& node = *candidates.top().node;
    const double weight = candidates.top().weight;
    candidates.pop();
    const auto children = std::ssize(node.children);
    if (&node != &top && rows + children > kOpenRows) continue;
    open.insert(&node);
    rows += children;
    for (const TreeNode& child : node.children) {
      const TreeNode& end = chain_end(child);
      if (!is_folded(end) || (child.mass >= 0 && child.mass < kOpenMass)) continue;
      candidates.push({child.mass >= 0 ? child.mass : weight - 1, ++number, &end});
    }
  }
  return open;
}

// How many children of which sort: "9 fields", "1 sentence".
std::string count_of_children(const TreeNode& node) {
  struct Sort {
    std::string_view kind, one, many;
  };
  static constexpr Sort kOfParents[] = {
      {"object", "field", "fields"}, {"array", "item", "items"}, {"set", "item", "items"}, {"graph", "node", "nodes"}};
  static constexpr Sort kOfChildren[] = {{"paragraph", "paragraph", "paragraphs"},
                                         {"sentence", "sentence", "sentences"},
                                         {"token", "token", "tokens"},
                                         {"patch", "patch", "patches"}};
  Sort sort = {"", "part", "parts"};
  for (const Sort& each : kOfChildren) {
    const auto is_such = [&](const TreeNode& child) { return child.kind == each.kind; };
    if (std::all_of(node.children.begin(), node.children.end(), is_such)) sort = each;
  }
  for (const Sort& each : kOfParents) {
    if (node.kind == each.kind) sort = each;
  }
  return with_commas(std::ssize(node.children)) + " " + std::string(node.children.size() == 1 ? sort.one : sort.many);
}

// What the count alone does not say: "9 fields" are of an object, but a set has items as an array has.
std::string kind_before_count(const TreeNode& node) {
  for (const char* known : {"object", "array", "text", "paragraph", "sentence", "image"}) {
    if (node.kind == known) return "";
  }
  return escape(node.kind, 40) + ", ";
}

class TreeWriter {
 public:
  TreeWriter(const TreeNode& root, const ItemLabels& labels)
      : labels_(labels), shade_(root.leaves), open_(choose_open(root)) {
    for (const TreeNode* node : labels.path) open_.insert(&chain_end(*node));
    write(root);
  }

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
  void begin(const TreeNode& first) {
    ++drawn_;
    const TreeNode& node = chain_end(first);
    const std::string names = chain_names(first, node);
    const std::string after = item_label(first, node) + share(node);
    if (!is_folded(node)) {
      html_ += "<div class=\"row\">" + content(node, names) + after + "</div>";
      return;
    }
    const auto depth = std::ssize(frames_);
    frames_.push_back({&node});
    const std::string row = summary(node, names, depth) + after;
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

  // Parts of texts have no names of their own; one that is folded is told by its kind.
  static std::string name(const TreeNode& node) {
    const bool is_part = node.kind == "paragraph" || node.kind == "sentence";
    if (is_part) return is_folded(node) ? isolated(node.kind + " " + node.label, 200) : "";
    if (node.label.empty()) return node.kind == "object" ? "record" : "";
    return isolated(node.label, 200);
  }

  // The labels from one node down to another, "sections > 0 > text". Of long chains the ends.
  static std::string chain_names(const TreeNode& first, const TreeNode& last) {
    std::vector<std::string> names;
    for (const TreeNode* node = &first;; node = &node->children[0]) {
      const bool is_inside_text = node != &first && (node->kind == "paragraph" || node->kind == "sentence");
      std::string own = is_inside_text ? "" : name(*node);
      if (!own.empty()) names.push_back(std::move(own));
      if (node == &last) break;
    }
    if (names.size() > kMaxChain) {
      names.erase(names.begin() + kMaxChain / 2, names.end() - kMaxChain / 2);
      names.insert(names.begin() + kMaxChain / 2, "\xE2\x80\xA6");
    }
    std::string html;
    for (const std::string& each : names) {
      html += (html.empty() ? "" : " <span class=\"soft\">&rsaquo;</span> ") + each;
    }
    return html.empty() ? "" : "<b class=\"label\">" + html + "</b> ";
  }

  // Prediction and truth of a node of the chain.
  std::string item_label(const TreeNode& first, const TreeNode& last) const {
    for (const TreeNode* node = &first;; node = &node->children[0]) {
      if (const auto found = labels_.of.find(node); found != labels_.of.end()) return item_label_html(found->second);
      if (node == &last) return "";
    }
  }

  static std::string item_label_html(const ItemLabel& label) {
    const std::string prediction = isolated(label.prediction, 80);
    if (label.is_wrong()) {
      return "<span class=\"item\"><span class=\"no\">&#10007;</span> <b>" + prediction +
             "</b> <span class=\"soft\">truth</span> " + isolated(label.truth, 80) + "</span>";
    }
    const char* mark = label.truth.empty() ? "" : "<span class=\"ok\">&#10003;</span> ";
    return "<span class=\"item\">" + (mark + prediction) + "</span>";
  }

  // The row of a node that can be folded.
  static std::string summary(const TreeNode& node, const std::string& names, int64_t depth) {
    std::string html = "<span class=\"what\">" + names + "<span class=\"meta\">" + kind_before_count(node);
    html += count_of_children(node);
    if (node.leaves > std::ssize(node.children)) html += fmt::format(", {} leaves", with_commas(node.leaves));
    if (depth >= kMaxNesting) html += fmt::format(", depth {}", depth);
    return html + "</span><span class=\"preview\">" + isolated(preview(node), 120) + "</span></span>";
  }

  // The row of a node that is drawn whole.
  std::string content(const TreeNode& node, const std::string& names) {
    std::string html = "<span class=\"what\">" + names;
    if (const TreeNode* run = text_run(node)) {
      const auto room = static_cast<size_t>(std::max<int64_t>(kMaxNodes - drawn_, 1));
      drawn_ += std::min(std::ssize(run->children), kMaxNodes);
      return html + "<span class=\"flow\" dir=\"auto\">" + token_flow_html(run->children, shade_, room) +
             "</span></span>";
    }
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

  const ItemLabels& labels_;
  Shade shade_;
  std::unordered_set<const TreeNode*> open_;
  std::vector<Frame> frames_;
  std::string html_;
  int64_t drawn_ = 0;
};

}  // namespace

std::string tree_html(const TreeNode& root, const ItemLabels& labels) {
  std::string html = "<div class=\"tree\"><div class=\"tools\">";
  if (is_folded(chain_end(root))) {
    html +=
        "<button type=\"button\" data-fold=\"open\">Open all</button>"
        "<button type=\"button\" data-fold=\"close\">Close all</button>";
  }
  if (root.mass >= 0) html += Shade::legend_html();
  return html + "</div>\n" + TreeWriter(root, labels).take() + "</div>\n";
}

std::string tree_page(const std::string& title, std::span<const Table> tables, const TreeNode& root) {
  std::string body = "<header><h1>" + isolated(title, 300) + "</h1></header>\n<section>\n";
  for (const Table& table : tables) body += table_html(table);
  return page_html(title, body + "</section>\n<section>\n" + tree_html(root) + "</section>\n");
}

}  // namespace ramify::report
