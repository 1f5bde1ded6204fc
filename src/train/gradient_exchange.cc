#include "train/gradient_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ops/table_rows.h"

namespace ramify::train {
namespace {

bool is_among(const at::Tensor& tensor, const std::vector<at::Tensor>& others) {
  return std::ranges::any_of(others, [&](const at::Tensor& other) { return other.is_same(tensor); });
}

class CallWhenAccumulated final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit CallWhenAccumulated(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { call_(); }

 private:
  std::function<void()> call_;
};

}  // namespace

// Dense gradients.
class GradientExchange::Buckets {
 public:
  Buckets(ProcessGroup& group, std::vector<at::Tensor> parameters, int64_t bucket_bytes)
      : group_(group), parameters_(std::move(parameters)) {
    std::ranges::reverse(parameters_);  // backward reaches the last one first
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const at::Tensor& parameter = parameters_[p];
      if (buckets_.empty() || buckets_.back().bytes >= bucket_bytes || !fits(parameter, buckets_.back())) {
        buckets_.emplace_back();
      }
      Bucket& bucket = buckets_.back();
      places_.push_back({.bucket = buckets_.size() - 1, .begin = bucket.numel});
      bucket.parameters.push_back(p);
      bucket.numel += parameter.numel();
      bucket.bytes += static_cast<int64_t>(parameter.nbytes());
      torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                     std::make_unique<CallWhenAccumulated>([this, p] { take(p); }));
    }
    for (Bucket& bucket : buckets_) {
      bucket.flat = at::empty({bucket.numel}, parameters_[bucket.parameters.front()].detach().options());
    }
  }
  ~Buckets() {
    for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }

  size_t num_parameters() const { return parameters_.size(); }
  const std::vector<double>& has_gradient() const { return has_gradient_; }

  void begin() {
    has_gradient_.assign(parameters_.size(), 0);
    for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
    next_ = 0;
    is_open_ = true;
  }

  // Sends what backward has not completed; there the gradient is 0.
  void send_rest() {
    is_open_ = false;
    for (; next_ < buckets_.size(); ++next_) {
      for (const size_t p : buckets_[next_].parameters) {
        if (has_gradient_[p] == 0) piece(p).zero_();
      }
      send(buckets_[next_]);
    }
  }

  // Once all have sent: the gradients are the sums divided by `weight`; none where `somewhere` is 0.
  void finish(std::span<const double> somewhere, double weight) {
    for (Bucket& bucket : buckets_) {
      bucket.wait();
      bucket.wait = nullptr;
      bucket.flat.div_(weight);
    }
    for (size_t p = 0; p < parameters_.size(); ++p) {
      at::Tensor& gradient = parameters_[p].mutable_grad();
      gradient = somewhere[p] > 0 ? piece(p).view_as(parameters_[p]) : at::Tensor();
    }
  }

 private:
  struct Bucket {
    std::vector<size_t> parameters;
    int64_t numel = 0, bytes = 0;
    at::Tensor flat;     // their gradients, one behind the other
    size_t missing = 0;  // parameters that backward has not reached
    ProcessGroup::Wait wait;
  };
  struct Place {
    size_t bucket;
    int64_t begin;
  };

  bool fits(const at::Tensor& parameter, const Bucket& bucket) const {
    const at::Tensor& other = parameters_[bucket.parameters.front()];
    return other.scalar_type() == parameter.scalar_type() && other.device() == parameter.device();
  }

  at::Tensor piece(size_t p) const {
    return buckets_[places_[p].bucket].flat.narrow(0, places_[p].begin, parameters_[p].numel());
  }

  // Called by backward. Buckets are sent in their order, which is the same everywhere, whatever becomes complete first.
  void take(size_t p) {
    if (!is_open_) return;
    const at::NoGradGuard no_grad;
    piece(p).copy_(parameters_[p].grad().reshape({-1}));
    has_gradient_[p] = 1;
    --buckets_[places_[p].bucket].missing;
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) send(buckets_[next_]);
  }

  void send(Bucket& bucket) { bucket.wait = group_.sum(bucket.flat); }

  ProcessGroup& group_;
  std::vector<at::Tensor> parameters_;
  std::vector<Place> places_;
  std::vector<Bucket> buckets_;
  std::vector<double> has_gradient_;  // 0 or 1
  size_t next_ = 0;                   // bucket to be sent
  bool is_open_ = false;
};

// Gradients of some rows.
class GradientExchange::Tables {
 public:
  Tables(ProcessGroup& group, std::vector<at::Tensor> tables) : group_(group), tables_(std::move(tables)) {}

  size_t num_tables() const { return tables_.size(); }

  // How many rows of each table have a gradient here.
  std::vector<double> count_rows() {
    std::vector<double> counts;
    for (const at::Tensor& table : tables_) {
      at::Tensor& gradient = table.mutable_grad();
      if (gradient.defined()) gradient = in_row_order(gradient);
      counts.push_back(gradient.defined() ? static_cast<double>(gradient._indices().size(1)) : 0);
    }
    return counts;
  }

  // `counts` [processes, tables]: what count_rows() gave in each process.
  void exchange(std::span<const double> counts, double weight) {
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::vector<int64_t> rows;
      for (size_t i = t; i < counts.size(); i += tables_.size()) rows.push_back(static_cast<int64_t>(counts[i]));
      exchange_table(tables_[t], rows, weight);
    }
  }

 private:
  // `rows`: how many each process has.
  void exchange_table(const at::Tensor& table, const std::vector<int64_t>& rows, double weight) {
    int64_t sum = 0;
    for (const int64_t count : rows) sum += count;
    at::Tensor& gradient = table.mutable_grad();
    if (sum == 0) {
      gradient.reset();
    } else if (sum >= 2 * table.size(0)) {  // a dense sum sends every row twice
      gradient = gradient.defined() ? gradient.to_dense() : at::zeros(table.sizes(), table.detach().options());
      group_.sum(gradient)();
      gradient.div_(weight);
    } else {
      gradient = gathered(table, rows, weight);
    }
  }

  // The rows of all, in the order of ranks; AdamW adds up those that come twice. One message: row numbers, then values.
  at::Tensor gathered(const at::Tensor& table, const std::vector<int64_t>& rows, double weight) {
    const int64_t most = *std::ranges::max_element(rows), width = table.size(1);
    const at::Tensor own = at::zeros({most * (2 + width)}, table.detach().options());
    const auto numbers = [&](const at::Tensor& message) { return message.narrow(0, 0, 2 * most).view(at::kLong); };
    const auto values = [&](const at::Tensor& message) {
      return message.narrow(0, 2 * most, most * width).view({most, width});
    };
    const int64_t count = rows[static_cast<size_t>(group_.rank())];
    if (count > 0) {
      numbers(own).narrow(0, 0, count).copy_(table.grad()._indices().view({-1}));
      values(own).narrow(0, 0, count).copy_(table.grad()._values());
    }
    std::vector<at::Tensor> all_numbers, all_values;
    const std::vector<at::Tensor> all = group_.gather(own);
    for (size_t r = 0; r < all.size(); ++r) {
      all_numbers.push_back(numbers(all[r]).narrow(0, 0, rows[r]));
      all_values.push_back(values(all[r]).narrow(0, 0, rows[r]));
    }
    const at::Tensor gradient =
        at::_sparse_coo_tensor_unsafe(at::cat(all_numbers).unsqueeze(0), at::cat(all_values).div_(weight),
                                      table.sizes(), table.detach().options().layout(at::kSparse));
    return in_row_order(gradient);
  }

  ProcessGroup& group_;
  std::vector<at::Tensor> tables_;
};

GradientExchange::GradientExchange(ProcessGroup& group, const std::vector<at::Tensor>& parameters,
                                   const std::vector<at::Tensor>& row_tables, int64_t bucket_bytes)
    : group_(group) {
  std::vector<at::Tensor> dense, tables;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) (is_among(parameter, row_tables) ? tables : dense).push_back(parameter);
  }
  buckets_ = std::make_unique<Buckets>(group, std::move(dense), bucket_bytes);
  tables_ = std::make_unique<Tables>(group, std::move(tables));
}

GradientExchange::~GradientExchange() = default;

bool GradientExchange::backward(const Part& part) {
  buckets_->begin();
  if (part.loss.defined()) (part.loss * part.weight).backward();
  const at::NoGradGuard no_grad;
  buckets_->send_rest();
  // one message for all that is small: weight, wish to end, parameters with a gradient, rows of tables by process
  const size_t parameters = buckets_->num_parameters(), tables = tables_->num_tables();
  const at::Tensor sums = at::zeros({static_cast<int64_t>(2 + parameters + tables * group_.size())}, at::kDouble);
  const std::span numbers(sums.mutable_data_ptr<double>(), static_cast<size_t>(sums.numel()));
  const auto has_gradient = numbers.subspan(2, parameters), rows = numbers.subspan(2 + parameters);
  numbers[0] = part.weight;
  numbers[1] = part.stop ? 1 : 0;
  std::ranges::copy(buckets_->has_gradient(), has_gradient.begin());
  std::ranges::copy(tables_->count_rows(), rows.subspan(tables * group_.rank()).begin());
  group_.sum(sums)();
  const double weight = std::max(1.0, numbers[0]);  // of rows without a target there may be none
  tables_->exchange(rows, weight);
  buckets_->finish(has_gradient, weight);
  return numbers[1] > 0;
}

}  // namespace ramify::train
