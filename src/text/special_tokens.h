// What a published model wants around a text or a pair of texts, and how longer ones are cut:
//   BERT       [CLS] A [SEP]        [CLS] A [SEP] B [SEP]          the type of B and its [SEP] is 1
//   RoBERTa    <s> A </s>           <s> A </s> </s> B </s>         all types are 0
//   Llama      <s> A                <s> A <s> B                    the type of <s> B is 1
//   others     A                    A B                            the type of B is 1
// model_tokenizer.h puts them around texts; here they are around ids.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/segments.h"
#include "text/tokenizer.h"

namespace ramify::text {

struct ModelInput {
  std::vector<int32_t> ids;
  std::vector<int32_t> types;  // of each id
  Span first, second;          // where the tokens of the texts are in `ids`
  std::vector<Span> spans;     // of each id: its bytes in its text, none for a special token; only from ModelTokenizer
};

// Immutable.
class SpecialTokens {
 public:
  enum class Part : uint8_t { token, first, second };  // a token of its own, or one of the texts
  struct Piece {
    Part part;
    int32_t type = 0;
    int32_t id = -1;  // of a token of its own
  };
  using Template = std::vector<Piece>;

  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  // What a model that writes texts begins with and stops at.
  struct Bounds {
    std::optional<int32_t> beginning;  // nothing: a text begins with its first token
    std::vector<int32_t> ends;         // any of them ends a text; none: it never ends
    bool operator==(const Bounds&) const = default;
  };

  SpecialTokens() = default;  // no special tokens, no padding
  // std::invalid_argument: `single` has not the first text once, or `pair` not each text once.
  SpecialTokens(Template single, Template pair, std::optional<int32_t> padding, Bounds bounds = {});

  // As a folder of a published model says: the post_processor of its tokenizer.json (TemplateProcessing,
  // BertProcessing, RobertaProcessing); without one by the model_type of config.json, the tokenizer_class
  // of tokenizer_config.json or the names in special_tokens_map.json; else none. io::Error names the file that is
  // wrong.
  static SpecialTokens load(const std::string& folder, const Tokenizer& tokenizer);

  // The id for places behind the end of a shorter text in a batch; nothing: the model has none.
  std::optional<int32_t> padding() const { return padding_; }

  // bos_token_id and eos_token_id of generation_config.json, else of config.json; else bos_token and eos_token of
  // tokenizer_config.json or special_tokens_map.json; else the usual names, <s> and </s>, or <|endoftext|>. Ids of the
  // model's files may be none of the tokenizer's: some models have more tokens than it.
  const Bounds& bounds() const { return bounds_; }

  // The tokens of one text, or of two, with the special ones. At most `max_length` in all: what is too much goes from
  // the end of the text; of two from the longer one until both are equally long, then from both ("longest first").
  // std::invalid_argument: not even the special tokens fit.
  ModelInput wrap(std::span<const int32_t> text, int64_t max_length = kNoLimit) const;
  ModelInput wrap(std::span<const int32_t> first, std::span<const int32_t> second, int64_t max_length = kNoLimit) const;

 private:
  Template single_ = {{Part::first}};
  Template pair_ = {{Part::first}, {Part::second, 1}};
  std::optional<int32_t> padding_;
  Bounds bounds_;
};

}  // namespace ramify::text
