#include "models/text_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "text/segments.h"
#include "text/utf8.h"

namespace ramify::models {
namespace {

// Which tokens begin a segment. `tokens` are the bytes of each token, a space before it included, so its last one tells
// where it belongs. Token 0 is number `first` of the input, and what stands before it belongs to its segment.
void add_begins(std::span<const text::Span> segments, std::span<const text::Span> tokens, int64_t first,
                std::vector<int64_t>& begins) {
  size_t segment = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t before = segment;
    while (segment + 1 < segments.size() && tokens[i].end > segments[segment + 1].begin) ++segment;
    if (segment != before && i > 0) begins.push_back(first + static_cast<int64_t>(i));
  }
}

}  // namespace

TextTokenizer::TextTokenizer(const std::string& folder) : tokens_(text::ModelTokenizer::load(folder)) {}

TokenizedText TextTokenizer::tokenize(std::string_view given, int64_t max_tokens, bool with_segments) const {
  const std::string whole = text::valid_utf8(given);
  std::vector<int32_t> ids;
  std::vector<text::Span> spans;
  tokenizer().tokenize(whole, ids, spans);
  text::ModelInput input = tokens_.special_tokens().wrap(ids, max_tokens);
  TokenizedText result{.ids = std::move(input.ids), .types = std::move(input.types)};
  result.structure.tokens = static_cast<int64_t>(result.ids.size());
  const size_t kept = input.first.end - input.first.begin;
  result.was_cut = kept < ids.size();
  if (with_segments) {
    const auto tokens = std::span(spans).first(kept);
    const auto first = static_cast<int64_t>(input.first.begin);
    result.structure.sentences = result.structure.paragraphs = {0};
    add_begins(text::sentences(whole), tokens, first, result.structure.sentences);
    add_begins(text::paragraphs(whole), tokens, first, result.structure.paragraphs);
  }
  return result;
}

TokenizedText TextTokenizer::tokenize(std::string_view first, std::string_view second, int64_t max_tokens) const {
  std::vector<int32_t> first_ids, second_ids;
  tokenizer().tokenize(text::valid_utf8(first), first_ids);
  tokenizer().tokenize(text::valid_utf8(second), second_ids);
  text::ModelInput input = tokens_.special_tokens().wrap(first_ids, second_ids, max_tokens);
  TokenizedText result{.ids = std::move(input.ids), .types = std::move(input.types)};
  result.structure.tokens = static_cast<int64_t>(result.ids.size());
  const size_t kept = input.first.end - input.first.begin + input.second.end - input.second.begin;
  result.was_cut = kept < first_ids.size() + second_ids.size();
  result.structure.sentences = result.structure.paragraphs = {0, static_cast<int64_t>(input.second.begin)};
  return result;
}

TextModel::TextModel(const std::string& folder, const Options& options)
    : tokenizer_(folder), config_(ModelConfig::load(folder)), device_(options.device) {
  if (config_.is_decoder()) {
    decoder_ = load_decoder(folder);
  } else {
    encoder_ = load_encoder(folder);
  }
  if (tokenizer_.tokenizer().size() > config().vocabulary) {
    throw io::Error(folder + ": the tokenizer has " + std::to_string(tokenizer_.tokenizer().size()) +
                    " tokens, the model " + std::to_string(config().vocabulary));
  }
  (encoder_ ? static_cast<nn::Module&>(*encoder_) : *decoder_).to(options.device, options.dtype);
}

PackedTexts TextModel::pack(std::span<const TokenizedText* const> texts) const {
  return PackedTexts(texts, config().first_position, config().max_tokens(), device_);
}

at::Tensor TextModel::token_rows(const PackedTexts& texts, const AttentionPlan& plan, Trace* trace) const {
  const at::NoGradGuard no_grad;
  if (encoder_) return encoder_->forward(texts, plan, trace);
  return decoder_->forward(texts, plan, trace);
}

at::Tensor TextModel::pooled(const at::Tensor& rows, const PackedTexts& texts, Pooling pooling) {
  std::vector<at::Tensor> vectors;
  for (int64_t i = 0; i < texts.num_texts(); ++i) {
    const int64_t begin = texts.begin()[static_cast<size_t>(i)], end = texts.begin()[static_cast<size_t>(i) + 1];
    const at::Tensor own = rows.narrow(0, begin, end - begin).to(at::kFloat);
    if (begin == end) {  // a model without special tokens, and an empty text
      vectors.push_back(at::zeros({rows.size(1)}, own.options()));
    } else {
      vectors.push_back(pooling == Pooling::cls ? own[0] : own.mean(0));
    }
  }
  return at::stack(vectors).to(at::kCPU);
}

std::vector<std::vector<size_t>> batches_by_length(std::span<const TokenizedText> texts, int64_t max_tokens) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return texts[i].ids.size(); });
  std::vector<std::vector<size_t>> batches;
  int64_t tokens = 0;
  for (const size_t i : order) {
    const auto length = static_cast<int64_t>(texts[i].ids.size());
    if (batches.empty() || tokens + length > max_tokens) {
      batches.emplace_back();
      tokens = 0;
    }
    batches.back().push_back(i);
    tokens += length;
  }
  return batches;
}

}  // namespace ramify::models
