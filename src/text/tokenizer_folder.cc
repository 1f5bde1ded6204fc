// The folder of a published model: which of its files is the tokenizer.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "io/atomic_file.h"
#include "text/json_files.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

namespace fs = std::filesystem;

// The first by name.
std::string sentencepiece_file(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".model") found.push_back(entry.path().string());
  }
  return found.empty() ? "" : *std::min_element(found.begin(), found.end());
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer_folder(const std::string& folder) {
  const fs::path path(folder);
  std::error_code unreadable;  // is left to the reader of a file that is there
  const auto has = [&](const char* name) { return fs::exists(path / name, unreadable); };
  const auto load = [&](const char* name) { return Tokenizer::load((path / name).string()); };
  if (has("tokenizer.json")) {
    const std::string file = (path / "tokenizer.json").string();
    const nlohmann::json content = read_json_file(file);
    if (is_sentencepiece_in_json(content) && has("tokenizer.model")) {
      const std::string model = (path / "tokenizer.model").string();
      return make_sentencepiece(io::read_file(model, kMaxModelBytes), model, decoder_of_tokenizer_json(content, file));
    }
    return tokenizer_from_tokenizer_json(content, file);
  }
  for (const char* name : {"vocab.txt", "vocab.json", "tokenizer.model"}) {
    if (has(name)) return load(name);
  }
  const std::string model = sentencepiece_file(path);
  if (model.empty()) {
    throw io::Error(folder +
                    ": has no tokenizer; expected tokenizer.json, vocab.txt, vocab.json with merges.txt, or "
                    "*.model in it");
  }
  // Models under this name (XLM-R, mBART, CamemBERT) come from fairseq, which numbers the pieces in its own way.
  if (fs::path(model).filename() == "sentencepiece.bpe.model") {
    throw io::Error(model + ": the model's ids are not those of this file; expected tokenizer.model");
  }
  return Tokenizer::load(model);
}

}  // namespace ramify::text
