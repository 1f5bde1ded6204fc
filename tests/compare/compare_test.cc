// What a swap costs: the head that is fitted, the drift, and how variants are written.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "compare/logistic_head.h"
#include "compare/variant.h"
#include "generators/error_message.h"

namespace ramify::compare {
namespace {

using Layers = std::vector<int64_t>;

TEST(Variant, IsWrittenAsItIsRead) {
  const Variant variant = Variant::parse("2,4,8,16:7,9,11:none", 12);
  EXPECT_EQ(variant.layers, (Layers{7, 9, 11}));
  EXPECT_EQ(variant.attention.tie, Tie::none);
  EXPECT_EQ(variant.name(12), "2,4,8,16:7,9,11:none");
  EXPECT_EQ(Variant::parse("sentences,4*", 2).name(2), "sentences,4*:all:block");
  EXPECT_EQ(variant.plan(12).swapped_layers(), (Layers{7, 9, 11}));
}

TEST(Variant, WhatIsNoneIsRefused) {
  for (const char* text : {"", "2:", "2:7:both", "2:7:none:x", "2:12", "x:1"}) {
    EXPECT_NE(testing::error_message([&] { Variant::parse(text, 12); }), "") << text;
  }
}

TEST(Variant, TheAblationSwapsEveryOtherLayerFromAStartOn) {
  const std::vector<Variant> variants = ablation(12);
  ASSERT_EQ(variants.size(), 48u);
  EXPECT_EQ(variants[6].layers, (Layers{6, 8, 10}));
  EXPECT_EQ(variants[6].start_layer, 6);
  EXPECT_EQ(variants[6].attention.hierarchy.text(), "2,4,8,16");
  EXPECT_EQ(variants[47].layers, (Layers{11}));
}

TEST(LogisticHead, LearnsWhatCanBeSeparated) {
  at::manual_seed(1);
  const at::Tensor vectors = at::randn({300, 5});
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < 300; ++i) {
    const auto x = vectors[i][0].item<float>(), y = vectors[i][3].item<float>();
    classes.push_back(x > 0.2 ? 0 : y > 0 ? 1 : 2);
  }
  const LogisticHead head = LogisticHead::fit(vectors, classes, 3, 1e-4);
  const std::vector<int64_t> predictions = head.predict(vectors);
  int64_t right = 0;
  for (size_t i = 0; i < classes.size(); ++i) right += predictions[i] == classes[i];
  EXPECT_GT(right, 270);
  EXPECT_EQ(LogisticHead::fit(vectors, classes, 3, 1e-4).predict(vectors), predictions);
}

// The gradient of the loss is zero at the answer: one class more often than the other, and nothing to see.
TEST(LogisticHead, WithoutInformationTheLargerClassWins) {
  const at::Tensor vectors = at::ones({10, 3});
  const std::vector<int64_t> classes = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(LogisticHead::fit(vectors, classes, 2).predict(vectors), std::vector<int64_t>(10, 0));
}

TEST(LogisticHead, ScalesOfTheVectorsDoNotMatter) {
  at::manual_seed(2);
  const at::Tensor vectors = at::randn({60, 4});
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < 60; ++i) classes.push_back(vectors[i][1].item<float>() > 0);
  const at::Tensor scaled = vectors * 1000 + 7;
  EXPECT_EQ(LogisticHead::fit(vectors, classes, 2).predict(vectors),
            LogisticHead::fit(scaled, classes, 2).predict(scaled));
}

}  // namespace
}  // namespace ramify::compare
