#include "signal/text_leaves.h"

#include <algorithm>
#include <string>

namespace ramify::signal {
namespace {

bool has(const std::vector<TextLevel>& levels, TextLevel level) {
  return std::find(levels.begin(), levels.end(), level) != levels.end();
}

}  // namespace

void TextLeaves::reset(const text::Tokenizer& tokenizer, uint8_t modality, Labels labels, SignalBuilder& builder) {
  tokenizer_ = &tokenizer;
  modality_ = modality;
  with_labels_ = labels == Labels::all;
  builder_ = &builder;
}

void TextLeaves::add(std::string_view text, const std::vector<TextLevel>& levels) {
  paragraph_ = {.is_used = has(levels, TextLevel::paragraph)};
  sentence_ = {.is_used = has(levels, TextLevel::sentence)};
  if (!paragraph_.is_used) return add_sentences(text);
  text::paragraphs(text, paragraphs_);
  for (const text::Span& paragraph : paragraphs_) {
    add_sentences(paragraph.of(text));
    close(paragraph_);
    if (builder_->is_truncated()) return;
  }
}

void TextLeaves::add_sentences(std::string_view paragraph) {
  if (!sentence_.is_used) return add_tokens(paragraph);
  text::sentences(paragraph, sentences_);
  sentence_.place = 0;
  for (const text::Span& sentence : sentences_) {
    add_tokens(sentence.of(paragraph));
    close(sentence_);
    if (builder_->is_truncated()) return;
  }
}

void TextLeaves::add_tokens(std::string_view sentence) {
  constexpr size_t kMaxBytesOfToken = 1024;  // on average: so that a text without end is not tokenised to its end
  const auto room = static_cast<size_t>(builder_->room());
  if (sentence.size() / kMaxBytesOfToken > room) {
    builder_->mark_truncated();
    size_t end = (room + 1) * kMaxBytesOfToken;
    while (end > 0 && (static_cast<unsigned char>(sentence[end]) & 0xC0) == 0x80) --end;  // not inside a letter
    sentence = sentence.substr(0, end);
  }
  ids_.clear();
  sources_.clear();
  if (with_labels_) {
    tokenizer_->tokenize(sentence, ids_, sources_);
  } else {
    tokenizer_->tokenize(sentence, ids_);
  }
  if (ids_.size() > room) {
    builder_->mark_truncated();
    ids_.resize(room);
  }
  if (ids_.empty()) return;
  open(paragraph_, "paragraph");
  open(sentence_, "sentence");
  builder_->add_leaves(modality_, ids_);
  if (!with_labels_) return;
  for (size_t i = 0; i < ids_.size(); ++i) {
    builder_->describe({std::to_string(i), "token", std::string(sources_[i].of(sentence))}, ids_.size() - 1 - i);
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
