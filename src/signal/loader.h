// The batches of an epoch, in an order that depends on (seed, epoch) alone, collated ahead by worker threads.
//
//   Loader loader(dataset, records, {.batch_records = 32, .seed = 7});
//   for (int64_t epoch = 0; epoch < epochs; ++epoch) {
//     loader.start(epoch);                     // start(epoch, b): resume before batch b
//     while (auto batch = loader.next()) step(*batch);
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "signal/batch.h"
#include "signal/dataset.h"
#include "signal/shares.h"

namespace ramify::signal {

enum class Order { shuffled, as_given };
enum class Sharing {
  records,  // of every batch a part, all with about as many leaves; a part may be empty
  batches,  // whole ones, in turn
};
enum class GraphSigns { as_computed, flipped };  // flipped: at random, for training

struct LoaderOptions {
  int64_t batch_records = 32;  // at most
  int64_t batch_leaves = 0;    // at most, except for a single record that has more; 0: any number
  Order order = Order::shuffled;
  uint64_t seed = 0;
  Structure structure = Structure::hierarchical;
  GraphSigns graph_signs = GraphSigns::as_computed;
  int64_t rank = 0, ranks = 1;  // of processes that share the batches
  Sharing sharing = Sharing::records;
  int threads = 1;
  int64_t prefetch = 4;  // batches held ready; 0: collated by next() itself, without threads
};

class Loader {
 public:
  // `records`: the part of the data set to be used. The data set must outlive the loader.
  Loader(const Dataset& dataset, std::vector<int64_t> records, const LoaderOptions& options);
  Loader(const Dataset& dataset, const LoaderOptions& options);  // all records
  ~Loader();

  int64_t num_records() const;
  // The record numbers of each batch of an epoch, all processes together. Their number can differ by epoch where
  // batch_leaves is given.
  std::vector<std::vector<int64_t>> batches(int64_t epoch) const;

  void start(int64_t epoch, int64_t first_batch = 0);
  int64_t num_batches() const;  // that next() gives in the epoch that was started
  std::optional<Batch> next();  // none at the end of the epoch

 private:
  class State;
  std::unique_ptr<State> state_;
};

// 0, 1, ..., n - 1 in an order that is the same on every machine and with every compiler.
std::vector<int64_t> shuffled(int64_t n, uint64_t seed, uint64_t round);

struct Split {
  std::vector<int64_t> train, valid;  // ascending
};
// round(fraction * n) records, drawn at random, are for validation; at least one of each if n > 1.
Split split_records(int64_t n, double valid_fraction, uint64_t seed);

}  // namespace ramify::signal
