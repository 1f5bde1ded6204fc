// Settings: named configs, what is rejected, and that what was written is read again.
#include "train/settings.h"

#include <gtest/gtest.h>

#include "generators/error_message.h"

namespace ramify::train {
namespace {

using ramify::testing::error_message;

TEST(SettingsTest, EveryNamedConfigIsReadAndWrittenAgain) {
  ASSERT_FALSE(config_names().empty());
  for (const std::string& name : config_names()) {
    const Settings settings = Settings::from_json(read_config(name));
    const Settings again = Settings::from_json(settings.to_json());
    EXPECT_EQ(settings.to_json(), again.to_json()) << name;
  }
}

TEST(SettingsTest, AttentionNoneReachesEveryLayer) {
  const Settings settings = Settings::from_json({{"attention", "none"}});
  for (const nn::LayerConfig& layer : settings.model.layers) EXPECT_EQ(layer.attention, nn::Attention::none);
}

TEST(SettingsTest, RejectsWhatItDoesNotKnow) {
  EXPECT_EQ(error_message([] {
              Settings::from_json({{"training", {{"speed", 1}}}});
            }),
            "training: there is no option speed");
  EXPECT_EQ(error_message([] {
              Settings::from_json({{"training", {{"epochs", 0}}}});
            }),
            "training: epochs is 0; expected a whole number, from 1 to 1000000");
  EXPECT_EQ(error_message([] {
              Settings::from_json({{"training", {{"rate", "fast"}}}});
            }),
            "training: rate is \"fast\"; expected a number, from 0 to 100");
  EXPECT_EQ(error_message([] {
              Settings::from_json({{"attention", "most"}});
            }),
            "attention is most; expected hierarchical, flat, none or exact");
  EXPECT_EQ(error_message([] {
              Settings::from_json({{"data", {{"train", 3}}}});
            }),
            "data: train is 3, which is of another type");
  EXPECT_NE(error_message([] { read_config("no-such-config"); }).find("default"), std::string::npos);
}

}  // namespace
}  // namespace ramify::train
