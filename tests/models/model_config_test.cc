// config.json of published models: what is read, and what is refused with which message.
#include <gtest/gtest.h>

#include "generators/error_message.h"
#include "models/small_model.h"

namespace ramify::models {
namespace {

using nlohmann::json;

std::string refusal(const json& changes, Family family = Family::bert) {
  json values = small_config(family).to_json();
  values.merge_patch(changes);
  return testing::error_message<io::Error>([&] { ModelConfig::from_json(values, "config.json"); });
}

TEST(ModelConfig, IsReadAsItIsWritten) {
  for (const Family family : {Family::bert, Family::roberta}) {
    const ModelConfig config = small_config(family);
    EXPECT_EQ(ModelConfig::from_json(config.to_json(), "x"), config);
    EXPECT_EQ(config.max_tokens(), family == Family::bert ? 64 : 62);
  }
}

TEST(ModelConfig, LlamaHasItsOwnNames) {
  const json values = {{"model_type", "llama"},
                       {"vocab_size", 32},
                       {"hidden_size", 16},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"intermediate_size", 24},
                       {"rms_norm_eps", 1e-5},
                       {"max_position_embeddings", 128},
                       {"rope_parameters", {{"rope_theta", 500.0}, {"rope_type", "default"}}},
                       {"tie_word_embeddings", true}};
  const ModelConfig config = ModelConfig::from_json(values, "x");
  EXPECT_TRUE(config.is_decoder());
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.rope_theta, 500);
  EXPECT_EQ(ModelConfig::from_json(config.to_json(), "x"), config);
  json scaled = values;
  scaled["rope_parameters"] = {{"rope_type", "llama3"}};
  EXPECT_EQ(testing::error_message<io::Error>([&] { ModelConfig::from_json(scaled, "c"); }),
            "c: rope_parameters has the type \"llama3\"; expected default");
}

TEST(ModelConfig, XlmRobertaAndCamembertAreRoberta) {
  for (const char* type : {"xlm-roberta", "camembert"}) {
    json values = small_config(Family::roberta).to_json();
    values["model_type"] = type;
    EXPECT_EQ(ModelConfig::from_json(values, "x").family, Family::roberta);
  }
}

TEST(ModelConfig, WhatCannotBeIsRefusedByName) {
  EXPECT_EQ(
      refusal({{"model_type", "t5"}}),
      "config.json: the architecture \"t5\" is not known; known are bert, roberta, xlm-roberta, camembert, llama");
  EXPECT_EQ(refusal({{"model_type", nullptr}}),
            "config.json: has no model_type; known are bert, roberta, xlm-roberta, camembert, llama");
  EXPECT_EQ(refusal({{"hidden_size", nullptr}}), "config.json: hidden_size is missing");
  EXPECT_EQ(refusal({{"hidden_size", -3}}), "config.json: hidden_size is -3; expected 1 to 1048576");
  EXPECT_EQ(refusal({{"hidden_size", 18446744073709551615u}}),
            "config.json: hidden_size is 18446744073709551615; expected 1 to 1048576");
  EXPECT_EQ(refusal({{"num_attention_heads", 3}}), "config.json: num_attention_heads does not divide hidden_size");
  EXPECT_EQ(refusal({{"num_hidden_layers", "many"}}), "config.json: num_hidden_layers is no whole number");
  EXPECT_EQ(refusal({{"layer_norm_eps", "x"}}), "config.json: layer_norm_eps is no number");
  EXPECT_EQ(refusal({{"hidden_act", "mish"}}), "config.json: hidden_act \"mish\" is not known");
  EXPECT_EQ(refusal({{"position_embedding_type", "relative_key"}}),
            "config.json: position_embedding_type \"relative_key\" is not supported; expected absolute");
  EXPECT_EQ(refusal({{"is_decoder", true}}), "config.json: is_decoder is set; only encoders of this family are read");
  EXPECT_EQ(refusal({{"max_position_embeddings", 2}}, Family::roberta),
            "config.json: max_position_embeddings leaves no room for a token");
  EXPECT_EQ(testing::error_message<io::Error>([] { ModelConfig::from_json(json::array(), "c"); }), "c: is no object");
}

}  // namespace
}  // namespace ramify::models
