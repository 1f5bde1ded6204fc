// The vectors of leaves, modality by modality.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ramify/nn/batch.h"
#include "ramify/nn/layer.h"
#include "ramify/nn/module.h"

namespace ramify::nn {

class LeafEmbedding : public Module {
 public:
  explicit LeafEmbedding(std::vector<Modality> modalities);  // with their widths

  // The leaves of each modality that occurs; one alone has all leaves. Throws c10::ValueError unless every leaf of the
  // batch is there once.
  std::vector<LeafRows> forward(const Batch& batch) const;

  // Kinds of rows, as layers know them.
  std::vector<LayerKind> kinds() const;

  const at::Tensor& table(std::string_view modality) const;
  at::Tensor rows(std::string_view modality, const at::Tensor& ids) const;  // of its table
  void set_table(std::string_view modality, const at::Tensor& values, bool trainable);
  void set_table_gradient(TableGradient gradient) { table_gradient_ = gradient; }
  std::vector<at::Tensor> row_tables() const;  // that have gradients of some rows

 private:
  class Vectors;  // of one modality
  size_t table_place(std::string_view modality) const;

  std::vector<Modality> modalities_;
  TableGradient table_gradient_ = TableGradient::dense;
  std::vector<std::shared_ptr<Vectors>> vectors_;
};

}  // namespace ramify::nn
