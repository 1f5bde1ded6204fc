#include "text/model_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "io/error.h"

namespace ramify::text {
namespace {

struct Tokens {
  std::vector<int32_t> ids;
  std::vector<Span> spans;
};

Tokens tokens_of(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  Tokens tokens;
  if (options.with_spans) {
    tokenizer.tokenize(text, tokens.ids, tokens.spans);
  } else {
    tokenizer.tokenize(text, tokens.ids);
  }
  return tokens;
}

// `part` of the input has the first tokens of a text.
void copy_spans(const Tokens& tokens, Span part, ModelInput& input) {
  const auto count = static_cast<std::ptrdiff_t>(part.end - part.begin);
  std::copy_n(tokens.spans.begin(), count, input.spans.begin() + static_cast<std::ptrdiff_t>(part.begin));
}

}  // namespace

ModelTokenizer::ModelTokenizer(std::shared_ptr<const Tokenizer> tokenizer, SpecialTokens special_tokens)
    : tokenizer_(std::move(tokenizer)), special_tokens_(std::move(special_tokens)) {}

ModelTokenizer ModelTokenizer::load(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw io::Error(folder + ": is no folder; expected that of a published model");
  }
  auto tokenizer = Tokenizer::load(folder);
  auto special_tokens = SpecialTokens::load(folder, *tokenizer);
  return {std::move(tokenizer), std::move(special_tokens)};
}

ModelInput ModelTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Tokens tokens = tokens_of(*tokenizer_, text, options);
  ModelInput input = special_tokens_.wrap(tokens.ids, options.max_length);
  if (options.with_spans) {
    input.spans.resize(input.ids.size());
    copy_spans(tokens, input.first, input);
  }
  return input;
}

ModelInput ModelTokenizer::encode_pair(std::string_view first, std::string_view second,
                                       const EncodeOptions& options) const {
  const Tokens first_tokens = tokens_of(*tokenizer_, first, options);
  const Tokens second_tokens = tokens_of(*tokenizer_, second, options);
  ModelInput input = special_tokens_.wrap(first_tokens.ids, second_tokens.ids, options.max_length);
  if (options.with_spans) {
    input.spans.resize(input.ids.size());
    copy_spans(first_tokens, input.first, input);
    copy_spans(second_tokens, input.second, input);
  }
  return input;
}

std::string ModelTokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  return text::decode(*tokenizer_, ids, options);
}

}  // namespace ramify::text
