#include "models/attention_plan.h"

#include <gtest/gtest.h>

#include "generators/error_message.h"

namespace ramify::models {
namespace {

using testing::error_message;
using Layers = std::vector<int64_t>;

TEST(AttentionPlan, LayersAreNumbersRangesAndAll) {
  EXPECT_EQ(parse_layers("7,9,11", 12), (Layers{7, 9, 11}));
  EXPECT_EQ(parse_layers("2-4,3,0", 12), (Layers{0, 2, 3, 4}));
  EXPECT_EQ(parse_layers("all", 3), (Layers{0, 1, 2}));
  EXPECT_EQ(layers_text({0, 2}, 3), "0,2");
  EXPECT_EQ(layers_text({0, 1, 2}, 3), "all");
}

TEST(AttentionPlan, LayersThatTheModelHasNotAreRefused) {
  EXPECT_EQ(error_message([] { parse_layers("7,12", 12); }), "layers: there is no layer 12; the model has 0 to 11");
  for (const char* text : {"", "x", "1,", "-1", "3-1", "1-", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(error_message([&] { parse_layers(text, 12); }),
              "layers: '" + std::string(text) +
                  "' is no list of layers; expected numbers from 0 (7,9,11), ranges (4-11) or all");
  }
}

TEST(AttentionPlan, OnlyTheChosenLayersAreSwapped) {
  const HierarchicalAttention attention{.hierarchy = TextHierarchy::parse("16*")};
  const AttentionPlan plan = AttentionPlan::swapped(4, attention, {1, 3});
  EXPECT_EQ(plan.swapped_layers(), (Layers{1, 3}));
  EXPECT_TRUE(plan.layers[1]->include_self);
  EXPECT_TRUE(AttentionPlan::exact(4).is_exact());
  EXPECT_NE(error_message([&] { AttentionPlan::swapped(4, attention, {4}); }), "");
}

}  // namespace
}  // namespace ramify::models
