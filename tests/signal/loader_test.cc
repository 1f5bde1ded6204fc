// Epochs: order, packing, and going on in the middle.
#include "signal/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "signal/batch_text.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::BatchText;
using testing::error_message;
using testing::TemporaryFolder;
using Rows = std::vector<int64_t>;

// Record i has i % 5 + 1 leaves, in a graph.
Dataset dataset_of(int records) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < records; ++i) {
    std::string nodes, edges;
    for (int n = 0; n <= i % 5; ++n) {
      nodes += (n == 0 ? "" : ", ") + std::to_string(i);
      if (n > 0) edges += (n == 1 ? "[" : ", [") + std::to_string(n - 1) + ", " + std::to_string(n) + "]";
    }
    lines += R"({"$graph": {"nodes": [)" + nodes + R"(], "edges": [)" + edges + "]}}\n";
  }
  const std::string file = folder.write("a.jsonl", lines);
  return Dataset::read({file}, std::make_shared<const Schema>(infer_schema({file}, {})));
}

// All batches from `first` on, as text.
std::vector<std::string> run(Loader& loader, int64_t epoch, int64_t first = 0) {
  std::vector<std::string> result;
  loader.start(epoch, first);
  while (const auto batch = loader.next()) {
    std::string text;
    for (size_t t = 0; t < batch->records.size(); ++t) {
      text += std::to_string(batch->records[t]) + ": " + BatchText(*batch).tree(static_cast<int64_t>(t)) + "\n";
    }
    result.push_back(text);
  }
  return result;
}

TEST(Shuffled, IsTheSameEverywhere) {
  // by another implementation of SplitMix64 and Fisher-Yates
  EXPECT_EQ(shuffled(10, 7, 0), (Rows{7, 3, 1, 0, 6, 2, 5, 9, 4, 8}));
  EXPECT_EQ(shuffled(10, 7, 1), (Rows{6, 5, 4, 1, 3, 0, 7, 8, 2, 9}));
  EXPECT_EQ(shuffled(10, 8, 0), (Rows{7, 4, 8, 1, 9, 3, 2, 5, 0, 6}));
  EXPECT_TRUE(shuffled(0, 1, 1).empty());
  EXPECT_EQ(shuffled(1, 1, 1), Rows{0});
}

TEST(Shuffled, EveryPlaceIsAsLikely) {
  std::vector<int> first(6, 0);
  for (uint64_t seed = 0; seed < 6000; ++seed) ++first[static_cast<size_t>(shuffled(6, seed, 3)[0])];
  for (const int count : first) EXPECT_NEAR(count, 1000, 150);
}

TEST(Loader, GivesEveryRecordOnceAnEpoch) {
  const Dataset dataset = dataset_of(23);
  const Loader loader(dataset, {.batch_records = 4, .seed = 5});
  std::set<Rows> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    Rows all;
    for (const Rows& batch : loader.batches(epoch)) {
      EXPECT_LE(batch.size(), 4);
      all.insert(all.end(), batch.begin(), batch.end());
    }
    orders.insert(all);
    EXPECT_EQ(all, shuffled(23, 5, static_cast<uint64_t>(epoch)));
  }
  EXPECT_EQ(orders.size(), 3);
}

TEST(Loader, PacksByLeaves) {
  const Dataset dataset = dataset_of(10);  // 1 2 3 4 5 1 2 3 4 5 leaves
  const Loader loader(dataset, {.batch_records = 3, .batch_leaves = 6, .order = Order::as_given});
  EXPECT_EQ(loader.batches(0), (std::vector<Rows>{{0, 1, 2}, {3}, {4, 5}, {6, 7}, {8}, {9}}));
  const Loader small(dataset, {.batch_records = 3, .batch_leaves = 2, .order = Order::as_given});
  EXPECT_EQ(small.batches(0).size(), 10);  // a record that has more is alone
}

TEST(Loader, UsesThePartAskedFor) {
  const Dataset dataset = dataset_of(10);
  Loader loader(dataset, {8, 2, 5}, {.batch_records = 2, .order = Order::as_given});
  EXPECT_EQ(loader.num_records(), 3);
  EXPECT_EQ(loader.batches(7), (std::vector<Rows>{{8, 2}, {5}}));
  EXPECT_EQ(run(loader, 0).size(), 2);
}

TEST(Loader, ThreadsChangeNothing) {
  const Dataset dataset = dataset_of(57);
  LoaderOptions options = {.batch_records = 4, .seed = 3, .graph_signs = GraphSigns::flipped, .prefetch = 0};
  Loader plain(dataset, options);
  const auto expected = run(plain, 2);
  EXPECT_EQ(expected.size(), 15);
  for (const int threads : {1, 3}) {
    for (const int64_t prefetch : {1, 4, 100}) {
      options.threads = threads;
      options.prefetch = prefetch;
      Loader loader(dataset, options);
      EXPECT_EQ(run(loader, 2), expected);
      EXPECT_EQ(run(loader, 2), expected);
    }
  }
}

TEST(Loader, GoesOnInTheMiddle) {
  const Dataset dataset = dataset_of(57);
  Loader loader(dataset, {.batch_records = 5, .batch_leaves = 12, .seed = 3, .graph_signs = GraphSigns::flipped});
  const auto whole = run(loader, 1);
  for (const size_t first : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1, whole.size()}) {
    Loader other(dataset, {.batch_records = 5, .batch_leaves = 12, .seed = 3, .graph_signs = GraphSigns::flipped});
    EXPECT_EQ(run(other, 1, static_cast<int64_t>(first)),
              std::vector<std::string>(whole.begin() + static_cast<int64_t>(first), whole.end()));
  }
  EXPECT_EQ(error_message([&] { loader.start(1, 1000); }),
            "batch 1000 of an epoch of " + std::to_string(whole.size()) + " batches is asked for");
}

TEST(Loader, MayBeStartedAgainBeforeTheEnd) {
  const Dataset dataset = dataset_of(57);
  Loader loader(dataset, {.batch_records = 2, .threads = 2});
  const auto expected = run(loader, 1);
  for (int i = 0; i < 20; ++i) {
    loader.start(0);
    loader.next();
    EXPECT_EQ(run(loader, 1), expected);
  }
}

TEST(Loader, SignsDifferByEpoch) {
  const Dataset dataset = dataset_of(30);
  const auto graphs = [&](GraphSigns signs, int64_t epoch) {
    Loader loader(dataset, {.order = Order::as_given, .graph_signs = signs});
    loader.start(epoch);
    return loader.next()->positions.graph;
  };
  EXPECT_EQ(graphs(GraphSigns::as_computed, 0), graphs(GraphSigns::as_computed, 1));
  EXPECT_NE(graphs(GraphSigns::flipped, 0), graphs(GraphSigns::flipped, 1));
  EXPECT_EQ(graphs(GraphSigns::flipped, 1), graphs(GraphSigns::flipped, 1));
}

TEST(Loader, RefusesOptionsThatMakeNoSense) {
  const Dataset dataset = dataset_of(3);
  EXPECT_EQ(error_message([&] { Loader(dataset, {.batch_records = 0}); }), "batch_records must be at least 1");
  EXPECT_EQ(error_message([&] { Loader(dataset, {.batch_leaves = -1}); }), "batch_leaves must not be negative");
}

TEST(Split, IsExactAndAtRandom) {
  const Split split = split_records(100, 0.2, 1);
  EXPECT_EQ(split.valid.size(), 20);
  EXPECT_EQ(split.train.size(), 80);
  Rows all = split.train;
  all.insert(all.end(), split.valid.begin(), split.valid.end());
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
  EXPECT_EQ(split_records(100, 0.2, 1).valid, split.valid);
  EXPECT_NE(split_records(100, 0.2, 2).valid, split.valid);
}

TEST(Split, LeavesSomethingOnBothSides) {
  EXPECT_EQ(split_records(3, 0.01, 0).valid.size(), 1);
  EXPECT_EQ(split_records(3, 0.99, 0).train.size(), 1);
  EXPECT_EQ(split_records(3, 0, 0).valid.size(), 0);
  EXPECT_EQ(split_records(1, 0.5, 0).train.size() + split_records(1, 0.5, 0).valid.size(), 1);
  EXPECT_THROW(split_records(3, 1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace ramify::signal
