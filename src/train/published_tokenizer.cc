#include "train/published_tokenizer.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/atomic_file.h"
#include "io/error.h"
#include "models/text_classifier.h"
#include "text/json_files.h"

namespace ramify::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr std::array<const char*, 8> kCopied = {"tokenizer.json", "vocab.txt",        "vocab.json",
                                                "merges.txt",     "tokenizer.model",  "special_tokens_map.json",
                                                kTokenizerConfig, "added_tokens.json"};
constexpr size_t kMaxBytes = size_t{1} << 30;

void copy_bytes(const fs::path& from, const fs::path& to) {
  io::write_file_atomic(to.string(), io::read_file(from.string(), kMaxBytes));
}

void copy_if_there(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::is_regular_file(from, error)) copy_bytes(from, to);
}

void copy_folder(const fs::path& source, const fs::path& folder) {
  for (const char* name : kCopied) copy_if_there(source / name, folder / name);
  if (fs::exists(folder / "tokenizer.model")) return;
  for (const auto& entry : fs::directory_iterator(source)) {
    if (entry.path().extension() == ".model") return copy_bytes(entry.path(), folder / "tokenizer.model");
  }
}

void copy_file(const fs::path& source, const fs::path& folder) {
  const std::string name = source.filename().string();
  const fs::path beside = source.parent_path();
  if (name.ends_with("vocab.json")) {
    copy_bytes(source, folder / "vocab.json");
    copy_bytes(beside / (name.substr(0, name.size() - std::string("vocab.json").size()) + "merges.txt"),
               folder / "merges.txt");
  } else if (name.ends_with(".json")) {
    copy_bytes(source, folder / "tokenizer.json");
  } else if (name.ends_with(".model")) {
    return copy_bytes(source, folder / "tokenizer.model");
  } else {
    copy_bytes(source, folder / "vocab.txt");
  }
  for (const char* settings : {kTokenizerConfig, "special_tokens_map.json", "added_tokens.json"}) {
    copy_if_there(beside / settings, folder / settings);
  }
}

// What `source` puts in front of texts.
std::optional<std::string> begin_token(const std::string& source, const text::Tokenizer& tokenizer) {
  if (!fs::is_directory(source)) {
    const bool has_begin = source.ends_with(".model") && tokenizer.find("<s>") >= 0;
    return has_begin ? std::optional<std::string>("<s>") : std::nullopt;
  }
  const auto before = models::TextFrame::of(text::SpecialTokens::load(source, tokenizer), false).before;
  if (before.empty()) return std::nullopt;
  return std::string(tokenizer.token(static_cast<int32_t>(before.back())));
}

const char* usual_class(const fs::path& folder) {
  if (fs::exists(folder / "tokenizer.json")) return "PreTrainedTokenizerFast";
  if (fs::exists(folder / "vocab.txt")) return "BertTokenizer";
  return fs::exists(folder / "vocab.json") ? "GPT2Tokenizer" : "LlamaTokenizer";
}

}  // namespace

void copy_tokenizer(const std::string& source, const std::string& folder) {
  if (!fs::exists(source)) throw io::Error(source + ": there is no such tokenizer; expected a folder or a file");
  const auto tokenizer = text::Tokenizer::load(source);  // for its errors, which name the source
  if (fs::is_directory(source)) {
    copy_folder(source, folder);
  } else {
    copy_file(source, folder);
  }
  const fs::path file = fs::path(folder) / kTokenizerConfig;
  nlohmann::json config = fs::exists(file) ? text::read_json_file(file.string()) : nlohmann::json::object();
  const auto begin = begin_token(source, *tokenizer);
  config["add_bos_token"] = begin.has_value();
  config["add_eos_token"] = false;
  if (begin) config["bos_token"] = *begin;
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = usual_class(folder);
  io::write_file_atomic(file.string(), config.dump(2) + "\n");
  if (text::Tokenizer::load(folder)->to_json() != tokenizer->to_json()) {
    throw io::Error(source + ": its files mean something else in another folder; give the folder of a tokenizer");
  }
}

std::vector<std::string> tokenizer_files() {
  return {kCopied.begin(), kCopied.end()};
}

std::vector<int32_t> tokens_before(const text::ModelTokenizer& tokenizer) {
  const auto before = models::TextFrame::of(tokenizer.special_tokens(), false).before;
  return {before.begin(), before.end()};
}

int32_t end_token(const text::Tokenizer& tokenizer) {
  for (const char* name : {"</s>", "<|endoftext|>", "[SEP]"}) {
    if (const int32_t id = tokenizer.find(name); id >= 0) return id;
  }
  return -1;
}

}  // namespace ramify::train
