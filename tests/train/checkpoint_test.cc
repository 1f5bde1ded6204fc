// Checkpoints: what was saved is loaded bit for bit, and what does not fit is an error that names the tensor.
#include "train/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "io/error.h"
#include "ramify/nn/model.h"

namespace ramify::train {
namespace {

std::shared_ptr<nn::Model> small_model(int64_t tokens = 7) {
  return std::make_shared<nn::Model>(nn::EncoderConfig(), std::vector<nn::Modality>{{.name = "token", .size = tokens}},
                                     nn::ModelInputs{.domains = {nn::Domain::sequence}}, 3);
}

AdamW optimizer_of(const nn::Model& model) {
  models::NamedTensors parameters;
  for (const auto& item : model.named_parameters()) parameters.emplace_back(item.key(), item.value());
  return AdamW(parameters, {});
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest()
      : folder_(std::filesystem::temp_directory_path() / ("ramify-checkpoint-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    at::manual_seed(1);
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }

  std::filesystem::path folder_;
};

TEST_F(CheckpointTest, IsLoadedBitForBit) {
  const auto model = small_model(), other = small_model();
  AdamW optimizer = optimizer_of(*model), other_optimizer = optimizer_of(*other);
  for (const auto& [name, tensor] : optimizer.state()) at::Tensor(tensor).copy_(at::randn_like(tensor));
  const TrainingState state{.step = 12, .epoch = 3, .batch = 4, .best_quality = 0.1 + 0.2, .loss_sum = 1.0 / 3};
  save_checkpoint(path("checkpoint"), *model, optimizer, state);
  const TrainingState loaded = load_checkpoint(path("checkpoint"), *other, other_optimizer);
  EXPECT_EQ(nlohmann::json(loaded), nlohmann::json(state));
  const models::NamedTensors a = model_tensors(*model), b = model_tensors(*other);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  const models::NamedTensors moments = optimizer.state(), other_moments = other_optimizer.state();
  for (size_t i = 0; i < moments.size(); ++i) EXPECT_TRUE(moments[i].second.equal(other_moments[i].second));
}

TEST_F(CheckpointTest, OfAnotherModelIsAnError) {
  save_model(path("model"), *small_model(7));
  const auto other = small_model(8);
  try {
    load_model(path("model"), *other);
    FAIL() << "loaded";
  } catch (const io::Error& error) {
    EXPECT_NE(std::string(error.what()).find("[7, 128]; expected [8, 128]"), std::string::npos) << error.what();
  }
}

TEST_F(CheckpointTest, WithAFlippedBitIsAnError) {
  const auto model = small_model();
  save_model(path("model"), *model);
  {
    std::fstream file(path("model") + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
  }
  EXPECT_THROW(load_model(path("model"), *model), io::Error);
}

}  // namespace
}  // namespace ramify::train
