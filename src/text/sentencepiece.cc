#include <sentencepiece_processor.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "text/base64.h"
#include "text/letters.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, const std::string& name, std::optional<Decoding> decoding)
      : model_(std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok()) {
      throw io::Error(name + ": is no SentencePiece model: " + status.ToString());
    }
    decoding_ = decoding ? std::move(*decoding) : llama_decoding();
  }

  int64_t size() const override { return processor_.GetPieceSize(); }
  int32_t unknown() const override { return processor_.unk_id(); }
  std::string_view token(int32_t id) const override {
    if (id < 0 || id >= size()) {
      throw std::out_of_range("sentencepiece: no token " + std::to_string(id) + " of " + std::to_string(size()));
    }
    return processor_.IdToPiece(id);
  }
  int32_t find(std::string_view token) const override {
    const int32_t id = processor_.PieceToId(token);
    return id >= 0 && id < size() && processor_.IdToPiece(id) == token ? id : -1;
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < size() && (processor_.IsControl(id) || processor_.IsUnknown(id));
  }
  const Decoding& decoding() const override { return decoding_; }
  nlohmann::json to_json() const override {
    return {{"type", "sentencepiece"}, {"model", to_base64(model_)}, {"decoder", decoding_to_json(decoding_)}};
  }

 private:
  // A text gets a space before it unless the model was trained without (Gemma).
  Decoding llama_decoding() const {
    std::vector<std::string> pieces;
    check(processor_.Encode("a", &pieces));
    const bool adds_space = !pieces.empty() && pieces[0].starts_with("\xE2\x96\x81");
    return {.rule = Decoding::Rule::sentencepiece,
            .leading_space = adds_space ? Decoding::LeadingSpace::one_dropped : Decoding::LeadingSpace::kept};
  }

  void append(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>* spans) const override {
    if (!spans) {
      std::vector<int> pieces;
      check(processor_.Encode(text, &pieces));
      ids.insert(ids.end(), pieces.begin(), pieces.end());
      return;
    }
    const auto encoded = processor_.EncodeAsImmutableProto(text);
    for (const auto& piece : encoded.pieces()) {
      ids.push_back(static_cast<int32_t>(piece.id()));
      spans->push_back(letters_of({piece.begin(), piece.end()}, text));
    }
  }

  // Of the pieces that one letter became, and of a space put before the text, only the last has a part of the text.
  static Span letters_of(Span span, std::string_view text) {
    if (span.begin == span.end && span.end < text.size()) next_letter(text, span.end);
    return span;
  }

  static void check(const sentencepiece::util::Status& status) {
    if (!status.ok()) throw std::runtime_error("sentencepiece: " + status.ToString());
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  Decoding decoding_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_sentencepiece(std::string model, const std::string& name,
                                                    std::optional<Decoding> decoding) {
  return std::make_shared<SentencePieceTokenizer>(std::move(model), name, std::move(decoding));
}

std::shared_ptr<const Tokenizer> sentencepiece_from_json(const nlohmann::json& stored, const std::string& name) {
  auto model = from_base64(stored.at("model").get<std::string>());
  if (!model) throw io::Error(name + ": the SentencePiece model is not base64");
  std::optional<Decoding> decoding;
  if (stored.contains("decoder")) decoding = decoding_from_json(stored["decoder"]);
  return make_sentencepiece(std::move(*model), name, std::move(decoding));
}

}  // namespace ramify::text
