#include "models/text_classifier.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <stdexcept>

#include "nn/range_pooling.h"

namespace ramify::models {
namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values, at::Device device) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::dtype(at::kLong));
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor.to(device);
}

struct Range {
  int64_t begin, end;
};

// The key under which each node stands; -1: none.
class NodeKeys {
 public:
  explicit NodeKeys(const nn::PositionInput& positions) {
    if (!positions.index.defined() || !positions.keys.defined()) return;
    index_ = positions.index.to(at::kCPU).contiguous();
    keys_ = positions.keys.to(at::kCPU).contiguous();
  }
  int64_t of(int64_t node) const {
    const int64_t row = index_.defined() ? index_.const_data_ptr<int64_t>()[node] : -1;
    return row < 0 || row >= keys_.numel() ? -1 : keys_.const_data_ptr<int64_t>()[row];
  }

 private:
  at::Tensor index_, keys_;
};

}  // namespace

TextFrame TextFrame::of(const text::SpecialTokens& special, bool pair) {
  const int32_t one[] = {0};
  const text::ModelInput input = pair ? special.wrap(one, one) : special.wrap(one);
  const auto part = [&](size_t begin, size_t end) {
    return std::vector<int64_t>(input.ids.begin() + static_cast<int64_t>(begin),
                                input.ids.begin() + static_cast<int64_t>(end));
  };
  TextFrame frame{.before = part(0, input.first.begin)};
  if (pair) {
    frame.between = part(input.first.end, input.second.begin);
    frame.second_type = input.types[input.second.begin];
  }
  frame.after = part(pair ? input.second.end : input.first.end, input.ids.size());
  return frame;
}

struct TextClassifier::Framed {
  PackedTexts texts;
  at::Tensor row_of_leaf;  // [leaves]
};

TextClassifier::TextClassifier(TextClassifierParts parts) : parts_(std::move(parts)) {
  const ModelConfig& config = parts_.config;
  if (parts_.pair) inputs_ = {.num_keys = parts_.num_keys, .domains = {nn::Domain::key}};
  encoder_ = register_module("encoder", std::make_shared<Encoder>(config));
  initialize(*encoder_, config.initializer_range);
  hidden_ = register_module("hidden", std::make_shared<nn::Linear>(config.width, config.width));
  output_ = register_module("output", std::make_shared<nn::Linear>(config.width, parts_.outputs));
}

TextClassifier::Framed TextClassifier::framed(const nn::Batch& batch) const {
  const Forest& forest = batch.forest.forest();
  const std::vector<int64_t> tree_begin = forest.tree_leaf_begin();
  const TextFrame& frame = parts_.frame;
  const NodeKeys keys(batch.positions);
  std::vector<int64_t> ids, types, row_of_leaf(static_cast<size_t>(forest.num_leaves()));
  std::vector<TextStructure> structures;
  const auto add_special = [&](const std::vector<int64_t>& special, int64_t type) {
    ids.insert(ids.end(), special.begin(), special.end());
    types.insert(types.end(), special.size(), type);
  };
  const auto add_leaves = [&](Range range, int64_t type) {
    for (int64_t leaf = range.begin; leaf < range.end; ++leaf) {
      row_of_leaf[static_cast<size_t>(leaf)] = static_cast<int64_t>(ids.size());
      ids.push_back(parts_.unknown);
      types.push_back(type);
    }
  };
  for (int64_t tree = 0; tree < forest.num_trees(); ++tree) {
    const int64_t begin = tree_begin[static_cast<size_t>(tree)], end = tree_begin[static_cast<size_t>(tree) + 1];
    const int64_t root = forest.tree_begin()[static_cast<size_t>(tree)];
    Range texts[2] = {{begin, parts_.pair ? begin : end}, {begin, begin}};
    for (int64_t child = forest.first_child()[static_cast<size_t>(root)]; parts_.pair && begin < end; ++child) {
      if (child == forest.first_child()[static_cast<size_t>(root) + 1]) break;
      const bool last = child + 1 == forest.first_child()[static_cast<size_t>(root) + 1];
      const auto first_leaf = [&](int64_t node) { return forest.first_leaf()[static_cast<size_t>(node)]; };
      texts[keys.of(child) == parts_.second_key] = {first_leaf(child), last ? end : first_leaf(child + 1)};
    }
    const auto first = static_cast<int64_t>(ids.size());
    add_special(frame.before, 0);
    add_leaves(texts[0], 0);
    if (parts_.pair) {
      add_special(frame.between, 0);
      add_leaves(texts[1], frame.second_type);
    }
    add_special(frame.after, parts_.pair ? frame.second_type : 0);
    structures.push_back({.tokens = static_cast<int64_t>(ids.size()) - first, .sentences = {}, .paragraphs = {}});
  }
  const at::Device device = batch.forest.device();
  at::Tensor all_ids = tensor_of(ids, device);
  const at::Tensor rows = tensor_of(row_of_leaf, device);
  const nn::LeafInput& tokens = batch.leaves[static_cast<size_t>(parts_.token_modality)];
  if (tokens.id.defined()) {
    const at::Tensor places = tokens.leaf.defined() ? at::index_select(rows, 0, tokens.leaf) : rows;
    all_ids.index_copy_(0, places, tokens.id);
  }
  return {PackedTexts(all_ids, tensor_of(types, device), std::move(structures), parts_.config.first_position,
                      parts_.config.max_tokens()),
          rows};
}

at::Tensor TextClassifier::forward(const nn::Batch& batch, const at::Tensor& leaf_begin,
                                   const at::Tensor& leaf_end) const {
  const auto thinned = [&](const at::Tensor& rows) { return at::dropout(rows, parts_.dropout, is_training()); };
  const Framed input = framed(batch);
  const at::Tensor rows = encoder_->forward(input.texts, parts_.plan);
  const nn::Encoding encoding{batch.forest, at::index_select(rows, 0, input.row_of_leaf), {}};
  const at::Tensor pooled = nn::pool_ranges(encoding, leaf_begin, leaf_end, std::nullopt);
  return output_->forward(thinned(at::tanh(hidden_->forward(thinned(pooled)))));
}

nn::ParameterCounts TextClassifier::parameter_counts() const {
  nn::ParameterCounts counts;
  for (const auto& entry : named_parameters()) {
    const bool in_table = entry.key().starts_with("encoder.words.") || entry.key().starts_with("encoder.positions.");
    (in_table ? counts.tables : counts.encoder) += entry.value().numel();
  }
  return counts;
}

void TextClassifier::set_compute_dtype(at::ScalarType dtype) {
  if (dtype != at::kFloat) throw std::invalid_argument("architecture: computes in float32 only; leave --dtype out");
}

void TextClassifier::set_table_gradient(TableGradient gradient) {
  encoder_->set_table_gradient(gradient);
}

std::vector<at::Tensor> TextClassifier::row_tables() const {
  if (!encoder_->has_row_gradient()) return {};
  return {encoder_->word_table()};
}

void TextClassifier::load(const std::string& folder) {
  const at::NoGradGuard no_grad;
  const auto published = load_encoder(folder);
  if (published->config() != encoder_->config()) throw io::Error(folder + ": is another architecture than the run's");
  const NamedTensors from = published->published_tensors(), to = encoder_->published_tensors();
  for (size_t i = 0; i < to.size(); ++i) to[i].second.copy_(from[i].second);
}

}  // namespace ramify::models
