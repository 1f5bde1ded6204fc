// An encoder with a head: a row of outputs for every range of leaves.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ramify/nn/network.h"

namespace ramify::nn {

class Model : public Network {
 public:
  Model(EncoderConfig config, std::vector<Modality> modalities, ModelInputs inputs, int64_t outputs);

  // A range is represented by the mean of its leaves or by the leaf that the config names (the nearest one, where the
  // range is shorter), an empty one by zeros.
  at::Tensor forward(const Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const override;

  // The representations before the head, [n, width].
  at::Tensor represent(const Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const;

  Encoding encode(const Batch& batch) const;
  at::Tensor node_mass(const Batch& batch, int64_t layer) const;
  at::Tensor leaf_mass(const Batch& batch) const override;
  std::optional<double> zero_weights(const Batch& batch) const override;
  void prepare(const Batch& batch) const override;
  const ModelInputs& inputs() const override { return encoder_->inputs(); }
  void set_table(std::string_view modality, const at::Tensor& values, bool trainable);
  void set_compute_dtype(at::ScalarType dtype) override;
  void set_table_gradient(TableGradient gradient) override;
  std::vector<at::Tensor> row_tables() const override;

  ParameterCounts parameter_counts() const override;
  int64_t outputs() const { return outputs_; }
  Encoder& encoder() { return *encoder_; }
  const Encoder& encoder() const { return *encoder_; }
  const EncoderConfig& config() const { return encoder_->config(); }

 private:
  int64_t outputs_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<Linear> hidden_, output_;  // of the head; hidden_ may be absent
};

}  // namespace ramify::nn
