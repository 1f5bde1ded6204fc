// An encoder with a head: a row of outputs for every range of leaves.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ramify/nn/encoder.h"

namespace ramify::nn {

struct ParameterCounts {
  int64_t encoder = 0;  // projections, norms, head: what does not grow with the data
  int64_t tables = 0;   // vectors of ids, of fields of numbers and of keys, frozen or not
  int64_t total() const { return encoder + tables; }
};

class Model : public Module {
 public:
  Model(EncoderConfig config, std::vector<Modality> modalities, ModelInputs inputs, int64_t outputs);

  // leaf_begin, leaf_end [n] int64, on the CPU or the device: leaves of the batch, [begin, end). A range is represented
  // by the mean of its leaves or by the leaf that the config names (the nearest one, where the range is shorter), an
  // empty one by zeros. -> [n, outputs] float32. The same whatever else is in the batch, up to rounding.
  at::Tensor forward(const Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const;

  // The representations before the head, [n, width].
  at::Tensor represent(const Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const;

  Encoding encode(const Batch& batch) const;
  at::Tensor node_mass(const Batch& batch, int64_t layer) const;
  void set_table(std::string_view modality, const at::Tensor& values, bool trainable);
  void set_compute_dtype(at::ScalarType dtype);

  ParameterCounts parameter_counts() const;
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
