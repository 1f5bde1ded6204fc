// A model as training sees it: a row of outputs for every range of leaves of a batch, however it comes about.
#pragma once

#include <optional>

#include "ramify/nn/encoder.h"

namespace ramify::nn {

struct ParameterCounts {
  int64_t encoder = 0;  // projections, norms, head: what does not grow with the data
  int64_t tables = 0;   // vectors of ids, of fields of numbers and of keys, frozen or not
  int64_t total() const { return encoder + tables; }
};

class Network : public Module {
 public:
  // leaf_begin, leaf_end [n] int64, on the CPU or the device: leaves of the batch, [begin, end). -> [n, outputs]
  // float32. The same whatever else is in the batch, up to rounding.
  virtual at::Tensor forward(const Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const = 0;

  virtual const ModelInputs& inputs() const = 0;         // what batches have to have
  virtual void prepare(const Batch& /*batch*/) const {}  // what can be done ahead of forward, in another thread

  // The share of attention that every leaf of the batch gets, the mean over layers: [leaves] float64, on the CPU.
  // Undefined: there is nothing to be said.
  virtual at::Tensor leaf_mass(const Batch& batch) const = 0;

  // The share of weights of sparse attention that are exactly 0, the mean over the layers that are sparse; none if none
  // is.
  virtual std::optional<double> zero_weights(const Batch& /*batch*/) const { return std::nullopt; }

  virtual ParameterCounts parameter_counts() const = 0;

  // Dense ones are the default. Rows only are what train::AdamW takes without a pass over the whole table.
  virtual void set_table_gradient(TableGradient /*gradient*/) {}
  // The tables whose gradients have rows only, as things stand.
  virtual std::vector<at::Tensor> row_tables() const { return {}; }

  // The type of matrix products and attention: at::kFloat (that of the parameters) or at::kBFloat16.
  virtual void set_compute_dtype(at::ScalarType dtype) = 0;
};

}  // namespace ramify::nn
