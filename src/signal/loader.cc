#include "signal/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "signal/random.h"

namespace ramify::signal {
namespace {

constexpr uint64_t kSplitRound = ~uint64_t{0};  // an epoch that no training reaches

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

}  // namespace

std::vector<int64_t> shuffled(int64_t n, uint64_t seed, uint64_t round) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed, round);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);  // Fisher-Yates
  return order;
}

Split split_records(int64_t n, double valid_fraction, uint64_t seed) {
  require(valid_fraction >= 0 && valid_fraction < 1, "the fraction for validation must be at least 0 and less than 1");
  int64_t count = std::llround(valid_fraction * static_cast<double>(n));
  if (n > 1 && valid_fraction > 0) count = std::clamp<int64_t>(count, 1, n - 1);
  const std::vector<int64_t> order = shuffled(n, seed, kSplitRound);
  Split split;
  split.valid.assign(order.begin(), order.begin() + count);
  split.train.assign(order.begin() + count, order.end());
  std::sort(split.valid.begin(), split.valid.end());
  std::sort(split.train.begin(), split.train.end());
  return split;
}

// Workers collate the batches of the epoch in turn; next() hands them out in order.
class Loader::State {
 public:
  State(const Dataset& dataset, std::vector<int64_t> records, const LoaderOptions& options)
      : dataset_(dataset), records_(std::move(records)), options_(options) {
    require(options.batch_records >= 1, "batch_records must be at least 1");
    require(options.batch_leaves >= 0, "batch_leaves must not be negative");
    require(options.prefetch >= 0, "prefetch must not be negative");
  }
  ~State() { stop(); }

  int64_t num_records() const { return static_cast<int64_t>(records_.size()); }
  int64_t num_batches() const { return static_cast<int64_t>(batches_.size()); }

  std::vector<std::vector<int64_t>> batches(int64_t epoch) const {
    std::vector<std::vector<int64_t>> batches;
    int64_t leaves = 0;
    const auto add = [&](int64_t record) {
      const int64_t own = dataset_[record].num_leaves();
      const bool is_full = !batches.empty() && (static_cast<int64_t>(batches.back().size()) == options_.batch_records ||
                                                (options_.batch_leaves > 0 && leaves + own > options_.batch_leaves));
      if (batches.empty() || is_full) {
        batches.emplace_back();
        leaves = 0;
      }
      batches.back().push_back(record);
      leaves += own;
    };
    if (options_.order == Order::as_given) {
      for (const int64_t record : records_) add(record);
    } else {
      const auto order = shuffled(num_records(), options_.seed, static_cast<uint64_t>(epoch));
      for (const int64_t i : order) add(records_[static_cast<size_t>(i)]);
    }
    return batches;
  }

  void start(int64_t epoch, int64_t first_batch) {
    stop();
    batches_ = own_part(batches(epoch));
    if (first_batch < 0 || first_batch > num_batches()) {
      throw std::invalid_argument(
          fmt::format("batch {} of an epoch of {} batches is asked for", first_batch, num_batches()));
    }
    epoch_ = epoch;
    next_to_collate_ = next_to_give_ = first_batch;
    is_stopped_ = false;
    error_ = nullptr;
    ready_.clear();
    const int threads = options_.prefetch == 0 ? 0 : std::max(1, options_.threads);
    for (int t = 0; t < threads; ++t) workers_.emplace_back([this] { work(); });
  }

  std::optional<Batch> next() {
    if (next_to_give_ >= num_batches()) return std::nullopt;
    if (options_.prefetch == 0) return make(next_to_give_++);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || ready_.contains(next_to_give_); });
    if (error_) std::rethrow_exception(error_);
    std::optional<Batch> batch = std::move(ready_.extract(next_to_give_++).mapped());
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

 private:
  using Batches = std::vector<std::vector<int64_t>>;

  Batches own_part(Batches all) const {
    if (options_.ranks == 1) return all;
    Batches own;
    for (size_t b = 0; b < all.size(); ++b) {
      if (options_.sharing == Sharing::records) {
        own.push_back(own_records(all[b]));
      } else if (static_cast<int64_t>(b) % options_.ranks == options_.rank) {
        own.push_back(std::move(all[b]));
      }
    }
    return own;
  }

  std::vector<int64_t> own_records(const std::vector<int64_t>& batch) const {
    std::vector<int64_t> leaves, own;
    for (const int64_t record : batch) leaves.push_back(dataset_[record].num_leaves());
    for (const int64_t place : balanced_share(leaves, options_.rank, options_.ranks)) {
      own.push_back(batch[static_cast<size_t>(place)]);
    }
    return own;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    workers_.clear();  // joins
  }

  void work() {
    for (;;) {
      int64_t number = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return is_stopped_ || next_to_collate_ >= num_batches() ||
                 next_to_collate_ < next_to_give_ + options_.prefetch;
        });
        if (is_stopped_ || next_to_collate_ >= num_batches()) return;
        number = next_to_collate_++;
      }
      try {
        Batch batch = make(number);
        const std::lock_guard lock(mutex_);
        ready_.emplace(number, std::move(batch));
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      changed_.notify_all();
    }
  }

  Batch make(int64_t number) const {
    const std::vector<int64_t>& records = batches_[static_cast<size_t>(number)];
    if (records.empty()) return {};  // the other processes have it
    std::vector<const Signal*> signals;
    for (const int64_t record : records) signals.push_back(&dataset_[record]);
    CollateOptions collating = {.structure = options_.structure};
    if (options_.graph_signs == GraphSigns::flipped) {
      collating.flip_signs_seed =
          Random(options_.seed, static_cast<uint64_t>(epoch_), static_cast<uint64_t>(number)).next();
    }
    Batch batch = collate(signals, *dataset_.schema(), collating);
    batch.records = records;
    return batch;
  }

  const Dataset& dataset_;
  const std::vector<int64_t> records_;
  const LoaderOptions options_;
  std::vector<std::vector<int64_t>> batches_;  // of the epoch
  int64_t epoch_ = 0;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<int64_t, Batch> ready_;
  int64_t next_to_collate_ = 0;
  int64_t next_to_give_ = 0;
  std::exception_ptr error_;
  bool is_stopped_ = false;
  std::vector<std::jthread> workers_;
};

Loader::Loader(const Dataset& dataset, std::vector<int64_t> records, const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset, std::move(records), options)) {}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : Loader(dataset, dataset.all_records(), options) {}

Loader::~Loader() = default;

int64_t Loader::num_records() const {
  return state_->num_records();
}
std::vector<std::vector<int64_t>> Loader::batches(int64_t epoch) const {
  return state_->batches(epoch);
}
void Loader::start(int64_t epoch, int64_t first_batch) {
  state_->start(epoch, first_batch);
}
int64_t Loader::num_batches() const {
  return state_->num_batches();
}
std::optional<Batch> Loader::next() {
  return state_->next();
}

}  // namespace ramify::signal
