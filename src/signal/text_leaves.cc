#include "signal/text_leaves.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>

namespace ramify::signal {
namespace {

bool has(const std::vector<TextLevel>& levels, TextLevel level) {
  return std::find(levels.begin(), levels.end(), level) != levels.end();
}

// Some tokenizers count the space before a word as a part of it.
size_t first_letter(const text::Span& token, std::string_view text) {
  const size_t found = text.find_first_not_of(" \t\r\n", token.begin);
  return std::min(found, token.end);
}

}  // namespace

void TextLeaves::reset(const Source& source, Labels labels, SignalBuilder& builder) {
  source_ = source;
  with_labels_ = labels == Labels::all;
  builder_ = &builder;
}

void TextLeaves::add(std::string_view text, const std::vector<TextLevel>& levels) {
  const bool is_paragraph_leaf = source_.level == LeafLevel::paragraph;
  paragraph_ = {.is_used = !is_paragraph_leaf && has(levels, TextLevel::paragraph)};
  sentence_ = {.is_used = source_.level == LeafLevel::token && has(levels, TextLevel::sentence)};
  if (source_.vectors && source_.level == LeafLevel::token) return add_token_vectors(text);
  if (!paragraph_.is_used && !is_paragraph_leaf) return add_sentences(text);
  text::paragraphs(text, paragraphs_);
  int32_t place = 0;
  for (const text::Span& paragraph : paragraphs_) {
    if (is_paragraph_leaf) {
      add_vector(paragraph.of(text), place);
    } else {
      add_sentences(paragraph.of(text));
      close(paragraph_);
    }
    if (builder_->is_truncated()) return;
  }
}

void TextLeaves::add_sentences(std::string_view paragraph) {
  const bool is_sentence_leaf = source_.level == LeafLevel::sentence;
  if (!sentence_.is_used && !is_sentence_leaf) return add_tokens(paragraph);
  text::sentences(paragraph, sentences_);
  sentence_.place = 0;
  int32_t place = 0;
  for (const text::Span& sentence : sentences_) {
    if (is_sentence_leaf) {
      add_vector(sentence.of(paragraph), place);
    } else {
      add_tokens(sentence.of(paragraph));
      close(sentence_);
    }
    if (builder_->is_truncated()) return;
  }
}

// So that a text without end is not tokenised to its end.
std::string_view TextLeaves::cut_to_room(std::string_view text) {
  constexpr size_t kMaxBytesOfToken = 1024;  // on average
  const auto room = static_cast<size_t>(builder_->room());
  if (text.size() / kMaxBytesOfToken <= room) return text;
  builder_->mark_truncated();
  size_t end = (room + 1) * kMaxBytesOfToken;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a letter
  return text.substr(0, end);
}

void TextLeaves::add_tokens(std::string_view sentence) {
  const auto room = static_cast<size_t>(builder_->room());
  sentence = cut_to_room(sentence);
  ids_.clear();
  sources_.clear();
  if (with_labels_) {
    source_.tokenizer->tokenize(sentence, ids_, sources_);
  } else {
    source_.tokenizer->tokenize(sentence, ids_);
  }
  if (ids_.size() > room) {
    builder_->mark_truncated();
    ids_.resize(room);
  }
  if (ids_.empty()) return;
  open(paragraph_, "paragraph");
  open(sentence_, "sentence");
  builder_->add_leaves(source_.modality, ids_);
  if (!with_labels_) return;
  for (size_t i = 0; i < ids_.size(); ++i) {
    builder_->describe({std::to_string(i), "token", std::string(sources_[i].of(sentence))}, ids_.size() - 1 - i);
  }
}

// One leaf, a sentence or a paragraph.
void TextLeaves::add_vector(std::string_view piece, int32_t& place) {
  if (builder_->room() == 0) return builder_->mark_truncated();  // before anything is computed
  source_.vectors->compute(piece, 1, rows_);
  if (rows_.spans.empty()) return;
  open(paragraph_, "paragraph");
  builder_->add_leaf({Domain::sequence, place}, source_.modality, 0);
  builder_->add_values(rows_.values);
  if (with_labels_) {
    builder_->describe({std::to_string(place), std::string(name_of(source_.level)), std::string(piece)});
  }
  ++place;
}

void TextLeaves::add_token_vectors(std::string_view text) {
  if (builder_->room() == 0) return builder_->mark_truncated();
  text = cut_to_room(text);
  source_.vectors->compute(text, builder_->room(), rows_);
  if (rows_.was_cut) builder_->mark_truncated();
  find_parts(text);
  size_t first = 0;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const size_t end = p + 1 < parts_.size() ? parts_[p + 1].begin : std::numeric_limits<size_t>::max();
    size_t last = first;
    while (last < rows_.spans.size() && first_letter(rows_.spans[last], text) < end) ++last;
    if (last > first) add_rows(text, first, last);
    first = last;
    close(sentence_);
    if (!parts_[p].ends_paragraph) continue;
    close(paragraph_);
    sentence_.place = 0;
  }
}

void TextLeaves::find_parts(std::string_view text) {
  parts_.clear();
  paragraphs_.assign(1, {0, text.size()});
  if (paragraph_.is_used) text::paragraphs(text, paragraphs_);
  for (const text::Span& paragraph : paragraphs_) {
    sentences_.assign(1, {0, paragraph.end - paragraph.begin});
    if (sentence_.is_used) text::sentences(paragraph.of(text), sentences_);
    for (const text::Span& sentence : sentences_) parts_.push_back({.begin = paragraph.begin + sentence.begin});
    if (!sentences_.empty()) parts_.back().ends_paragraph = true;
  }
}

void TextLeaves::add_rows(std::string_view text, size_t first, size_t last) {
  open(paragraph_, "paragraph");
  open(sentence_, "sentence");
  const size_t count = last - first, width = rows_.values.size() / rows_.spans.size();
  ids_.assign(count, 0);
  builder_->add_leaves(source_.modality, ids_);
  builder_->add_values(std::span(rows_.values).subspan(first * width, count * width));
  if (!with_labels_) return;
  for (size_t i = 0; i < count; ++i) {
    const std::string word(rows_.spans[first + i].of(text));
    builder_->describe({std::to_string(i), "token", word}, count - 1 - i);
  }
}

void TextLeaves::open(Level& level, std::string_view kind) {
  if (!level.is_used || level.is_open) return;
  builder_->open({Domain::sequence, level.place});
  if (with_labels_) builder_->describe({std::to_string(level.place), std::string(kind), ""});
  level.is_open = true;
  ++level.place;
}

void TextLeaves::close(Level& level) {
  if (!level.is_open) return;
  builder_->close(kEmpty);
  level.is_open = false;
}

}  // namespace ramify::signal
