// Scores against values worked out by hand.
#include "train/metrics.h"

#include <gtest/gtest.h>

namespace ramify::train {
namespace {

TEST(ConfusionTest, GivesAccuracyAndF1OfThreeClasses) {
  Confusion confusion(3);
  const int64_t answers[][2] = {{0, 0}, {0, 0}, {0, 1}, {1, 1}, {1, 2}, {2, 2}};
  for (const auto& [truth, said] : answers) confusion.add(truth, said);
  EXPECT_EQ(confusion.total(), 6);
  EXPECT_DOUBLE_EQ(confusion.accuracy(), 4.0 / 6);
  // F1: 2·2/(3+2), 2·1/(2+2), 2·1/(1+2)
  EXPECT_DOUBLE_EQ(confusion.macro_f1(), (0.8 + 0.5 + 2.0 / 3) / 3);
  const nlohmann::json rows = confusion.per_class(std::vector<std::string>{"a", "b", "c"});
  EXPECT_DOUBLE_EQ(rows[0]["precision"], 1);
  EXPECT_DOUBLE_EQ(rows[0]["recall"], 2.0 / 3);
  EXPECT_EQ(rows[1]["support"], 2);
  EXPECT_EQ(confusion.matrix(), nlohmann::json({{2, 1, 0}, {0, 1, 1}, {0, 0, 1}}));
}

TEST(ConfusionTest, LeavesClassesThatNeverOccurOutOfTheMean) {
  Confusion confusion(3);
  confusion.add(0, 0);
  EXPECT_DOUBLE_EQ(confusion.macro_f1(), 1);
}

TEST(ConfusionTest, IsZeroWithoutRecords) {
  EXPECT_EQ(Confusion(2).accuracy(), 0);
  EXPECT_EQ(Confusion(2).macro_f1(), 0);
}

TEST(LabelCountsTest, CountsLabelsOneByOneAndRecordsAsAWhole) {
  LabelCounts counts(2);
  counts.add(0, true, true);
  counts.add(1, true, false);
  counts.add_record(false);
  counts.add(0, false, true);
  counts.add(1, true, true);
  counts.add_record(false);
  counts.add(0, false, false);
  counts.add(1, false, false);
  counts.add_record(true);
  EXPECT_DOUBLE_EQ(counts.exact_match(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(counts.micro_f1(), 4.0 / 6);
  EXPECT_DOUBLE_EQ(counts.macro_f1(), (2.0 / 3 + 2.0 / 3) / 2);
}

TEST(NumberErrorsTest, GivesRootMeanSquareMeanAbsoluteAndR2) {
  NumberErrors errors;
  errors.add(1, 2);
  errors.add(3, 3);
  errors.add(5, 2);
  EXPECT_DOUBLE_EQ(errors.rmse(), std::sqrt(10.0 / 3));
  EXPECT_DOUBLE_EQ(errors.mae(), 4.0 / 3);
  EXPECT_DOUBLE_EQ(errors.r2(), 1 - 10.0 / 8);
}

TEST(NumberErrorsTest, IsStableFarFromZero) {
  NumberErrors errors;
  for (int i = 0; i < 1000; ++i) errors.add(1e9 + i % 2, 1e9 + i % 2);
  EXPECT_DOUBLE_EQ(errors.r2(), 1);
  errors.add(1e9 + 0.5, 1e9 + 1.5);
  EXPECT_NEAR(errors.r2(), 1 - 1.0 / 250, 1e-6);
}

}  // namespace
}  // namespace ramify::train
