#include "train/leaf_encoder.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "io/error.h"
#include "io/sha256.h"
#include "models/config.h"
#include "train/interrupt.h"

namespace ramify::train {
namespace {

constexpr int64_t kRememberedInUse = 64 << 20;  // bytes of vectors, while a trained model is used

// What the vectors of a text depend on.
bool is_part_of_model(const std::string& name) {
  constexpr std::array<std::string_view, 9> kNames = {
      "config.json", "tokenizer.json", "tokenizer_config.json",        "special_tokens_map.json", "vocab.txt",
      "vocab.json",  "merges.txt",     "model.safetensors.index.json", "added_tokens.json"};
  return std::ranges::find(kNames, name) != kNames.end() || name.ends_with(".safetensors") || name.ends_with(".model");
}

std::string fingerprint(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && is_part_of_model(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  std::string sums;
  for (const std::string& name : names) sums += io::sha256_file(folder + "/" + name) + "  " + name + "\n";
  return io::sha256_hex(sums);
}

void check_folder(const std::string& folder) {
  if (std::filesystem::is_directory(folder)) return;
  throw io::Error(folder + ": is no folder; --leaf-encoder wants that of a published encoder, with config.json");
}

// Products, too, are then computed by the calling thread alone, in the same order whatever the number of threads.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) {
    if (before_ != 1) at::set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) at::set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

std::string key_of(std::span<const int32_t> ids) {
  return io::sha256_hex(std::as_bytes(ids));
}

}  // namespace

signal::LeafEncoding describe_leaf_encoder(const std::string& folder, signal::LeafLevel level) {
  check_folder(folder);
  const models::ModelConfig config = models::ModelConfig::load(folder);
  if (config.is_decoder()) throw io::Error(folder + ": is a decoder; expected an encoder (bert, roberta)");
  return {.model = folder, .level = level, .width = config.width, .sha256 = fingerprint(folder)};
}

void check_unchanged(const signal::LeafEncoding& encoding) {
  if (!std::filesystem::is_directory(encoding.model)) {
    throw io::Error(encoding.model +
                    ": is not there; leaves of this run are vectors of the model that was in this folder");
  }
  if (fingerprint(encoding.model) == encoding.sha256) return;
  throw io::Error(encoding.model + ": has changed since the run began, whose leaves are vectors of this model");
}

LeafEncoder::LeafEncoder(const signal::LeafEncoding& encoding, const Options& options)
    : encoding_(encoding),
      model_(encoding.model, {.device = options.device}),
      plan_(models::AttentionPlan::exact(model_.num_layers())),
      cache_(encoding, options.cache, options.max_memory) {
  const auto special = static_cast<int64_t>(model_.tokenizer().special().wrap({}).ids.size());
  chunk_ = model_.config().max_tokens() - special;
  if (chunk_ >= 1) return;
  throw io::Error(encoding.model + ": takes " + std::to_string(model_.config().max_tokens()) +
                  " tokens at once, of which " + std::to_string(special) +
                  " are special ones; nothing is left for texts");
}

void LeafEncoder::compute(std::string_view text, int64_t most, signal::TextRows& rows) const {
  std::vector<int32_t> ids;
  rows = {};
  model_.tokenizer().tokenizer().tokenize(text, ids, rows.spans);
  if (encoding_.level != signal::LeafLevel::token) {
    rows.spans.assign(ids.empty() ? 0 : 1, {0, text.size()});
  } else if (static_cast<int64_t>(ids.size()) > most) {
    rows.was_cut = true;
    ids.resize(static_cast<size_t>(most));
    rows.spans.resize(ids.size());
  }
  if (ids.empty()) return;
  rows.values = cache_.rows(key_of(ids), [&] { return encode(ids); });
  if (rows.values.size() == rows.spans.size() * static_cast<size_t>(width())) return;
  throw io::Error("--leaf-cache: its rows are not those of the texts; remove the file");
}

std::vector<float> LeafEncoder::encode(std::span<const int32_t> ids) const {
  const OneThread one_thread;
  const bool is_token = encoding_.level == signal::LeafLevel::token;
  std::vector<at::Tensor> chunks;
  for (; !ids.empty(); ids = ids.subspan(std::min(ids.size(), static_cast<size_t>(chunk_)))) {
    Interrupted::throw_if_caught();
    text::ModelInput input =
        model_.tokenizer().special().wrap(ids.first(std::min(ids.size(), static_cast<size_t>(chunk_))));
    models::TokenizedText chunk{.ids = std::move(input.ids), .types = std::move(input.types)};
    chunk.structure.tokens = static_cast<int64_t>(chunk.ids.size());
    const models::TokenizedText* const one[] = {&chunk};
    const at::Tensor rows = model_.token_rows(model_.pack(one), plan_);
    const auto first = static_cast<int64_t>(input.first.begin), last = static_cast<int64_t>(input.first.end);
    chunks.push_back(is_token ? rows.narrow(0, first, last - first) : rows);
  }
  at::Tensor rows = at::cat(chunks);
  if (!is_token) rows = rows.mean(0);
  rows = rows.to(at::kCPU).contiguous();
  return {rows.const_data_ptr<float>(), rows.const_data_ptr<float>() + rows.numel()};
}

std::shared_ptr<const LeafEncoder> open_leaf_encoder(const signal::Schema& schema, at::Device device) {
  if (!schema.has_text_vectors()) return nullptr;
  check_unchanged(*schema.leaf_encoding);
  return std::make_shared<const LeafEncoder>(
      *schema.leaf_encoding, LeafEncoder::Options{.device = device, .cache = "", .max_memory = kRememberedInUse});
}

at::Tensor leaf_word_table(const signal::LeafEncoding& encoding) {
  const models::TextModel model(encoding.model, {});
  return model.word_table().detach().narrow(0, 0, model.tokenizer().tokenizer().size()).clone();
}

}  // namespace ramify::train
