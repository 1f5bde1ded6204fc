#include "report/token_flow.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "report/html.h"

namespace ramify::report {
namespace {

constexpr std::string_view kSpaceMarks[] = {"\xE2\x96\x81", "\xC4\xA0"};  // of sentencepiece and of byte-level BPE

struct Piece {
  std::string_view text;
  bool has_space = false;  // before it
};

// Whether the tokens of a text say themselves where words begin.
enum class Marks { none, spaces };

std::string_view said(const TreeNode& token) {
  return token.text.empty() ? token.label : token.text;
}

std::string_view space_mark(std::string_view text) {
  for (const std::string_view mark : kSpaceMarks) {
    if (text.starts_with(mark)) return mark;
  }
  return {};
}

bool hugs_left(std::string_view text) {
  constexpr std::string_view closing = ".,;:!?)]}%";
  return text == "n't" || text.starts_with('\'') || text.starts_with("\xE2\x80\x99") ||
         (!text.empty() && closing.find(text[0]) != std::string_view::npos);
}

bool hugs_right(std::string_view text) {
  return text == "(" || text == "[" || text == "{" || text == "$";
}

Piece piece(std::string_view text, std::string_view before, Marks marks) {
  if (marks == Marks::spaces) {
    const std::string_view mark = space_mark(text);
    return {text.substr(mark.size()), !mark.empty()};
  }
  if (text.size() > 2 && text.starts_with("##")) return {text.substr(2), false};
  return {text, !hugs_left(text) && !hugs_right(before)};
}

template <class Range, class Token>
Marks marks_of(const Range& tokens, const Token& token) {
  const bool any = std::any_of(tokens.begin(), tokens.end(),
                               [&](const auto& each) { return !space_mark(said(token(each))).empty(); });
  return any ? Marks::spaces : Marks::none;
}

}  // namespace

std::string token_flow_html(std::span<const TreeNode> tokens, const Shade& shade, size_t max_tokens) {
  const Marks marks = marks_of(tokens, [](const TreeNode& token) -> const TreeNode& { return token; });
  std::string html;
  std::string_view before;
  for (const TreeNode& token : tokens.first(std::min(max_tokens, tokens.size()))) {
    const Piece shown = piece(said(token), before, marks);
    before = shown.text;
    if (shown.has_space && !html.empty()) html += ' ';
    const std::string note = shade.note(token);
    html += note.empty() ? "<span>" : fmt::format("<span class=\"{}\" title=\"{}\">", shade.css_class(token), note);
    html += escape(shown.text, 200) + "</span>";
  }
  if (tokens.size() > max_tokens) {
    html += fmt::format(" <em>and {} more tokens</em>", with_commas(static_cast<int64_t>(tokens.size() - max_tokens)));
  }
  return html;
}

std::string plain_text(std::span<const TreeNode* const> tokens) {
  const Marks marks = marks_of(tokens, [](const TreeNode* token) -> const TreeNode& { return *token; });
  std::string text;
  std::string_view before;
  for (const TreeNode* token : tokens) {
    const Piece shown = piece(said(*token), before, marks);
    before = shown.text;
    if (shown.has_space && !text.empty()) text += ' ';
    text += shown.text;
  }
  return text;
}

}  // namespace ramify::report
