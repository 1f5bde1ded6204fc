#include "text/detokenizer.h"

#include <unicode/utf8.h>

#include <charconv>
#include <optional>
#include <stdexcept>
#include <utility>

#include "io/error.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace ramify::text {
namespace {

using Rule = Decoding::Rule;
using LeadingSpace = Decoding::LeadingSpace;

constexpr std::string_view kPieceSpace = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kBrokenMark = "\xEF\xBF\xBD";  // U+FFFD

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

// One token at a time, in this order, as WordPiece's decoder has it.
void clean_up(std::string& token) {
  constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, with] : kReplacements) replace_all(token, what, with);
}

// Takes what more bytes cannot change; the beginning of a letter stays.
std::string take_whole_letters(std::string& bytes) {
  const auto* letters = reinterpret_cast<const uint8_t*>(bytes.data());
  auto length = static_cast<int64_t>(bytes.size());
  U8_TRUNCATE_IF_INCOMPLETE(letters, 0, length);
  std::string text = valid_utf8(std::string_view(bytes).substr(0, static_cast<size_t>(length)));
  bytes.erase(0, static_cast<size_t>(length));
  return text;
}

// Of <0x0A>.
std::optional<char> byte_of_piece(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(tokenizer), decoding_(tokenizer.decoding()), options_(options) {
  if (decoding_.rule != Rule::unsupported) return;
  throw std::invalid_argument("detokenizer: the tokenizer has the decoder " + io::printable(decoding_.unsupported) +
                              "; expected WordPiece, ByteLevel, Metaspace or that of Llama");
}

std::string Detokenizer::next(int32_t id) {
  if (id < 0 || id >= tokenizer_.size()) {
    throw std::invalid_argument("detokenizer: no token " + std::to_string(id) + " of " +
                                std::to_string(tokenizer_.size()));
  }
  if (!options_.with_special_tokens && tokenizer_.is_special(id)) return "";
  const std::string_view token = tokenizer_.token(id);
  std::string text;
  switch (decoding_.rule) {
    case Rule::words:
      text = has_tokens_ ? std::string(" ").append(token) : std::string(token);
      break;
    case Rule::wordpiece:
      text = next_wordpiece(token);
      break;
    case Rule::byte_level:
      text = next_bytes(token);
      break;
    case Rule::sentencepiece:
      text = next_piece(token);
      break;
    case Rule::unsupported:
      break;
  }
  has_tokens_ = true;
  return text;
}

std::string Detokenizer::finish() {
  std::string text = decoding_.rule == Rule::sentencepiece ? take_byte_pieces() : valid_utf8(held_);
  held_.clear();
  has_tokens_ = has_text_ = false;
  return text;
}

std::string Detokenizer::next_wordpiece(std::string_view token) const {
  std::string text;
  if (!has_tokens_) {
    text = token;
  } else if (token.starts_with(decoding_.prefix)) {
    text = token.substr(decoding_.prefix.size());
  } else {
    text.append(" ").append(token);
  }
  if (decoding_.cleanup) clean_up(text);
  return text;
}

// Tokens with other letters than those of the byte alphabet were added by somebody; they are what they are.
std::string Detokenizer::next_bytes(std::string_view token) {
  const auto bytes = from_byte_alphabet(token);
  held_ += bytes ? *bytes : token;
  return take_whole_letters(held_);
}

std::string Detokenizer::next_piece(std::string_view token) {
  if (decoding_.byte_pieces) {
    if (const auto byte = byte_of_piece(token)) {
      held_ += *byte;
      return "";
    }
  }
  std::string text = take_byte_pieces();
  const bool drops_spaces = !has_tokens_ && decoding_.leading_space == LeadingSpace::dropped_from_first_token;
  std::string piece(token);
  replace_all(piece, kPieceSpace, drops_spaces ? "" : " ");
  return text + without_leading_space(std::move(piece));
}

std::string Detokenizer::take_byte_pieces() {
  std::string bytes = std::exchange(held_, {});
  if (is_valid_utf8(bytes)) return without_leading_space(std::move(bytes));
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) text += kBrokenMark;
  return without_leading_space(std::move(text));
}

std::string Detokenizer::without_leading_space(std::string text) {
  const bool begins = !has_text_ && !text.empty();
  if (begins && decoding_.leading_space == LeadingSpace::one_dropped && text[0] == ' ') text.erase(0, 1);
  has_text_ = has_text_ || begins;
  return text;
}

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, const DecodeOptions& options) {
  Detokenizer detokenizer(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.next(id);
  return text + detokenizer.finish();
}

}  // namespace ramify::text
