// Gradients of a batch that several processes share, against those of one process with all of it.
#include "train/gradient_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <numeric>

#include "generators/thread_group.h"
#include "ops/table_rows.h"
#include "train/replicas.h"

namespace ramify::train {
namespace {

using testing::Exchange;
using testing::run_members;

class ThreadGroup final : public ProcessGroup {
 public:
  ThreadGroup(Exchange<at::Tensor>& exchange, int64_t rank, int64_t size)
      : exchange_(exchange), rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  Wait sum(const at::Tensor& tensor) override {
    at::Tensor sum = at::zeros_like(tensor);
    for (const at::Tensor& one : gather(tensor)) sum += one;
    return [tensor, sum] { tensor.copy_(sum); };
  }
  std::vector<at::Tensor> gather(const at::Tensor& own) override { return exchange_.gather(rank_, own.clone()); }
  void copy_from_first(const at::Tensor& tensor) override { tensor.copy_(gather(tensor).front()); }
  bool is_first_to_report() override { return true; }
  void leave() override {}

 private:
  Exchange<at::Tensor>& exchange_;
  int64_t rank_, size_;
};

// A table and two matrices, of which `second` is only used by rows that are told to.
struct SmallModel {
  SmallModel() {
    at::manual_seed(7);
    table = at::randn({kWords, 4}).requires_grad_();
    first = at::randn({4, 3}).requires_grad_();
    second = at::randn({4, 3}).requires_grad_();
    unused = at::randn({5}).requires_grad_();
  }
  std::vector<at::Tensor> parameters() const { return {table, first, second, unused}; }
  at::Tensor loss(const at::Tensor& ids, bool uses_second) const {
    const at::Tensor rows = table_rows(table, ids, TableGradient::rows);
    const at::Tensor outputs = at::mm(rows, uses_second ? first + second : first);
    return outputs.square().mean();
  }
  static constexpr int64_t kWords = 40;
  at::Tensor table, first, second, unused;
};

at::Tensor dense(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.to_dense() : gradient;
}

// The words of each process's part of the batch; none: it has no part.
using Parts = std::vector<std::vector<int64_t>>;

void check_against_one_process(const Parts& parts, bool only_last_uses_second) {
  const auto size = static_cast<int64_t>(parts.size());
  std::vector<SmallModel> models(parts.size());
  Exchange<at::Tensor> exchange(size);
  run_members(size, [&](int64_t rank) {
    const SmallModel& model = models[static_cast<size_t>(rank)];
    ThreadGroup group(exchange, rank, size);
    GradientExchange gradients(group, model.parameters(), {model.table}, /*bucket_bytes=*/1);
    for (int step = 0; step < 2; ++step) {  // the second one must not see the first
      for (at::Tensor parameter : model.parameters()) parameter.mutable_grad().reset();
      const std::vector<int64_t>& words = parts[static_cast<size_t>(rank)];
      GradientExchange::Part part{.weight = static_cast<double>(words.size()), .stop = step == 1 && rank == 0};
      if (!words.empty()) part.loss = model.loss(at::tensor(words), !only_last_uses_second || rank == size - 1);
      EXPECT_EQ(gradients.backward(part), step == 1);
    }
  });

  SmallModel whole;
  at::Tensor sum = at::zeros({});
  double rows = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].empty()) continue;
    sum = sum + whole.loss(at::tensor(parts[r]), !only_last_uses_second || r + 1 == parts.size()) *
                    static_cast<double>(parts[r].size());
    rows += static_cast<double>(parts[r].size());
  }
  (sum / rows).backward();
  for (const SmallModel& model : models) {
    const auto given = model.parameters(), wanted = whole.parameters();
    for (size_t p = 0; p < given.size(); ++p) {
      ASSERT_EQ(given[p].grad().defined(), wanted[p].grad().defined()) << p;
      if (!given[p].grad().defined()) continue;
      EXPECT_TRUE(at::allclose(dense(given[p].grad()), dense(wanted[p].grad()), 1e-5, 1e-6)) << p;
      EXPECT_TRUE(at::equal(dense(given[p].grad()), dense(models[0].parameters()[p].grad()))) << p;
    }
  }
}

TEST(GradientExchangeTest, IsTheGradientOfTheWholeBatchByItsRows) {
  check_against_one_process({{1, 5, 5, 9}, {2, 5}}, false);
  check_against_one_process({{1}, {2, 5, 7, 8, 9, 30, 39}, {3, 3}}, false);
}

TEST(GradientExchangeTest, TakesAParameterThatOnlyOneProcessUses) {
  check_against_one_process({{1, 5, 5, 9}, {2, 5}}, true);
}

TEST(GradientExchangeTest, TakesProcessesWithoutAPart) {
  check_against_one_process({{1, 5, 5, 9}, {}, {2, 5}, {}}, true);
}

TEST(GradientExchangeTest, SumsAWholeTableWhereRowsWouldBeMore) {
  std::vector<int64_t> all(SmallModel::kWords);
  std::iota(all.begin(), all.end(), 0);
  check_against_one_process({all, all, all}, false);
}

TEST(ReplicasTest, TellAndGatherWhatOthersHave) {
  Exchange<at::Tensor> exchange(3);
  run_members(3, [&](int64_t rank) {
    const Replicas replicas(std::make_shared<ThreadGroup>(exchange, rank, 3));
    EXPECT_EQ(replicas.gather(std::string(static_cast<size_t>(rank), 'x')), (std::vector<std::string>{"", "x", "xx"}));
    EXPECT_EQ(replicas.gather(""), std::vector<std::string>(3));
    EXPECT_EQ(replicas.tell(rank == 0 ? "said" : "not this"), "said");
    EXPECT_TRUE(replicas.any(rank == 2));
    EXPECT_FALSE(replicas.any(false));
  });
}

TEST(ReplicasTest, NoticeWeightsThatDiffer) {
  Exchange<at::Tensor> exchange(2);
  run_members(2, [&](int64_t rank) {
    const Replicas replicas(std::make_shared<ThreadGroup>(exchange, rank, 2));
    at::Tensor weights = at::arange(7, at::kFloat);
    EXPECT_TRUE(replicas.are_alike({weights, weights}));
    if (rank == 1) weights[6] += 1e-6;
    EXPECT_FALSE(replicas.are_alike({weights, at::arange(7)}));
  });
}

TEST(ReplicasTest, EndTogetherWhenTheFirstFails) {
  Exchange<at::Tensor> exchange(2);
  run_members(2, [&](int64_t rank) {
    const Replicas replicas(std::make_shared<ThreadGroup>(exchange, rank, 2));
    const auto fail = [] { throw std::runtime_error("the disk is full"); };
    if (rank == 0) {
      EXPECT_THROW(replicas.on_first(fail), std::runtime_error);
    } else {
      EXPECT_THROW(replicas.on_first(fail), FailedElsewhere);
    }
  });
}

}  // namespace
}  // namespace ramify::train
