#include "train/batch_tensors.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace ramify::train {
namespace {

// Tensors over the arrays of a batch that they keep alive.
class Views {
 public:
  Views(std::shared_ptr<const signal::Batch> batch, at::Device device) : batch_(std::move(batch)), device_(device) {}

  // Undefined if there is nothing.
  template <class Element>
  at::Tensor operator()(const std::vector<Element>& values, at::IntArrayRef shape) const {
    if (values.empty()) return {};
    return of(values, shape);
  }

  template <class Element>
  at::Tensor of(const std::vector<Element>& values, at::IntArrayRef shape) const {
    constexpr at::ScalarType type = std::is_same_v<Element, float> ? at::kFloat : at::kLong;
    const auto keep = [batch = batch_](void*) {};
    return at::from_blob(const_cast<Element*>(values.data()), shape, keep, at::dtype(type)).to(device_);
  }

 private:
  std::shared_ptr<const signal::Batch> batch_;
  at::Device device_;
};

int64_t length(const std::vector<int64_t>& values) {
  return static_cast<int64_t>(values.size());
}
int64_t cells(const signal::Positions& positions) {
  return static_cast<int64_t>(positions.cells.size()) / 2;
}

// Rows of positions are numbered through all domains. Those of a domain that the model does not know go.
void forget_unknown_domains(signal::Positions& positions, std::span<const nn::Domain> known) {
  const std::array<int64_t, 4> end = {length(positions.keys), length(positions.keys) + length(positions.places),
                                      length(positions.keys) + length(positions.places) + cells(positions),
                                      std::numeric_limits<int64_t>::max()};
  std::array<bool, 4> is_known{};
  for (const nn::Domain domain : known) is_known[static_cast<size_t>(domain)] = true;
  std::array<int64_t, 4> gone_before{};
  for (size_t d = 1; d < 4; ++d) {
    const int64_t rows = end[d - 1] - (d > 1 ? end[d - 2] : 0);
    gone_before[d] = gone_before[d - 1] + (is_known[d - 1] ? 0 : rows);
  }
  for (int64_t& row : positions.index) {
    if (row < 0) continue;
    const auto domain = static_cast<size_t>(std::ranges::upper_bound(end, row) - end.begin());
    row = is_known[domain] ? row - gone_before[domain] : -1;
  }
  if (!is_known[0]) positions.keys.clear(), positions.key_token_begin.clear();
  if (!is_known[1]) positions.places.clear();
  if (!is_known[2]) positions.cells.clear();
  if (!is_known[3]) positions.graph.clear();
}

at::Tensor graph_rows(const Views& view, const std::vector<float>& values, int64_t features) {
  if (values.empty()) return {};
  return view(values, {static_cast<int64_t>(values.size()) / features, features});
}

// There is nothing to learn from classes that have no output.
at::Tensor of_known_classes(at::Tensor classes, const signal::Targets& targets) {
  const bool has_unseen = std::ranges::find(targets.classes, signal::kUnseenClass) != targets.classes.end();
  return has_unseen ? classes.clamp_min(signal::kNoClass) : classes;
}

int64_t known_rows(const signal::Targets& targets) {
  const int64_t rows = length(targets.leaf_begin);
  if (!targets.classes.empty()) return std::ranges::count_if(targets.classes, [](int64_t c) { return c >= 0; });
  if (targets.values.empty()) return 0;
  const auto width = targets.values.size() / static_cast<size_t>(std::max<int64_t>(rows, 1));
  int64_t known = 0;
  for (size_t i = 0; i < targets.values.size(); i += width) known += !std::isnan(targets.values[i]);
  return known;
}

}  // namespace

BatchTensors to_tensors(signal::Batch batch, const nn::ModelInputs& inputs, at::Device device) {
  if (inputs.domains.size() < 4) forget_unknown_domains(batch.positions, inputs.domains);
  const auto source = std::make_shared<const signal::Batch>(std::move(batch));
  const Views view(source, device);
  const signal::Positions& p = source->positions;
  BatchTensors tensors{.source = source, .input = {.forest = {source->forest, device}, .leaves = {}, .positions = {}}};
  for (const signal::LeafRows& leaves : source->leaves) {
    const int64_t n = length(leaves.leaf);
    const bool numbers = leaves.width == 1 && !leaves.id.empty();
    tensors.input.leaves.push_back({
        .leaf = view.of(leaves.leaf, {n}),
        .id = view(leaves.id, {n}),
        .value = numbers ? view(leaves.value, {n}) : view(leaves.value, {n, leaves.width}),
    });
  }
  tensors.input.positions = {.keys = view(p.keys, {length(p.keys)}),
                             .key_token_begin = view(p.key_token_begin, {length(p.key_token_begin)}),
                             .key_tokens = view.of(p.key_tokens, {length(p.key_tokens)}),
                             .places = view(p.places, {length(p.places)}),
                             .cells = view(p.cells, {cells(p), 2}),
                             .graph = graph_rows(view, p.graph, inputs.graph_features),
                             .index = inputs.domains.empty() ? at::Tensor() : view(p.index, {length(p.index)})};
  const signal::Targets& t = source->targets;
  tensors.targets = {.leaf_begin = view.of(t.leaf_begin, {length(t.leaf_begin)}),
                     .leaf_end = view.of(t.leaf_end, {length(t.leaf_end)}),
                     .classes = of_known_classes(view(t.classes, {length(t.classes)}), t),
                     .values = view(t.values, {static_cast<int64_t>(t.values.size())}),
                     .known_rows = known_rows(t)};
  return tensors;
}

}  // namespace ramify::train
