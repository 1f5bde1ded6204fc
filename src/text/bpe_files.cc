// Byte-level BPE as it is published: vocab.json with the merges.txt beside it, or tokenizer.json.
#include <nlohmann/json.hpp>
#include <utility>

#include "io/lines.h"
#include "text/added_tokens.h"
#include "text/folder_settings.h"
#include "text/json_files.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxMerges = kMaxTokens;

// Merges of tokens by name.
class MergeCollector {
 public:
  explicit MergeCollector(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // `where` is for messages: io::Error("WHERE: ...").
  template <class Where>
  void add(std::string_view left, std::string_view right, Where where) {
    if (merges_.size() == kMaxMerges) throw io::Error(where() + ": has too many merges");
    merges_.push_back({id(left, where), id(right, where), id(std::string(left).append(right), where)});
  }

  std::vector<Merge> take() { return std::move(merges_); }

 private:
  template <class Where>
  int32_t id(std::string_view token, Where where) const {
    const int32_t found = vocabulary_.find(token);
    if (found < 0) throw io::Error(where() + ": merges " + io::printable(token) + ", which the vocabulary has not");
    return found;
  }

  const Vocabulary& vocabulary_;
  std::vector<Merge> merges_;
};

// The two names of "left right"; io::Error("WHERE: ...") for anything else.
template <class Where>
std::pair<std::string_view, std::string_view> names_of(std::string_view merge, Where where) {
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    throw io::Error(where() + ": has " + io::printable(merge) + "; expected two tokens with a space between");
  }
  return {merge.substr(0, space), merge.substr(space + 1)};
}

std::vector<Merge> read_merges_txt(const std::string& path, const Vocabulary& vocabulary) {
  MergeCollector merges(vocabulary);
  io::LineReader lines(path, 2 * kMaxTokenBytes);
  const auto where = [&] { return path + ":" + std::to_string(lines.number()); };
  for (std::string line; lines.next(line);) {
    if (line.starts_with("#version")) continue;
    const auto [left, right] = names_of(line, where);
    merges.add(left, right, where);
  }
  return merges.take();
}

// Merges are "left right" or, in newer files, ["left", "right"].
std::vector<Merge> merges_of(const json& list, const Vocabulary& vocabulary, const std::string& path) {
  MergeCollector merges(vocabulary);
  size_t number = 0;
  const auto where = [&] { return path + ": merge " + std::to_string(number); };
  for (const json& merge : list.get_ref<const json::array_t&>()) {
    if (merge.is_string()) {
      const auto [left, right] = names_of(merge.get_ref<const std::string&>(), where);
      merges.add(left, right, where);
    } else if (merge.is_array() && merge.size() == 2) {
      merges.add(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), where);
    } else {
      throw io::Error(where() + " is neither a text nor two");
    }
    ++number;
  }
  return merges.take();
}

// io::Error for settings of the model that change its tokens in ways that are not supported.
void check_model(const json& model, const std::string& path) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json value = model.value(key, json());
    if (!value.is_null() && value != "")
      throw io::Error(path + ": has the setting " + key + "; expected byte-level BPE");
  }
  const json dropout = model.value("dropout", json());
  if (!dropout.is_null() && dropout != 0.0) throw io::Error(path + ": has dropout of merges; expected none");
  if (json_flag(model, "byte_fallback", false)) {
    throw io::Error(path + ": is BPE over letters with bytes to fall back to; expected byte-level BPE");
  }
}

// RoBERTa's vocabulary has GPT-2's <|endoftext|>, too, but there it is no token to be looked for.
std::vector<std::string> conventional_tokens(const Tokenizer& tokenizer) {
  if (tokenizer.find("<s>") >= 0) return {"<s>", "</s>", "<pad>", "<unk>", "<mask>"};
  return {"<|endoftext|>"};
}

}  // namespace

std::shared_ptr<const Tokenizer> load_vocab_json(const std::string& path) {
  constexpr std::string_view kVocabulary = "vocab.json";
  const std::string merges_path = path.substr(0, path.size() - kVocabulary.size()) + "merges.txt";
  const FolderSettings folder = FolderSettings::beside(path);
  ByteLevelBpe settings;
  settings.tokens = tokens_by_id(read_json_file(path), path);
  settings.merges = read_merges_txt(merges_path, make_vocabulary(settings.tokens, 0, path));
  settings.prefix_space = folder.flag("add_prefix_space", false);
  auto tokenizer = make_byte_level_bpe(std::move(settings), path);
  return with_added_tokens(tokenizer, folder.added_tokens(*tokenizer, conventional_tokens(*tokenizer)), path);
}

std::shared_ptr<const Tokenizer> byte_level_bpe_from_tokenizer_json(const json& file, const std::string& path) {
  const json& model = file.at("model");
  check_model(model, path);
  const json splitter = file.value("pre_tokenizer", json());
  if (!splitter.is_object() || splitter.value("type", "") != "ByteLevel") {
    throw io::Error(path + ": has another pre_tokenizer; expected ByteLevel");
  }
  if (!file.value("normalizer", json()).is_null()) {
    throw io::Error(path + ": has a normalizer before its byte-level BPE; expected none");
  }
  ByteLevelBpe settings;
  settings.tokens = tokens_by_id(model.at("vocab"), path);
  settings.merges = merges_of(model.at("merges"), make_vocabulary(settings.tokens, 0, path), path);
  const json unknown = model.value("unk_token", json());
  if (!unknown.is_null() && unknown != "") settings.unknown = unknown.get<std::string>();
  settings.fuse_unknown = json_flag(model, "fuse_unk", false);
  settings.whole_words = json_flag(model, "ignore_merges", false);
  settings.prefix_space = json_flag(splitter, "add_prefix_space", true);
  settings.split_words = json_flag(splitter, "use_regex", true);
  settings.decoding = decoding_from_json(file.value("decoder", json()));
  return make_byte_level_bpe(std::move(settings), path);
}

}  // namespace ramify::text
