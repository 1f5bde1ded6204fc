#include "train/language_settings.h"

#include <gtest/gtest.h>

#include "generators/error_message.h"

namespace ramify::train {
namespace {

using testing::error_message;

std::string complaint(const nlohmann::json& settings) {
  return error_message([&] { LanguageSettings::from_json(settings); });
}

TEST(LanguageSettings, AreReadAsTheyWereWritten) {
  LanguageSettings settings;
  settings.data.train = {"a.txt"};
  settings.attention.window = 32;
  settings.training.epochs = 3;
  EXPECT_EQ(LanguageSettings::from_json(settings.to_json()).to_json(), settings.to_json());
  EXPECT_EQ(LanguageSettings::from_json({{"training", {{"rate", 0.5}}}}).training.batch_leaves, 8192);
}

TEST(LanguageSettings, SayWhatCannotBe) {
  EXPECT_EQ(complaint({{"model", {{"heads", 3}}}}), "--heads 3 does not divide --width 256");
  EXPECT_EQ(complaint({{"model", {{"width", 12}}}}),
            "--width 12 and --heads 4: a head would have 3 values; rotated positions need an even number");
  EXPECT_EQ(complaint({{"model", {{"key_heads", 3}}}}), "--key-heads 3 does not divide --heads 4");
  EXPECT_EQ(complaint({{"model", {{"layers", 0}}}}), "--layers is 0; expected 1 to 1024");
  EXPECT_EQ(complaint({{"data", {{"context", 1}}}}), "--context is 1; expected 2 to 16777216");
  EXPECT_EQ(complaint({{"attention", {{"tie", "block"}, {"window", 8}}}}), "--window is for --tie none only");
  EXPECT_EQ(complaint({{"attention", {{"hierarchy", "sentences"}}}}),
            "--hierarchy sentences: running text is cut anywhere; expected windows, such as 16*");
  EXPECT_EQ(complaint({{"model", {{"depth", 3}}}}), "model: there is no setting depth");
}

TEST(LanguageSettings, TheModelHasTheSameSizeWhateverItsAttention) {
  const LanguageSettings exact = LanguageSettings::from_json({{"attention", {{"kind", "exact"}}}});
  const LanguageSettings other = LanguageSettings::from_json({{"attention", {{"tie", "block"}}}});
  EXPECT_EQ(exact.model_config(100), other.model_config(100));
  EXPECT_EQ(exact.model_config(100).inner_width, 688);
  EXPECT_TRUE(exact.plan().is_exact());
  EXPECT_EQ(other.plan().swapped_layers().size(), 4U);
}

}  // namespace
}  // namespace ramify::train
