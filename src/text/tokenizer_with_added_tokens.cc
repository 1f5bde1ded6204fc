// A tokenizer with tokens of its own that it looks for before another one gets the rest of the text.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/added_tokens.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

class TokenizerWithAddedTokens : public Tokenizer {
 public:
  TokenizerWithAddedTokens(std::shared_ptr<const Tokenizer> base, std::vector<AddedToken> tokens)
      : base_(std::move(base)), tokens_(std::move(tokens)), plain_(of_kind(false)), normalized_(of_kind(true)) {
    for (const AddedToken& token : tokens_) {
      if (token.id >= base_->size()) new_tokens_.push_back(token.content);
    }
  }

  int64_t size() const override { return base_->size() + static_cast<int64_t>(new_tokens_.size()); }
  int32_t unknown() const override { return base_->unknown(); }
  std::string_view token(int32_t id) const override {
    return id >= base_->size() && id < size() ? new_tokens_[static_cast<size_t>(id - base_->size())] : base_->token(id);
  }
  int32_t find(std::string_view token) const override {
    const auto found = std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& t) { return t.content == token; });
    return found == tokens_.end() ? base_->find(token) : found->id;
  }
  bool is_special(int32_t id) const override {
    const auto found = std::lower_bound(tokens_.begin(), tokens_.end(), id,
                                        [](const AddedToken& token, int32_t wanted) { return token.id < wanted; });
    return found != tokens_.end() && found->id == id ? found->special : base_->is_special(id);
  }
  const Decoding& decoding() const override { return base_->decoding(); }
  nlohmann::json to_json() const override {
    auto stored = base_->to_json();
    stored["added_tokens"] = added_tokens_to_json(tokens_);
    return stored;
  }

 private:
  std::vector<AddedToken> of_kind(bool normalized) const {
    std::vector<AddedToken> some;
    std::copy_if(tokens_.begin(), tokens_.end(), std::back_inserter(some),
                 [&](const AddedToken& token) { return token.normalized == normalized; });
    return some;
  }

  struct Output {
    std::vector<int32_t>& ids;
    std::vector<Span>* spans;
  };

  void append(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>* spans) const override {
    const Output out{ids, spans};
    split(text, {0, text.size()}, plain_, out,
          [&](Span part) { split(text, part, normalized_, out, [&](Span rest) { append_rest(text, rest, out); }); });
  }

  // Appends the tokens of `finder` in a part of the text, and gives what is between to `next`.
  template <class Next>
  static void split(std::string_view text, Span whole, const AddedTokenFinder& finder, const Output& out, Next next) {
    const std::string_view part = whole.of(text);
    size_t taken_to = 0;
    for (size_t at = 0;;) {
      const auto match = finder.next(part, at, taken_to);
      const size_t end = match.token ? match.taken.begin : part.size();
      if (taken_to < end) next({whole.begin + taken_to, whole.begin + end});
      if (!match.token) return;
      out.ids.push_back(match.token->id);
      if (out.spans) out.spans->push_back({whole.begin + match.taken.begin, whole.begin + match.taken.end});
      at = match.found.end;
      taken_to = match.taken.end;
    }
  }

  void append_rest(std::string_view text, Span rest, const Output& out) const {
    if (!out.spans) return base_->tokenize(rest.of(text), out.ids);
    const size_t first = out.spans->size();
    base_->tokenize(rest.of(text), out.ids, *out.spans);
    for (size_t i = first; i < out.spans->size(); ++i) {
      (*out.spans)[i].begin += rest.begin;
      (*out.spans)[i].end += rest.begin;
    }
  }

  std::shared_ptr<const Tokenizer> base_;
  std::vector<AddedToken> tokens_;  // by id
  AddedTokenFinder plain_, normalized_;
  std::vector<std::string> new_tokens_;  // those with ids that base_ has not
};

void check_distinct(const std::vector<AddedToken>& tokens, const std::string& name) {
  std::vector<std::string_view> contents;
  for (const AddedToken& token : tokens) contents.push_back(token.content);
  std::sort(contents.begin(), contents.end());
  const auto twice = std::adjacent_find(contents.begin(), contents.end());
  if (twice != contents.end()) throw io::Error(name + ": the added token " + io::printable(*twice) + " comes twice");
}

}  // namespace

std::shared_ptr<const Tokenizer> with_added_tokens(std::shared_ptr<const Tokenizer> base,
                                                   std::vector<AddedToken> tokens, const std::string& name) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
  if (tokens.empty()) return base;
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  int64_t next_id = base->size();
  for (const AddedToken& token : tokens) {
    const auto refuse = [&](const std::string& expected) {
      throw io::Error(name + ": the added token " + io::printable(token.content) + " has the id " +
                      std::to_string(token.id) + "; expected " + expected);
    };
    const int32_t known = base->find(token.content);
    if (known >= 0 && known != token.id) refuse(std::to_string(known) + ", as in the vocabulary");
    if (known < 0 && token.id != next_id) refuse(std::to_string(next_id) + ", behind the tokens before it");
    next_id += known < 0;
  }
  check_distinct(tokens, name);
  return std::make_shared<TokenizerWithAddedTokens>(std::move(base), std::move(tokens));
}

}  // namespace ramify::text
