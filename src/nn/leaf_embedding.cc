#include "nn/leaf_embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randn.h>

#include <algorithm>

#include "ops/table_rows.h"

namespace ramify::nn {
namespace {

// Queries and keys are normalised behind their projection, so scales matter beside the projection's bias only: a vector
// that has learned nothing yet (a rare word) should not outweigh it.
constexpr double kIdDeviation = 0.1;
// Numbers are few and all of them learn; bias and slope count alike for a value of 1.
constexpr double kNumberDeviation = 0.5;

constexpr double kByteScale = 1.0 / 255;

int64_t num_rows(const LeafInput& input) {
  return input.id.defined() ? input.id.size(0) : input.value.defined() ? input.value.size(0) : 0;
}

}  // namespace

class LeafEmbedding::Vectors : public Module {
 public:
  explicit Vectors(const Modality& modality) : modality_(modality) {
    const int64_t size = modality.size, width = modality.width;
    if (modality.feature == Feature::ids) register_parameter("table", at::randn({size, width}) * kIdDeviation);
    if (modality.feature == Feature::numbers) {
      register_parameter("bias", at::randn({size, width}) * kNumberDeviation);
      register_parameter("slope", at::randn({size, width}) * kNumberDeviation);
    }
  }

  // [n, width]
  at::Tensor forward(const LeafInput& input, TableGradient gradient) const {
    check(input);
    if (modality_.feature == Feature::ids) return table_rows(table(), input.id, gradient);
    const at::Tensor value =
        input.value.scalar_type() == at::kByte ? input.value.to(at::kFloat) * kByteScale : input.value;
    if (modality_.feature == Feature::dense) return value;
    const at::Tensor bias = at::embedding(parameter("bias"), input.id);
    return bias + value.to(bias.scalar_type()).unsqueeze(1) * at::embedding(parameter("slope"), input.id);
  }

  const at::Tensor& table() const { return parameter("table"); }

  void set_table(const at::Tensor& values, bool trainable) {
    at::Tensor& table = parameters_["table"];
    TORCH_CHECK_VALUE(values.sizes() == table.sizes(), "set_table: vectors of ", modality_.name, " have shape ",
                      values.sizes(), "; expected ", table.sizes());
    table = values.detach().to(table.options(), /*non_blocking=*/false, /*copy=*/true).requires_grad_(trainable);
  }

 private:
  void check(const LeafInput& input) const {
    const int64_t n = num_rows(input);
    const auto require = [&](bool condition, const char* expected) {
      TORCH_CHECK_VALUE(condition, "encoder: leaves of ", modality_.name, ": expected ", expected);
    };
    if (modality_.feature != Feature::dense) {
      require(input.id.defined() && input.id.dim() == 1 && input.id.scalar_type() == at::kLong, "id [n], int64");
    }
    if (modality_.feature == Feature::numbers) {
      require(input.value.defined() && input.value.dim() == 1 && input.value.size(0) == n, "value [n]");
    }
    if (modality_.feature == Feature::dense) {
      TORCH_CHECK_VALUE(input.value.dim() == 2 && input.value.size(1) == modality_.size, "encoder: leaves of ",
                        modality_.name, " have shape ", input.value.sizes(), "; expected [n, ", modality_.size, "]");
    }
    if (input.leaf.defined()) require(input.leaf.dim() == 1 && input.leaf.size(0) == n, "one leaf number a row");
  }

  Modality modality_;
};

LeafEmbedding::LeafEmbedding(std::vector<Modality> modalities) : modalities_(std::move(modalities)) {
  for (const Modality& modality : modalities_) {
    vectors_.push_back(register_module(modality.name, std::make_shared<Vectors>(modality)));
  }
}

namespace {

// Of tensors on the CPU; elsewhere a look at the values would wait for the device.
void check_every_leaf_once(const std::vector<LeafRows>& rows, int64_t num_leaves) {
  if (!std::ranges::all_of(rows, [](const LeafRows& part) { return part.leaves.is_cpu(); })) return;
  std::vector<bool> seen(num_leaves, false);
  for (const LeafRows& part : rows) {
    const at::Tensor leaves = part.leaves.contiguous();
    const int64_t* leaf = leaves.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < leaves.numel(); ++i) {
      TORCH_CHECK_VALUE(leaf[i] >= 0 && leaf[i] < num_leaves && !seen[leaf[i]], "encoder: leaf ", leaf[i],
                        leaf[i] >= 0 && leaf[i] < num_leaves ? " comes twice" : " is out of range",
                        "; expected every leaf of the forest once");
      seen[leaf[i]] = true;
    }
  }
}

}  // namespace

std::vector<LeafRows> LeafEmbedding::forward(const Batch& batch) const {
  TORCH_CHECK_VALUE(batch.leaves.size() == vectors_.size(), "encoder: the batch has leaves of ", batch.leaves.size(),
                    " modalities, the encoder has ", vectors_.size());
  std::vector<LeafRows> rows;
  int64_t count = 0;
  for (size_t m = 0; m < vectors_.size(); ++m) {
    const LeafInput& input = batch.leaves[m];
    if (num_rows(input) == 0) continue;
    count += num_rows(input);
    rows.push_back({m, vectors_[m]->forward(input, table_gradient_), input.leaf});
  }
  const int64_t num_leaves = batch.forest.forest().num_leaves();
  TORCH_CHECK_VALUE(count == num_leaves, "encoder: ", count, " rows of leaves, the forest has ", num_leaves,
                    " leaves; they must be equal");
  if (rows.size() == 1) {
    rows[0].leaves = at::Tensor();  // all of them, in their order
  } else {
    for (const LeafRows& part : rows) {
      TORCH_CHECK_VALUE(part.leaves.defined() && part.leaves.scalar_type() == at::kLong, "encoder: leaves of ",
                        modalities_[part.kind].name, ": expected leaf [n], int64, where several modalities meet");
    }
    check_every_leaf_once(rows, num_leaves);
  }
  return rows;
}

std::vector<LayerKind> LeafEmbedding::kinds() const {
  std::vector<LayerKind> kinds;
  for (const Modality& modality : modalities_) {
    kinds.push_back({modality.name, modality.feature == Feature::dense ? modality.size : modality.width});
  }
  return kinds;
}

size_t LeafEmbedding::table_place(std::string_view modality) const {
  for (size_t m = 0; m < modalities_.size(); ++m) {
    if (modalities_[m].name == modality && modalities_[m].feature == Feature::ids) return m;
  }
  TORCH_CHECK_VALUE(false, "encoder: no modality of ids is called ", modality);
}

const at::Tensor& LeafEmbedding::table(std::string_view modality) const {
  return vectors_[table_place(modality)]->table();
}

at::Tensor LeafEmbedding::rows(std::string_view modality, const at::Tensor& ids) const {
  return table_rows(table(modality), ids, table_gradient_);
}

std::vector<at::Tensor> LeafEmbedding::row_tables() const {
  std::vector<at::Tensor> tables;
  for (size_t m = 0; m < modalities_.size(); ++m) {
    if (modalities_[m].feature != Feature::ids) continue;
    const at::Tensor& table = vectors_[m]->table();
    if (table.requires_grad() && has_row_gradient(table, table_gradient_)) tables.push_back(table);
  }
  return tables;
}

void LeafEmbedding::set_table(std::string_view modality, const at::Tensor& values, bool trainable) {
  vectors_[table_place(modality)]->set_table(values, trainable);
}

}  // namespace ramify::nn
