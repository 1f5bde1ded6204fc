// The weights of published folders: one file or shards, other dtypes, and files that do not fit.
#include "models/weights.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "generators/error_message.h"
#include "models/small_model.h"

namespace ramify::models {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;

std::string refusal(const TemporaryFolder& folder) {
  std::string message = testing::error_message<io::Error>([&] { load_encoder(folder.path()); });
  const size_t at = message.find(folder.path());  // the folder has another name each time
  return at == std::string::npos ? message : message.replace(at, folder.path().size(), "F");
}

double difference(const Encoder& a, const Encoder& b) {
  double most = 0;
  const auto from = a.named_parameters(), to = b.named_parameters();
  for (const auto& entry : from) {
    most = std::max(most, (entry.value() - to[entry.key()]).abs().max().item<double>());
  }
  return most;
}

NamedTensors without(NamedTensors tensors, const std::string& name) {
  std::erase_if(tensors, [&](const auto& tensor) { return tensor.first == name; });
  return tensors;
}

TEST(Weights, AModelIsReadAsItIsWritten) {
  const TemporaryFolder folder;
  const auto encoder = write_model(folder);
  EXPECT_EQ(difference(*encoder, *load_encoder(folder.path())), 0);
}

TEST(Weights, NamesMayHaveAPrefixAndHeadsAreLeftOut) {
  for (const char* prefix : {"bert.", "roberta."}) {
    const TemporaryFolder folder;
    const auto encoder = write_model(folder);
    NamedTensors tensors = with_prefix(encoder->published_tensors(), prefix);
    tensors.emplace_back("cls.predictions.bias", at::zeros({20}));
    tensors.emplace_back(std::string(prefix) + "pooler.dense.weight", at::zeros({8, 8}));
    tensors.emplace_back(std::string(prefix) + "embeddings.position_ids", at::zeros({1, 64}, at::kLong));
    save_tensors(folder / "model.safetensors", tensors);
    EXPECT_EQ(difference(*encoder, *load_encoder(folder.path())), 0);
  }
}

TEST(Weights, OldNamesOfNormsAreUnderstood) {
  const TemporaryFolder folder;
  const auto encoder = write_model(folder);
  NamedTensors tensors;
  for (auto [name, tensor] : encoder->published_tensors()) {
    if (const size_t at = name.find("LayerNorm.weight"); at != name.npos) name = name.substr(0, at) + "LayerNorm.gamma";
    if (const size_t at = name.find("LayerNorm.bias"); at != name.npos) name = name.substr(0, at) + "LayerNorm.beta";
    tensors.emplace_back(name, tensor);
  }
  save_tensors(folder / "model.safetensors", tensors);
  EXPECT_EQ(difference(*encoder, *load_encoder(folder.path())), 0);
}

TEST(Weights, HalfPrecisionIsConverted) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const TemporaryFolder folder;
    const auto encoder = write_model(folder);
    NamedTensors tensors;
    for (const auto& [name, tensor] : encoder->published_tensors()) tensors.emplace_back(name, tensor.to(dtype));
    save_tensors(folder / "model.safetensors", tensors);
    const auto loaded = load_encoder(folder.path());
    EXPECT_EQ(loaded->parameters()[0].scalar_type(), at::kFloat);
    EXPECT_LT(difference(*encoder, *loaded), 0.02);
    EXPECT_GT(difference(*encoder, *loaded), 0);
  }
}

TEST(Weights, WhatDoesNotFitIsNamed) {
  const TemporaryFolder folder;
  const auto encoder = write_model(folder);
  const NamedTensors tensors = encoder->published_tensors();
  const std::string key = "encoder.layer.1.attention.self.key.weight";
  const auto save = [&](NamedTensors changed) { save_tensors(folder / "model.safetensors", changed); };

  save(without(tensors, key));
  EXPECT_EQ(refusal(folder), "F: tensor " + key + " is missing");

  NamedTensors changed = without(tensors, key);
  changed.emplace_back(key, at::zeros({8, 9}));
  save(changed);
  EXPECT_EQ(refusal(folder), "F/model.safetensors: tensor " + key + " is [8, 9]; expected [8, 8]");

  changed.back().second = at::zeros({8, 8}, at::kLong);
  save(changed);
  EXPECT_EQ(refusal(folder), "F/model.safetensors: tensor " + key + " is I64; expected F32, F16 or BF16");

  changed = tensors;
  changed.emplace_back("encoder.layer.3.output.dense.bias", at::zeros({8}));
  save(changed);
  EXPECT_EQ(refusal(folder),
            "F/model.safetensors: tensor \"encoder.layer.3.output.dense.bias\" is not part of this architecture");
}

TEST(Weights, SizesThatTheFilesCannotHaveAreRefusedBeforeMemoryIsAskedFor) {
  const TemporaryFolder folder;
  write_model(folder);
  ModelConfig config = small_config();
  config.vocabulary = 1 << 24;
  config.width = 1 << 20;
  config.heads = config.kv_heads = 1 << 10;
  config.head_dim = 1 << 10;
  write_config(folder, config);
  EXPECT_NE(refusal(folder).find("F: config.json describes a model of at least "), std::string::npos);
}

class Shards : public ::testing::Test {
 protected:
  Shards() : encoder_(write_model(folder_)) {
    std::filesystem::remove(folder_ / "model.safetensors");
    const NamedTensors tensors = encoder_->published_tensors();
    const NamedTensors first(tensors.begin(), tensors.begin() + 10), second(tensors.begin() + 10, tensors.end());
    save_tensors(folder_ / "a.safetensors", first);
    save_tensors(folder_ / "b.safetensors", second);
    for (const auto& [name, tensor] : first) map_[name] = "a.safetensors";
    for (const auto& [name, tensor] : second) map_[name] = "b.safetensors";
  }
  void write_index() const { folder_.write("model.safetensors.index.json", json{{"weight_map", map_}}.dump()); }

  TemporaryFolder folder_;
  std::shared_ptr<Encoder> encoder_;
  json map_;
};

TEST_F(Shards, AreReadTogether) {
  write_index();
  EXPECT_EQ(difference(*encoder_, *load_encoder(folder_.path())), 0);
}

TEST_F(Shards, NamesCannotLeaveTheFolder) {
  const std::string name = map_.begin().key();
  for (const json& shard : {json("../a.safetensors"), json("/etc/passwd"), json("x/a.safetensors"), json("a.bin"),
                            json(3), json(nullptr), json("")}) {
    map_[name] = shard;
    write_index();
    EXPECT_NE(refusal(folder_).find("expected the name of a .safetensors file in the same folder"), std::string::npos)
        << shard << ": " << refusal(folder_);
  }
}

TEST_F(Shards, DeepNestingIsNoDanger) {
  constexpr size_t kDepth = 1'000'000;
  folder_.write("model.safetensors.index.json",
                "{\"weight_map\":{\"a\":" + std::string(kDepth, '[') + std::string(kDepth, ']') + "}}");
  EXPECT_NE(refusal(folder_).find("tensor \"a\" is in no string"), std::string::npos);
}

TEST_F(Shards, TheIndexAndTheFilesMustAgree) {
  const std::string name = map_.begin().key();
  map_[name] = map_[name] == "a.safetensors" ? "b.safetensors" : "a.safetensors";
  write_index();
  EXPECT_NE(refusal(folder_).find("is not in "), std::string::npos) << refusal(folder_);
  map_.erase(name);
  write_index();
  EXPECT_NE(refusal(folder_).find("is not in the index"), std::string::npos) << refusal(folder_);
  map_["ghost"] = "c.safetensors";
  write_index();
  EXPECT_NE(refusal(folder_).find("c.safetensors"), std::string::npos) << refusal(folder_);
}

TEST(Weights, AFolderWithoutWeightsSaysWhatIsRead) {
  const TemporaryFolder folder;
  write_config(folder, small_config());
  EXPECT_EQ(refusal(folder),
            "F: has neither model.safetensors nor model.safetensors.index.json; weights are read from safetensors "
            "only, never from pickles (*.bin)");
}

}  // namespace
}  // namespace ramify::models
