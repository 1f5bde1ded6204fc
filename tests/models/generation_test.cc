// A decoder that goes on from a cache gives what it gives for the whole text at once; and how tokens are drawn.
#include "models/generation.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "generators/error_message.h"
#include "models/small_model.h"

namespace ramify::models {
namespace {

using testing::error_message;

ModelConfig llama_config() {
  ModelConfig config = small_config(Family::llama);
  config.types = 0;
  config.heads = 4, config.kv_heads = 2;
  config.activation = Activation::silu;
  config.norm_epsilon = 1e-5;
  config.positions = 128;
  return config;
}

std::shared_ptr<Decoder> random_decoder() {
  at::manual_seed(5);
  auto decoder = std::make_shared<Decoder>(llama_config(), Decoder::Output::own);
  initialize(*decoder, 0.5);
  decoder->eval();
  return decoder;
}

HierarchicalAttention causal(const char* hierarchy, Tie tie, int64_t window = 0) {
  HierarchicalAttention attention;
  if (*hierarchy) attention.hierarchy = TextHierarchy::parse(hierarchy);
  attention.tie = tie, attention.window = window;
  return attention;
}

AttentionPlan plan_for(const HierarchicalAttention& attention, const char* layers = "all") {
  return AttentionPlan::swapped(3, attention, parse_layers(layers, 3));
}

std::vector<AttentionPlan> plans() {
  return {AttentionPlan::exact(3),
          plan_for(causal("3*", Tie::none)),
          plan_for(causal("2,3", Tie::block)),
          plan_for(causal("4*", Tie::none, 5)),
          plan_for(causal("", Tie::none, 7)),
          plan_for(causal("4*", Tie::block), "0,2")};
}

PackedTexts packed(const TokenizedText& text) {
  const TokenizedText* one[] = {&text};
  return PackedTexts(one, 0, 128, at::kCPU);
}

double difference_of(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(Generation, TokenByTokenIsTheWholeTextAtOnce) {
  const at::NoGradGuard no_grad;
  const auto decoder = random_decoder();
  const TokenizedText text = random_text(70, 3);
  const PackedTexts whole = packed(text);
  for (const AttentionPlan& plan : plans()) {
    const at::Tensor expected = decoder->forward(whole, plan);
    for (const int64_t part : {1, 9, 70}) {
      DecoderCache cache(decoder->config(), plan);
      for (int64_t i = 0; i < 70; i += part) {
        const int64_t count = std::min(part, 70 - i);
        const at::Tensor rows = decoder->extend(whole.ids().narrow(0, i, count), cache);
        EXPECT_LT(difference_of(rows, expected.narrow(0, i, count)), 2e-5) << part << " at " << i;
      }
      EXPECT_EQ(cache.tokens(), 70);
      EXPECT_GT(cache.bytes(), 0);
    }
  }
}

TEST(Generation, AForkGoesOnByItself) {
  const at::NoGradGuard no_grad;
  const auto decoder = random_decoder();
  const TokenizedText text = random_text(20, 3), other = random_text(20, 4);
  for (const AttentionPlan& plan : plans()) {
    DecoderCache cache(decoder->config(), plan);
    decoder->extend(packed(text).ids(), cache);
    DecoderCache fork(cache);
    decoder->extend(packed(other).ids(), fork);
    DecoderCache again(decoder->config(), plan);
    decoder->extend(packed(text).ids(), again);
    const at::Tensor next = packed(other).ids().narrow(0, 0, 3);
    EXPECT_EQ(difference_of(decoder->extend(next, cache), decoder->extend(next, again)), 0);
  }
}

TEST(Generation, APromptWithATreeOfItsOwnIsFollowedByFlatDecoding) {
  const at::NoGradGuard no_grad;
  const auto decoder = random_decoder();
  TokenizedText text = random_text(30, 3);
  text.structure.sentences = {0, 4, 11, 12, 25};
  const at::Tensor next = packed(random_text(5, 8)).ids();
  DecoderCache exact(decoder->config(), AttentionPlan::exact(3)), flat(exact), tree(exact);
  decoder->extend(packed(text).ids(), exact);
  // one family of all tokens is exact attention
  decoder->read_prompt(packed(text), plan_for(causal("64", Tie::none)), flat);
  decoder->read_prompt(packed(text), plan_for(causal("sentences", Tie::none)), tree);
  const at::Tensor expected = decoder->extend(next, exact);
  EXPECT_LT(difference_of(decoder->extend(next, flat), expected), 2e-5);
  EXPECT_GT(difference_of(decoder->extend(next, tree), expected), 1e-4);
  EXPECT_EQ(tree.tokens(), 35);
}

TEST(Generation, SegmentsOfTheTextAreNoWindows) {
  EXPECT_NE(error_message([] {
              DecoderCache(llama_config(), plan_for(causal("sentences", Tie::none)));
            }).find("generation takes windows"),
            std::string::npos);
}

TEST(Generation, StopsAtAnEndAtTheLengthAndWhenTheCallerWants) {
  const auto decoder = random_decoder();
  const TokenizedText text = random_text(6, 3);
  const auto written = [&](GenerationOptions options, size_t stop_after = 100) {
    DecoderCache cache(decoder->config(), plan_for(causal("3*", Tie::none, 2)));
    const at::Tensor row = read_in_parts(*decoder, text.ids, cache);
    std::vector<int32_t> ids;
    const Generation done = generate(*decoder, row, cache, options, [&](int32_t id) {
      ids.push_back(id);
      return ids.size() < stop_after;
    });
    EXPECT_EQ(done.tokens, static_cast<int64_t>(ids.size()));
    return std::pair(ids, done.end);
  };
  GenerationOptions options;
  options.max_tokens = 12;
  const auto [all, end] = written(options);
  EXPECT_EQ(all.size(), 12u);
  EXPECT_EQ(end, Generation::End::length);
  EXPECT_EQ(written(options, 3), std::pair(std::vector(all.begin(), all.begin() + 3), Generation::End::stopped));
  options.ends = {all[5]};
  const auto first = std::ranges::find(all, all[5]) - all.begin();
  EXPECT_EQ(written(options), std::pair(std::vector(all.begin(), all.begin() + first), Generation::End::text));
}

TEST(Sampler, DrawsAsTheScoresSay) {
  const at::Tensor logits = at::tensor({0.0, 1.0, 3.0, 2.0, -50.0}).to(at::kFloat);
  EXPECT_EQ(Sampler({}).next(logits), 2);
  const auto counts = [&](const SamplerOptions& options) {
    Sampler sampler(options);
    std::vector<double> share(5, 0.0);
    for (int i = 0; i < 4000; ++i) share[static_cast<size_t>(sampler.next(logits))] += 1.0 / 4000;
    return share;
  };
  const at::Tensor expected = logits.to(at::kDouble).softmax(0);
  const std::vector<double> all = counts({.temperature = 1, .seed = 1});
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(all[static_cast<size_t>(i)], expected[i].item<double>(), 0.03);
  // 0.64 + 0.24 of the probability: the two likeliest
  const std::vector<double> nucleus = counts({.temperature = 1, .top_p = 0.8, .seed = 2});
  EXPECT_EQ(nucleus[0] + nucleus[1] + nucleus[4], 0);
  EXPECT_NEAR(nucleus[2], 0.731, 0.03);
  EXPECT_NEAR(counts({.temperature = 1, .top_p = 0, .seed = 2})[2], 1, 1e-9);
  EXPECT_EQ(counts({.temperature = 1, .seed = 7}), counts({.temperature = 1, .seed = 7}));
  EXPECT_NE(counts({.temperature = 1, .seed = 7}), counts({.temperature = 1, .seed = 8}));
}

TEST(Sampler, ScoresThatAreNoNumbersAreAnError) {
  EXPECT_NE(error_message<io::Error>([] {
              Sampler({}).next(at::tensor({0.0, NAN}));
            }).find("no numbers"),
            std::string::npos);
}

}  // namespace
}  // namespace ramify::models
