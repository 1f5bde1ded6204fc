// The shape of trees, counted.
#include "signal/statistics.h"

#include <gtest/gtest.h>

#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::compile;
using testing::schema_of;
using testing::SharedSchema;

TEST(Sizes, Quantiles) {
  Sizes sizes;
  EXPECT_EQ(sizes.quantile(0.5), 0);
  for (int64_t size = 1; size <= 10; ++size) sizes.add(size);
  sizes.add(100, 10);
  EXPECT_EQ(sizes.count(), 20);
  EXPECT_EQ(sizes.total(), 1055);
  EXPECT_EQ(sizes.quantile(0.25), 5);
  EXPECT_EQ(sizes.quantile(0.5), 10);
  EXPECT_EQ(sizes.quantile(0.51), 100);
  EXPECT_EQ(sizes.quantile(1), 100);
}

TEST(SignalStatistics, CountsFamiliesByDomain) {
  const std::string record = R"({"a": [1, 2, 3], "b": {"$set": [7, [4]]}, "c": "one two"})";
  const SharedSchema schema = schema_of({record}, {.max_leaves = 7});
  SignalStatistics statistics;
  statistics.add(compile(schema, record));
  statistics.add(compile(schema, R"({"a": [1, 2, 3], "b": {"$set": [7, [4]]}, "c": "one two three"})"));
  EXPECT_EQ(statistics.records, 2);
  EXPECT_EQ(statistics.truncated, 1);
  EXPECT_EQ(statistics.leaves.total(), 14);
  EXPECT_EQ(statistics.depth.quantile(1), 4);
  const auto families = [&](Domain domain) { return statistics.families[static_cast<size_t>(domain)]; };
  EXPECT_EQ(families(Domain::key).total(), 6);
  EXPECT_EQ(families(Domain::none).total(), 4);
  EXPECT_EQ(families(Domain::sequence).count(), 2 * (1 + 1 + 3));  // a; [4]; text, paragraph, sentence of c
  EXPECT_EQ(statistics.leaves_of_modality, (std::vector<int64_t>{4, 0, 10}));
}

}  // namespace
}  // namespace ramify::signal
