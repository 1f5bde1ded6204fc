// Gradients of a batch whose records are divided between processes: each computes those of its own part, and all get
// those of the whole.
//
// Parameters lie in buckets, those that backward reaches first in the first one. A bucket whose gradients are complete
// is sent while backward goes on. Tables whose gradients have only some rows (TableGradient::rows) send those rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "train/process_group.h"

namespace ramify::train {

class GradientExchange {
 public:
  // In the order in which forward uses the parameters, which is the same everywhere; those that do not learn are left
  // out. `row_tables`: those of them whose gradients are sparse, wherever they have one. `bucket_bytes`: a bucket is
  // full with the parameter that passes it.
  GradientExchange(ProcessGroup& group, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& row_tables, int64_t bucket_bytes);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // What a process has to do with a batch.
  struct Part {
    at::Tensor loss;    // a mean over its rows; undefined: it has no part in this batch
    double weight = 0;  // how many rows that are
    bool stop = false;  // it wants to end
  };
  // Afterwards parameters have the gradients of the mean over all rows, bit for bit the same everywhere, and none where
  // no process has one. Gives whether any process wants to end.
  bool backward(const Part& part);

 private:
  class Buckets;
  class Tables;
  std::unique_ptr<Buckets> buckets_;
  std::unique_ptr<Tables> tables_;
  ProcessGroup& group_;
};

}  // namespace ramify::train
