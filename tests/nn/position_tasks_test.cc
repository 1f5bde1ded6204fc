// Tasks that only positions can solve: which of two kinds of leaves stands at one certain position of a family whose
// leaves are always the same ones, in random order. Learned with the positions of a domain, a coin toss without.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "nn/records.h"

namespace ramify::nn {
namespace {

using testing::Record;
using testing::RecordBatch;

constexpr size_t kFamily = 6, kAsked = 4;  // leaves, and the place that the label is about

// Adam in its plainest form.
class Optimizer {
 public:
  Optimizer(std::vector<at::Tensor> parameters, double rate) : parameters_(std::move(parameters)), rate_(rate) {
    for (const at::Tensor& p : parameters_) mean_.push_back(at::zeros_like(p)), square_.push_back(at::zeros_like(p));
  }
  void step() {
    const at::NoGradGuard no_grad;
    ++steps_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].mutable_grad();
      if (!gradient.defined()) continue;
      mean_[i].mul_(0.9).add_(gradient, 0.1);
      square_[i].mul_(0.99).addcmul_(gradient, gradient, 0.01);
      const at::Tensor root = (square_[i] / (1 - std::pow(0.99, steps_))).sqrt_().add_(1e-8);
      parameters_[i].addcdiv_(mean_[i] / (1 - std::pow(0.9, steps_)), root, -rate_);
      gradient = at::Tensor();
    }
  }

 private:
  std::vector<at::Tensor> parameters_, mean_, square_;
  double rate_;
  int steps_ = 0;
};

testing::RecordPosition position(Domain domain, size_t place) {
  const auto number = static_cast<int64_t>(place);
  switch (domain) {
    case Domain::grid:  // two rows of three
      return {domain, 0, {static_cast<float>(place / 3), static_cast<float>(place % 3)}};
    case Domain::graph: {  // eigenvectors of a path
      std::vector<float> features;
      for (int k = 1; k <= testing::kGraphFeatures; ++k) {
        features.push_back(static_cast<float>(std::cos(M_PI * k * (static_cast<double>(place) + 0.5) / kFamily)));
      }
      return {domain, 0, features};
    }
    default:
      return {domain, number, {}};
  }
}

struct Task {
  RecordBatch input;
  at::Tensor label;
};

Task draw(Domain domain, std::mt19937_64& random, size_t records) {
  std::vector<Record> all;
  std::vector<int64_t> labels;
  for (size_t r = 0; r < records; ++r) {
    std::vector<int64_t> ids = {0, 0, 0, 1, 1, 1};
    std::ranges::shuffle(ids, random);
    Record record{{kFamily}, {}, {{}}};
    // Leaves are written in any order, so that only positions tell them apart.
    std::vector<size_t> places = {0, 1, 2, 3, 4, 5};
    std::ranges::shuffle(places, random);
    for (const size_t place : places) {
      record.tree.push_back(kItem);
      record.leaves.push_back({0, ids[place], {}});
      record.positions.push_back(position(domain, place));
    }
    labels.push_back(ids[kAsked]);
    all.push_back(std::move(record));
  }
  const std::vector<Modality> modalities = {{"token", Feature::ids, testing::kTokens}};
  return {testing::batch_of(all, modalities), testing::vector_tensor(labels)};
}

struct Trial {
  Domain domain;
  bool with_positions;
  Keys keys = Keys::learned;
  Frequencies fourier = Frequencies::fixed;
};

// Share of right answers on records that were not trained on.
double accuracy_after_training(const Trial& trial) {
  at::manual_seed(5);
  const EncoderConfig config = testing::small_config([&](EncoderConfig& c) {
    c.layers.resize(1);
    c.position_width = 32, c.keys = trial.keys, c.fourier = trial.fourier;
  });
  ModelInputs inputs{.num_keys = testing::kKeys, .graph_features = testing::kGraphFeatures};
  if (trial.with_positions) inputs.domains = {trial.domain};
  Model model(config, {{"token", Feature::ids, testing::kTokens}}, inputs, 2);
  Optimizer optimizer(model.parameters(), 0.01);
  std::mt19937_64 random(6);
  const auto outputs = [&](Task& task) {
    if (!trial.with_positions) task.input.batch.positions = {};
    return model.forward(task.input.batch, task.input.begin, task.input.end);
  };
  for (int step = 0; step < 300; ++step) {
    Task task = draw(trial.domain, random, 64);
    at::cross_entropy_loss(outputs(task), task.label).backward();
    optimizer.step();
  }
  Task test = draw(trial.domain, random, 1000);
  return (outputs(test).argmax(1) == test.label).to(at::kDouble).mean().item<double>();
}

TEST(PositionTasks, PlacesOfASequence) {
  EXPECT_GT(accuracy_after_training({Domain::sequence, true}), 0.95);
  EXPECT_NEAR(accuracy_after_training({Domain::sequence, false}), 0.5, 0.06);
}

TEST(PositionTasks, PlacesWithLearnedFrequencies) {
  EXPECT_GT(
      accuracy_after_training({.domain = Domain::sequence, .with_positions = true, .fourier = Frequencies::learned}),
      0.95);
}

TEST(PositionTasks, CellsOfAGrid) {
  EXPECT_GT(accuracy_after_training({Domain::grid, true}), 0.95);
  EXPECT_NEAR(accuracy_after_training({Domain::grid, false}), 0.5, 0.06);
}

TEST(PositionTasks, Keys) {
  EXPECT_GT(accuracy_after_training({Domain::key, true}), 0.95);
  EXPECT_NEAR(accuracy_after_training({Domain::key, false}), 0.5, 0.06);
}

TEST(PositionTasks, KeysMadeOfTokens) {
  EXPECT_GT(accuracy_after_training({.domain = Domain::key, .with_positions = true, .keys = Keys::tokens}), 0.95);
}

TEST(PositionTasks, NodesOfAGraph) {
  EXPECT_GT(accuracy_after_training({Domain::graph, true}), 0.95);
  EXPECT_NEAR(accuracy_after_training({Domain::graph, false}), 0.5, 0.06);
}

}  // namespace
}  // namespace ramify::nn
