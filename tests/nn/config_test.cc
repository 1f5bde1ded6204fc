// Configs: their JSON form, what is rejected, and the models of the files in configs/.
#include "ramify/nn/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "generators/error_message.h"
#include "ramify/nn/model.h"

namespace ramify::nn {
namespace {

using testing::error_message;

EncoderConfig read(const std::string& file) {
  std::ifstream stream(std::string(RAMIFY_CONFIGS) + "/" + file);
  return EncoderConfig::from_json(nlohmann::json::parse(stream).at("model").dump(), file);
}

TEST(EncoderConfig, HasTheDefaultsOfTheDefaultConfig) {
  EXPECT_EQ(read("default.json"), EncoderConfig());
  EXPECT_EQ(EncoderConfig::from_json("{}"), EncoderConfig());
}

TEST(EncoderConfig, ComesBackFromJson) {
  EncoderConfig config;
  EXPECT_EQ(EncoderConfig::from_json(config.to_json()), config);
  config.token_width = 7, config.position_width = 6, config.positions = false, config.fourier = Frequencies::learned,
  config.keys = Keys::tokens;
  config.pooling_leaf = -2, config.mlp_width = 0, config.activation = Activation::relu;
  config.dropout = 0.25, config.token_dropout = 0.5;
  LayerConfig& layer = config.layers[1];
  layer = {.heads = 3,
           .head_dim = 5,
           .width = 9,
           .position_head_dim = 4,
           .attention = Attention::none,
           .tie = Tie::none,
           .include_self = true,
           .alpha = std::nullopt,
           .favor_features = 0,
           .normalize_values = true,
           .pooling = {LocalPooling::Kind::merge, 4}};
  config.layers.push_back({.alpha = 1.5, .pooling = {LocalPooling::Kind::collapse, 0}});
  config.layers.push_back({.favor_features = 64});
  EXPECT_EQ(EncoderConfig::from_json(config.to_json()), config);
}

TEST(EncoderConfig, NamesTheKeyThatIsWrong) {
  const auto message = [](const std::string& text) {
    return error_message([&] { EncoderConfig::from_json(text, "my.json"); });
  };
  EXPECT_EQ(message(R"({"layers": [{}, {"heads": -3}]})"),
            "my.json: layers[1].heads is -3; expected a whole number from 1 to 1024");
  EXPECT_EQ(message(R"({"heads": 3})"),
            "my.json: heads is not a key; expected one of token_width, position_width, positions, fourier, keys, "
            "layers, pooling, "
            "mlp_width, activation, dropout, token_dropout");
  EXPECT_EQ(message(R"({"layers": [{"head": 3}]})").substr(0, 41), "my.json: layers[0].head is not a key; exp");
  EXPECT_EQ(message(R"({"token_width": "wide"})"),
            "my.json: token_width is \"wide\"; expected a whole number from 1 to 65536");
  EXPECT_EQ(message(R"({"token_width": 1.5})"), "my.json: token_width is 1.5; expected a whole number from 1 to 65536");
  EXPECT_EQ(message(R"({"position_width": 7})"),
            "my.json: position_width is 7; expected an even number: half cosines, half sines");
  EXPECT_EQ(message(R"({"fourier": 1})"), "my.json: fourier is 1; expected one of fixed, learned");
  EXPECT_EQ(message(R"({"dropout": 1})"), "my.json: dropout is 1; expected a number from 0 to 1, without 1");
  EXPECT_EQ(message(R"({"pooling": "leaf:x"})"), "my.json: pooling is \"leaf:x\"; expected \"mean\" or \"leaf:N\"");
  EXPECT_EQ(message(R"({"layers": []})"), "my.json: layers is []; expected a list of 1 to 256 layers");
  EXPECT_EQ(message(R"({"layers": [3]})"), "my.json: layers[0] is 3; expected an object");
  EXPECT_EQ(message(R"({"layers": [{"attention": "flat"}]})"),
            "my.json: layers[0].attention is \"flat\"; expected one of hierarchical, none");
  EXPECT_EQ(message(R"({"layers": [{"alpha": 3}]})"),
            "my.json: layers[0].alpha is 3; expected a number from 1 to 2, or \"learned\"");
  EXPECT_EQ(message(R"({"layers": [{"inner": "favor"}]})"),
            "my.json: layers[0].inner is \"favor\"; expected \"exact\" or \"favor:N\"");
  EXPECT_EQ(message(R"({"layers": [{"inner": "favor:8", "alpha": 1.5}]})"),
            "my.json: layers[0].inner is \"favor:8\"; expected \"exact\" where alpha is not 1");
  EXPECT_EQ(message(R"({"layers": [{"pooling": "merge:1"}]})"),
            "my.json: layers[0].pooling is \"merge:1\"; expected \"none\", \"collapse\" or \"merge:N\" with N of at "
            "least 2");
  EXPECT_EQ(message(R"({"layers": [{"include_self": 1}]})"),
            "my.json: layers[0].include_self is 1; expected true or false");
  EXPECT_EQ(message("[]"), "my.json: the config is []; expected an object");
  EXPECT_EQ(message("{").substr(0, 18), "my.json: not JSON:");
}

TEST(Configs, OfThePaperHasItsSize) {
  const std::vector<Modality> leaves = {{"vector", Feature::dense, 768}};
  const Model model(read("paper-language.json"), leaves, {.domains = {Domain::sequence}}, 2);
  // q, k, v and positions 768 -> 3·128, two norms of a head, output 3·128 -> 128, hidden 128 -> 128 -> 2 classes
  EXPECT_EQ(model.parameter_counts().encoder,
            4 * 768 * 384 + 2 * 2 * 128 + 384 * 128 + 128 + 128 * 128 + 128 + 128 * 2 + 2);
  EXPECT_NEAR(static_cast<double>(model.parameter_counts().encoder), 1.2e6, 0.05e6);
  EXPECT_EQ(model.parameter_counts().tables, 0);
}

TEST(Configs, OfThePaperForNewsHasItsSize) {
  // four kinds of texts and images; keys, sequences and grids
  std::vector<Modality> leaves;
  for (const char* name : {"headline", "abstract", "caption", "body", "image"}) {
    leaves.push_back({name, Feature::dense, 768});
  }
  using enum Domain;
  const Model model(read("paper-multimodal.json"), leaves, {.num_keys = 5, .domains = {key, sequence, grid}}, 24);
  EXPECT_NEAR(static_cast<double>(model.parameter_counts().encoder), 11.8e6, 0.6e6);
}

}  // namespace
}  // namespace ramify::nn
