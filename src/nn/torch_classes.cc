// The modules as TorchBind classes, for Python (python/ramify/nn.py). Descriptions come as JSON; at every call Python
// hands over its own parameters, so that these are what is computed with, whatever became of them in between.
#include <torch/custom_class.h>

#include <nlohmann/json.hpp>
#include <span>

#include "ramify/nn/model.h"

namespace ramify::nn {
namespace {

using nlohmann::json;
using OptionalTensors = std::vector<std::optional<at::Tensor>>;

at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

std::vector<int64_t> vector_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kCPU, at::kLong).contiguous();
  const std::span all(values.const_data_ptr<int64_t>(), static_cast<size_t>(values.numel()));
  return {all.begin(), all.end()};
}

struct ForestHandle : torch::CustomClassHolder {
  ForestHandle(const at::Tensor& first_child, const at::Tensor& level_begin, const at::Tensor& tree_begin,
               const std::string& device)
      : tensors(Forest::from_arrays(vector_of(first_child), vector_of(level_begin), vector_of(tree_begin)),
                at::Device(device)) {}
  ForestTensors tensors;
};

template <class Value>
Value named(const json& name, const char* what, std::initializer_list<std::pair<const char*, Value>> names) {
  std::string all;
  for (const auto& [known, value] : names) {
    if (name == known) return value;
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  TORCH_CHECK_VALUE(false, "encoder: ", what, " is ", name.dump(), "; expected one of ", all);
}

// {"config": {...}, "modalities": [{"name", "feature", "size", "width"}], "num_keys", "graph_features", "domains",
//  "key_table", "outputs"}
struct Description {
  explicit Description(const std::string& text) {
    const json all = json::parse(text);
    config = EncoderConfig::from_json(all.at("config").dump());
    for (const json& modality : all.at("modalities")) {
      modalities.push_back(
          {modality.at("name"),
           named<Feature>(modality.at("feature"), "a feature",
                          {{"ids", Feature::ids}, {"numbers", Feature::numbers}, {"dense", Feature::dense}}),
           modality.at("size"), modality.at("width")});
    }
    inputs.num_keys = all.at("num_keys"), inputs.graph_features = all.at("graph_features");
    inputs.key_table = all.at("key_table");
    for (const json& domain : all.at("domains")) {
      inputs.domains.push_back(named<Domain>(
          domain, "a domain",
          {{"key", Domain::key}, {"sequence", Domain::sequence}, {"grid", Domain::grid}, {"graph", Domain::graph}}));
    }
    outputs = all.value("outputs", int64_t{0});
  }
  EncoderConfig config;
  std::vector<Modality> modalities;
  ModelInputs inputs;
  int64_t outputs = 0;
};

// leaves: leaf, id and value of each modality; positions: the fields of PositionInput.
Batch batch_of(const ForestHandle& forest, const OptionalTensors& leaves, const OptionalTensors& positions) {
  Batch batch{forest.tensors, {}, {}};
  for (size_t i = 0; i + 3 <= leaves.size(); i += 3) {
    batch.leaves.push_back({or_undefined(leaves[i]), or_undefined(leaves[i + 1]), or_undefined(leaves[i + 2])});
  }
  PositionInput& p = batch.positions;
  at::Tensor* fields[] = {&p.keys, &p.key_token_begin, &p.key_tokens, &p.places, &p.cells, &p.graph, &p.index};
  TORCH_CHECK_VALUE(positions.size() == std::size(fields), "encoder: ", positions.size(), " fields of positions");
  for (size_t i = 0; i < positions.size(); ++i) *fields[i] = or_undefined(positions[i]);
  return batch;
}

// What every module offers: names, tensors, and the exchange of tensors before a call.
template <class M>
struct ModuleHandle : torch::CustomClassHolder {
  explicit ModuleHandle(std::shared_ptr<M> the_module) : module(std::move(the_module)) {}

  std::vector<std::string> names(bool buffers) const {
    return buffers ? module->named_buffers().keys() : module->named_parameters().keys();
  }
  std::vector<at::Tensor> tensors(bool buffers) const {
    return buffers ? module->named_buffers().values() : module->named_parameters().values();
  }
  M& with(const std::vector<at::Tensor>& tensors, bool training) const {
    module->share(tensors);
    module->train(training);
    return *module;
  }
  std::shared_ptr<M> module;
};

struct LayerHandle : ModuleHandle<Layer> {
  LayerHandle(const std::string& config, int64_t width, int64_t position_width)
      : ModuleHandle(make(EncoderConfig::from_json(config, "layer"), width, position_width)) {}

  static std::shared_ptr<Layer> make(const EncoderConfig& config, int64_t width, int64_t position_width) {
    std::vector<LayerKind> positions;
    if (position_width > 0) positions.push_back({"position", position_width});
    return std::make_shared<Layer>(config.layers[0], config.activation, std::vector<LayerKind>{{"leaf", width}},
                                   positions);
  }

  at::Tensor forward(const std::vector<at::Tensor>& tensors, bool training,
                     const c10::intrusive_ptr<ForestHandle>& forest, const at::Tensor& x,
                     const std::optional<at::Tensor>& positions, const std::optional<at::Tensor>& index) const {
    LayerPositions rows;
    if (positions) rows.rows.push_back({0, *positions});
    rows.index = or_undefined(index);
    return with(tensors, training).forward(forest->tensors, {{0, x, at::Tensor()}}, rows);
  }
};

struct EncoderHandle : ModuleHandle<Encoder> {
  explicit EncoderHandle(const std::string& description) : EncoderHandle(Description(description)) {}
  explicit EncoderHandle(const Description& d)
      : ModuleHandle(std::make_shared<Encoder>(d.config, d.modalities, d.inputs)) {}

  at::Tensor forward(const std::vector<at::Tensor>& tensors, bool training,
                     const c10::intrusive_ptr<ForestHandle>& forest, const OptionalTensors& leaves,
                     const OptionalTensors& positions) const {
    return with(tensors, training).forward(batch_of(*forest, leaves, positions)).of_inputs();
  }
  at::Tensor node_mass(const std::vector<at::Tensor>& tensors, const c10::intrusive_ptr<ForestHandle>& forest,
                       const OptionalTensors& leaves, const OptionalTensors& positions, int64_t layer) const {
    return with(tensors, /*training=*/false).node_mass(batch_of(*forest, leaves, positions), layer);
  }
};

struct ModelHandle : ModuleHandle<Model> {
  explicit ModelHandle(const std::string& description) : ModelHandle(Description(description)) {}
  explicit ModelHandle(const Description& d)
      : ModuleHandle(std::make_shared<Model>(d.config, d.modalities, d.inputs, d.outputs)) {}

  at::Tensor forward(const std::vector<at::Tensor>& tensors, bool training,
                     const c10::intrusive_ptr<ForestHandle>& forest, const OptionalTensors& leaves,
                     const OptionalTensors& positions, const at::Tensor& begin, const at::Tensor& end) const {
    return with(tensors, training).forward(batch_of(*forest, leaves, positions), begin, end);
  }
  at::Tensor node_mass(const std::vector<at::Tensor>& tensors, const c10::intrusive_ptr<ForestHandle>& forest,
                       const OptionalTensors& leaves, const OptionalTensors& positions, int64_t layer) const {
    return with(tensors, /*training=*/false).node_mass(batch_of(*forest, leaves, positions), layer);
  }
};

template <class Handle>
torch::class_<Handle> module_class(torch::Library& library, const char* name) {
  return library.class_<Handle>(name)
      .def("names", [](const c10::intrusive_ptr<Handle>& self, bool buffers) { return self->names(buffers); })
      .def("tensors", [](const c10::intrusive_ptr<Handle>& self, bool buffers) { return self->tensors(buffers); })
      .def("forward", &Handle::forward);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ramify, m) {
  m.class_<ForestHandle>("Forest").def(torch::init<at::Tensor, at::Tensor, at::Tensor, std::string>());
  module_class<LayerHandle>(m, "Layer").def(torch::init<std::string, int64_t, int64_t>());
  module_class<EncoderHandle>(m, "Encoder").def(torch::init<std::string>()).def("node_mass", &EncoderHandle::node_mass);
  module_class<ModelHandle>(m, "Model").def(torch::init<std::string>()).def("node_mass", &ModelHandle::node_mass);
  m.def("encoder_config(str text) -> str",
        [](std::string_view text) { return EncoderConfig::from_json(text).to_json(); });
}

}  // namespace ramify::nn
