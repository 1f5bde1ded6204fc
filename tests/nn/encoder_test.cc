// The encoder and its head on random records of all modalities and domains.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "nn/local_pooling.h"
#include "nn/range_means.h"
#include "nn/range_pooling.h"
#include "nn/records.h"

namespace ramify::nn {
namespace {

using testing::all_inputs;
using testing::all_modalities;
using testing::batch_of;
using testing::random_records;
using testing::Record;
using testing::RecordBatch;
using testing::small_config;
using testing::vector_tensor;

using Change = std::function<void(EncoderConfig&)>;

double distance(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  if (a.numel() == 0) return 0;
  return (a - b).abs().max().item<double>() / (1 + b.abs().max().item<double>());
}

std::shared_ptr<Model> make_model(
    const Change& change = [](EncoderConfig&) {}, uint64_t seed = 0) {
  at::manual_seed(seed);
  auto model = std::make_shared<Model>(small_config(change), all_modalities(), all_inputs(), 3);
  model->eval();
  return model;
}

// One thing changed at a time.
const std::map<std::string, Change>& changes() {
  static const std::map<std::string, Change> all = {
      {"as it is", [](EncoderConfig&) {}},
      {"untied", [](EncoderConfig& c) { c.layers[0].tie = Tie::none; }},
      {"with self", [](EncoderConfig& c) { c.layers[0].include_self = c.layers[1].include_self = true; }},
      {"sparse", [](EncoderConfig& c) { c.layers[1].alpha = 1.5; }},
      {"learned alpha", [](EncoderConfig& c) { c.layers[0].alpha = c.layers[1].alpha = std::nullopt; }},
      {"favor", [](EncoderConfig& c) { c.layers[0].favor_features = 16; }},
      {"normalized values", [](EncoderConfig& c) { c.layers[0].normalize_values = true; }},
      {"small positions", [](EncoderConfig& c) { c.layers[0].position_head_dim = 3; }},
      {"none", [](EncoderConfig& c) { c.set_attention(Attention::none); }},
      {"collapse", [](EncoderConfig& c) { c.layers[0].pooling.kind = LocalPooling::Kind::collapse; }},
      {"collapse twice",
       [](EncoderConfig& c) {
         c.layers[0].pooling.kind = c.layers[1].pooling.kind = LocalPooling::Kind::collapse;
         c.layers.push_back({.heads = 1, .head_dim = 6, .width = 7});
       }},
      {"merge",
       [](EncoderConfig& c) {
         c.layers[0].pooling = {LocalPooling::Kind::merge, 3};
       }},
      {"merge and collapse",
       [](EncoderConfig& c) {
         c.layers[0].pooling = {LocalPooling::Kind::merge, 2};
         c.layers[1].pooling.kind = LocalPooling::Kind::collapse;
         c.layers.push_back({.heads = 1, .head_dim = 6, .width = 7});
       }},
      {"first leaf", [](EncoderConfig& c) { c.pooling_leaf = 0; }},
      {"last but one leaf", [](EncoderConfig& c) { c.pooling_leaf = -2; }},
      {"learned frequencies", [](EncoderConfig& c) { c.fourier = Frequencies::learned; }},
      {"no positions", [](EncoderConfig& c) { c.positions = false; }},
      {"keys of tokens", [](EncoderConfig& c) { c.keys = Keys::tokens; }},
      {"no hidden layer", [](EncoderConfig& c) { c.mlp_width = 0, c.activation = Activation::relu; }},
  };
  return all;
}

class EncoderLaws : public ::testing::TestWithParam<std::string> {
 protected:
  const Change& change() const { return changes().at(GetParam()); }
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, change] : changes()) all.push_back(name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, EncoderLaws, ::testing::ValuesIn(names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, ' ', '_');
  return name;
});

TEST_P(EncoderLaws, ARecordIsTheSameAloneAndInABatch) {
  const at::NoGradGuard no_grad;
  const auto model = make_model(change());
  // FAVOR takes a leaf's own share out of a sum over all: where that share is large, rounding is magnified.
  const double tolerance = GetParam() == "favor" ? 2e-2 : 1e-5;
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<Record> records = random_records(seed, 30);
    const RecordBatch all = batch_of(records);
    const at::Tensor together = model->forward(all.batch, all.begin, all.end);
    for (size_t r = 0; r < records.size(); ++r) {
      const RecordBatch one = batch_of({&records[r], 1});
      const at::Tensor alone = model->forward(one.batch, one.begin, one.end);
      EXPECT_LT(distance(alone[0], together[static_cast<int64_t>(r)]), tolerance)
          << "seed " << seed << ", record " << r;
    }
  }
}

TEST_P(EncoderLaws, GradientsReachEveryParameter) {
  const auto model = make_model(change());
  const std::vector<Record> records = random_records(5, 60);
  const RecordBatch all = batch_of(records);
  model->forward(all.batch, all.begin, all.end).square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    const at::Tensor gradient = parameter.value().grad();
    ASSERT_TRUE(gradient.defined()) << parameter.key();
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << parameter.key();
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << parameter.key();
  }
}

TEST_P(EncoderLaws, GradientsOfTakenRowsAreTheDenseOnes) {
  const auto model = make_model(change());
  const std::vector<Record> records = random_records(6, 40);
  const RecordBatch all = batch_of(records);
  std::map<std::string, at::Tensor> dense;
  bool has_sparse = false;
  for (const TableGradient kind : {TableGradient::dense, TableGradient::rows}) {
    model->set_table_gradient(kind);
    model->zero_grad();
    model->forward(all.batch, all.begin, all.end).square().sum().backward();
    for (const auto& parameter : model->named_parameters()) {
      const at::Tensor gradient = parameter.value().grad();
      has_sparse |= gradient.is_sparse();
      if (kind == TableGradient::dense) {
        EXPECT_FALSE(gradient.is_sparse());
        dense[parameter.key()] = gradient.clone();
      } else {
        const at::Tensor found = gradient.is_sparse() ? gradient.to_dense() : gradient;
        EXPECT_LT(distance(found, dense[parameter.key()]), 1e-6) << parameter.key();
      }
    }
  }
  EXPECT_TRUE(has_sparse);
}

TEST_P(EncoderLaws, GradientsAreSlopes) {
  const auto model = make_model(change());
  model->to(at::kDouble);
  const RecordBatch all = batch_of(random_records(19, 12));
  const auto value = [&] {
    const at::Tensor outputs = model->forward(all.batch, all.begin, all.end);
    return (outputs * at::arange(1, outputs.numel() + 1).view_as(outputs)).sin().sum();
  };
  value().backward();
  // along one random direction in the space of all parameters
  double slope = 0;
  std::vector<at::Tensor> direction;
  for (const at::Tensor& parameter : model->parameters()) {
    direction.push_back(at::randn(parameter.sizes(), parameter.options()) * 0.1);
    if (parameter.grad().defined()) slope += (parameter.grad() * direction.back()).sum().item<double>();
  }
  const at::NoGradGuard no_grad;
  const auto value_at = [&](double step) {
    std::vector<at::Tensor> parameters = model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].add_(direction[i], step);
    const double result = value().item<double>();
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].sub_(direction[i], step);
    return result;
  };
  constexpr double kStep = 1e-6;
  EXPECT_NEAR((value_at(kStep) - value_at(-kStep)) / (2 * kStep), slope, 1e-5 * (1 + std::abs(slope)));
}

TEST_P(EncoderLaws, MassOfNodesIsThatOfTheirChildren) {
  const auto model = make_model(change());
  const std::vector<Record> records = random_records(6, 30);
  const RecordBatch all = batch_of(records);
  const Forest& forest = all.batch.forest.forest();
  for (size_t layer = 0; layer < model->config().layers.size(); ++layer) {
    const at::Tensor mass = model->node_mass(all.batch, static_cast<int64_t>(layer));
    ASSERT_EQ(mass.size(0), forest.num_nodes());
    const float* of_node = mass.const_data_ptr<float>();
    for (int64_t n = 0; n < forest.num_nodes(); ++n) {
      if (n < forest.tree_begin().back()) {
        EXPECT_TRUE(std::abs(of_node[n] - 1) < 1e-4 || of_node[n] == 0) << of_node[n];
      }
      float sum = 0;
      for (int64_t c = forest.first_child()[n]; c < forest.first_child()[n + 1]; ++c) sum += of_node[c];
      if (forest.is_leaf(n)) continue;
      EXPECT_NEAR(sum, of_node[n], 1e-4);
    }
  }
}

TEST(Encoder, ZeroWeightsAreCountedInsideTrees) {
  const std::vector<Record> records = random_records(6, 30);
  for (const bool include_self : {false, true}) {
    double fewer = 0;
    for (const double alpha : {1.0, 1.5, 2.0}) {
      const auto model = make_model([&](EncoderConfig& c) {
        c.layers[0].alpha = alpha;
        c.layers[0].include_self = include_self;
      });
      double zeros = 0, pairs = 0;
      for (const Record& record : records) {
        const RecordBatch one = batch_of(std::span(&record, 1));
        const auto leaves = static_cast<double>(one.batch.forest.forest().num_leaves());
        const double of_one = leaves * (include_self ? leaves : leaves - 1);
        pairs += of_one;
        zeros += of_one * model->encoder().zero_weights(one.batch, 0).value_or(0);
      }
      EXPECT_NEAR(model->encoder().zero_weights(batch_of(records).batch, 0).value(), zeros / pairs, 1e-9);
      if (alpha == 1.0) {
        EXPECT_EQ(zeros, 0);
        EXPECT_FALSE(model->zero_weights(batch_of(records).batch));
      } else {
        EXPECT_GT(zeros, fewer);
        EXPECT_EQ(model->zero_weights(batch_of(records).batch),
                  model->encoder().zero_weights(batch_of(records).batch, 0));
      }
      fewer = zeros;
    }
  }
  EXPECT_FALSE(make_model([](EncoderConfig& c) { c.set_attention(Attention::none); })
                   ->encoder()
                   .zero_weights(batch_of(records).batch, 0));
}

TEST_P(EncoderLaws, ParametersMakeTheModel) {
  const at::NoGradGuard no_grad;
  const auto model = make_model(change(), 1), other = make_model(change(), 2);
  const std::vector<Record> records = random_records(7, 5);
  const RecordBatch all = batch_of(records);
  const auto outputs = [&](Model& m) { return m.forward(all.batch, all.begin, all.end); };
  EXPECT_GT(distance(outputs(*other), outputs(*model)), 1e-3);
  const auto source = model->named_parameters(), target = other->named_parameters();
  for (const auto& parameter : source) target[parameter.key()].copy_(parameter.value());
  const auto source_buffers = model->named_buffers(), target_buffers = other->named_buffers();
  for (const auto& buffer : source_buffers) target_buffers[buffer.key()].copy_(buffer.value());
  EXPECT_TRUE(outputs(*other).equal(outputs(*model)));
}

TEST_P(EncoderLaws, LowerPrecisionIsClose) {
  const at::NoGradGuard no_grad;
  const auto model = make_model(change());
  const std::vector<Record> records = random_records(8, 20);
  const RecordBatch all = batch_of(records);
  const at::Tensor exact = model->represent(all.batch, all.begin, all.end);
  model->set_compute_dtype(at::kBFloat16);
  const at::Tensor rough = model->represent(all.batch, all.begin, all.end);
  EXPECT_EQ(rough.scalar_type(), at::kFloat);
  EXPECT_GT(distance(rough, exact), 0);
  EXPECT_LT(distance(rough, exact), 3e-2);
}

TEST(Encoder, TrainsInLowerPrecision) {
  const auto model = make_model();
  model->set_compute_dtype(at::kBFloat16);
  const RecordBatch all = batch_of(random_records(9, 10));
  model->forward(all.batch, all.begin, all.end).square().sum().backward();
  for (const auto& parameter : model->parameters()) {
    ASSERT_TRUE(parameter.grad().defined());
    EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
  }
}

// A layer as its formula reads, over one flat family, from the parameters by name.
at::Tensor flat_layer(const Layer& layer, const at::Tensor& x, const at::Tensor& positions) {
  const auto p = layer.named_parameters();
  const LayerConfig& c = layer.config();
  const int64_t n = x.size(0);
  const auto heads = [&](const std::string& part) {
    const at::Tensor rows = at::linear(x, p["leaves.leaf." + part]);
    return rows.view({n, c.heads, c.head_dim});
  };
  const auto normalized = [&](const at::Tensor& rows, const std::string& norm) {
    return at::layer_norm(rows, {c.head_dim}, p[norm + "_weight"], p[norm + "_bias"]);
  };
  const at::Tensor q = normalized(heads("query"), "query_norm"), k = normalized(heads("key"), "key_norm");
  const at::Tensor e = at::linear(positions, p["positions.position.weight"]).view({n, c.heads, c.position_head_dim});
  const auto products = [](const at::Tensor& a, const at::Tensor& b) {
    return a.transpose(0, 1).matmul(b.transpose(0, 1).transpose(1, 2));
  };
  at::Tensor scores = products(q, k) / std::sqrt(static_cast<double>(c.head_dim)) + products(e, e);
  scores = scores.masked_fill(at::eye(n, at::kBool), -INFINITY);
  const at::Tensor out = at::softmax(scores, -1).matmul(heads("value").transpose(0, 1)).transpose(0, 1);
  return at::gelu(at::linear((out + q).flatten(1), p["output.weight"], p["output.bias"]));
}

TEST(Layer, OverAFlatForestIsSoftmaxAttention) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  const LayerConfig config = {.heads = 3, .head_dim = 8, .width = 11, .position_head_dim = 5};
  const Layer layer(config, Activation::gelu, {{"leaf", 6}}, {{"position", 4}});
  const int64_t n = 17;
  const at::Tensor x = at::randn({n, 6}), features = at::randn({n, 4});
  const Forest forest = windows(std::vector<int64_t>{n}, Branching());
  // the root has no position, and leaves stand behind it
  const at::Tensor index = at::arange(-1, n, at::kLong);
  const at::Tensor out = layer.forward(forest, {{0, x, {}}}, {{{0, features}}, index});
  EXPECT_LT(distance(out, flat_layer(layer, x, features)), 1e-5);
}

TEST(Encoder, WithoutAttentionLeavesDoNotSeeEachOther) {
  const at::NoGradGuard no_grad;
  for (const bool mixes : {true, false}) {
    const auto model = make_model([&](EncoderConfig& c) {
      if (!mixes) c.set_attention(Attention::none);
    });
    std::vector<Record> records = random_records(11, 1);
    records[0] = Record{{4, kItem, kItem, 2, kItem, kItem, kItem}, {}, {}};
    std::mt19937_64 random(4);
    testing::RandomRecord(random, 1).fill(records[0]);
    const at::Tensor before = model->encode(batch_of(records).batch).of_inputs();
    records[0].leaves[2].id = (records[0].leaves[2].id + 1) % testing::kTokens;
    const at::Tensor after = model->encode(batch_of(records).batch).of_inputs();
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(after[i].equal(before[i]), !mixes && i != 2) << i;
    }
  }
}

TEST(Encoder, WithoutAttentionHasNoKeysAndNoPositions) {
  const auto model = make_model([](EncoderConfig& c) { c.set_attention(Attention::none); });
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_EQ(parameter.key().find("position"), std::string::npos) << parameter.key();
    EXPECT_EQ(parameter.key().find(".key"), std::string::npos) << parameter.key();
  }
}

// A family of two groups of leaves, in two orders.
Record grouped(const std::vector<std::vector<int64_t>>& groups, std::optional<Domain> domain) {
  Record record;
  record.tree.push_back(static_cast<int64_t>(groups.size()));
  record.positions.emplace_back();
  for (size_t g = 0; g < groups.size(); ++g) {
    record.tree.push_back(static_cast<int64_t>(groups[g].size()));
    record.tree.insert(record.tree.end(), groups[g].size(), kItem);
    record.positions.push_back({domain, static_cast<int64_t>(g), {}});
  }
  for (const auto& group : groups) {
    for (size_t i = 0; i < group.size(); ++i) {
      record.leaves.push_back({0, group[i], {}});
      record.positions.push_back({domain, static_cast<int64_t>(i), {}});
    }
  }
  return record;
}

TEST(Encoder, DoesNotKnowTheOrderOfASet) {
  const at::NoGradGuard no_grad;
  const auto model = make_model();
  const auto outputs = [&](const Record& record) {
    const RecordBatch one = batch_of({&record, 1});
    return model->forward(one.batch, one.begin, one.end);
  };
  const std::vector<std::vector<int64_t>> groups = {{1, 2, 3}, {4, 5}}, turned = {{5, 4}, {2, 3, 1}};
  EXPECT_LT(distance(outputs(grouped(groups, {})), outputs(grouped(turned, {}))), 1e-6);
  EXPECT_GT(distance(outputs(grouped(groups, Domain::sequence)), outputs(grouped(turned, Domain::sequence))), 1e-4);
}

TEST(Encoder, PoolingBehindTheLastLayerKeepsMeansOfTrees) {
  const at::NoGradGuard no_grad;
  const std::vector<Record> records = random_records(12, 30);
  const RecordBatch all = batch_of(records);
  const at::Tensor plain = make_model()->represent(all.batch, all.begin, all.end);
  for (const LocalPooling pooling : {LocalPooling{LocalPooling::Kind::collapse, 0}, {LocalPooling::Kind::merge, 3}}) {
    const auto model = make_model([&](EncoderConfig& c) { c.layers.back().pooling = pooling; });
    EXPECT_LT(model->encode(all.batch).leaves.size(0), all.batch.forest.forest().num_leaves());
    EXPECT_LT(distance(model->represent(all.batch, all.begin, all.end), plain), 1e-5);
  }
}

TEST(Encoder, PooledLeavesAreMeansOfTheirs) {
  const at::NoGradGuard no_grad;
  const auto model = make_model([](EncoderConfig& c) { c.layers.resize(1); });
  const auto pooled = make_model([](EncoderConfig& c) {
    c.layers.resize(1);
    c.layers[0].pooling.kind = LocalPooling::Kind::collapse;
  });
  const Record record = grouped({{1, 2, 3}, {4, 5}}, Domain::sequence);
  const nn::Batch batch = batch_of({&record, 1}).batch;
  const at::Tensor leaves = model->encode(batch).leaves;
  const Encoding coarse = pooled->encode(batch);
  EXPECT_TRUE(coarse.leaf.equal(vector_tensor<int64_t>({0, 0, 0, 1, 1})));
  EXPECT_LT(distance(coarse.leaves[0], leaves.narrow(0, 0, 3).mean(0)), 1e-6);
  EXPECT_LT(distance(coarse.leaves[1], leaves.narrow(0, 3, 2).mean(0)), 1e-6);
}

TEST(LocalPooling, WeighsLeavesByWhatTheyHold) {
  // ((0 1 2) 3) (4 5): the first pooling leaves (. 3) and (4 5) as leaves, the second two leaves
  const Forest forest = from_nested(std::vector<int64_t>{2, 2, 3, kItem, kItem, kItem, kItem, 2, kItem, kItem});
  const at::Tensor rows = at::randn({6, 2});
  LayerState state{.forest = forest, .leaves = {{0, rows, {}}}, .rows = rows};
  pool(state, {LocalPooling::Kind::collapse, 0}, 1);
  EXPECT_EQ(state.rows.size(0), 3);
  ASSERT_EQ(state.leaves.size(), 2);
  EXPECT_TRUE(state.leaves[0].leaves.equal(vector_tensor<int64_t>({1})));  // leaf 3 is what it was
  EXPECT_TRUE(state.leaves[1].leaves.equal(vector_tensor<int64_t>({0, 2})));
  pool(state, {LocalPooling::Kind::collapse, 0}, 1);
  EXPECT_TRUE(state.leaf.equal(vector_tensor<int64_t>({0, 0, 0, 0, 1, 1})));
  EXPECT_LT(distance(state.rows[0], rows.narrow(0, 0, 4).mean(0)), 1e-6);
  EXPECT_LT(distance(state.rows[1], rows.narrow(0, 4, 2).mean(0)), 1e-6);
  EXPECT_EQ(state.leaf_count, (std::vector<float>{4, 2}));
  ASSERT_EQ(state.leaves.size(), 1);
  EXPECT_EQ(state.leaves[0].kind, 1);
}

TEST(Model, PoolsAnyRanges) {
  const at::NoGradGuard no_grad;
  const RecordBatch all = batch_of(random_records(13, 20));
  const auto begin = vector_tensor<int64_t>({5, 0, 7, 5, 3}), end = vector_tensor<int64_t>({9, 20, 8, 5, 6});
  const auto model = make_model();
  const at::Tensor leaves = model->encode(all.batch).of_inputs(), means = model->represent(all.batch, begin, end);
  EXPECT_LT(distance(means[0], leaves.narrow(0, 5, 4).mean(0)), 1e-6);
  EXPECT_LT(distance(means[1], leaves.narrow(0, 0, 20).mean(0)), 1e-6);
  EXPECT_LT(distance(means[2], leaves[7]), 1e-6);
  EXPECT_EQ(means[3].abs().max().item<double>(), 0);
  const auto rows = [&](int64_t leaf) {
    return make_model([&](EncoderConfig& c) { c.pooling_leaf = leaf; })->represent(all.batch, begin, end);
  };
  EXPECT_TRUE(rows(1)[0].equal(leaves[6]));
  EXPECT_TRUE(rows(1)[2].equal(leaves[7]));  // the range has no second leaf
  EXPECT_TRUE(rows(-1)[1].equal(leaves[19]));
  EXPECT_TRUE(rows(-2)[4].equal(leaves[4]));
  EXPECT_EQ(rows(0)[3].abs().max().item<double>(), 0);
}

TEST(Model, MeansOfRangesApartFromEachOtherHaveTheGradientsOfAnyRanges) {
  at::manual_seed(4);
  const at::Tensor rows = at::randn({20, 5}), weight = at::randn({4, 5});
  const auto begin = vector_tensor<int64_t>({2, 6, 6, 11}), end = vector_tensor<int64_t>({6, 6, 10, 19});
  ASSERT_TRUE(has_range_means(rows, begin, end));
  ASSERT_FALSE(has_range_means(rows, begin.flip(0), end.flip(0)));
  const auto gradient = [&](const at::Tensor& first, const at::Tensor& last, const at::Tensor& factors) {
    const at::Tensor leaves = rows.clone().requires_grad_();
    const Encoding encoding{ForestTensors(windows(std::vector<int64_t>{20}, Branching::parse("4"))), leaves, {}};
    (pool_ranges(encoding, first, last, std::nullopt) * factors).sum().backward();
    return leaves.grad();
  };
  EXPECT_LT(distance(gradient(begin, end, weight), gradient(begin.flip(0), end.flip(0), weight.flip(0))), 1e-6);
  const auto none = vector_tensor<int64_t>({});
  EXPECT_EQ(gradient(none, none, at::randn({0, 5})).abs().max().item<double>(), 0);
}

TEST(Model, TakesBatchesWithoutLeaves) {
  const Record empty{{0}, {}, {}}, leaf{{kItem}, {{0, 3, {}}}, {{}}};
  for (const auto& [name, change] : changes()) {
    const auto model = make_model(change);
    const RecordBatch none = batch_of(std::vector<Record>{}), blank = batch_of({&empty, 1});
    EXPECT_EQ(model->forward(none.batch, none.begin, none.end).sizes(), (std::vector<int64_t>{0, 3})) << name;
    EXPECT_EQ(model->forward(blank.batch, blank.begin, blank.end).sizes(), (std::vector<int64_t>{1, 3})) << name;
    const std::vector<Record> both = {empty, leaf};
    const RecordBatch batch = batch_of(both);
    EXPECT_TRUE(model->forward(batch.batch, batch.begin, batch.end).isfinite().all().item<bool>()) << name;
  }
}

TEST(Model, KeepsFrozenTablesAsTheyAre) {
  const auto model = make_model();
  const at::Tensor table = at::randn({testing::kTokens, 12});
  model->set_table("token", table, /*trainable=*/false);
  const RecordBatch all = batch_of(random_records(14, 20));
  model->forward(all.batch, all.begin, all.end).sum().backward();
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters["encoder.leaves.token.table"].equal(table));
  EXPECT_FALSE(parameters["encoder.leaves.token.table"].grad().defined());
  EXPECT_TRUE(parameters["encoder.leaves.category.table"].grad().defined());
  model->set_table("token", table, /*trainable=*/true);
  model->forward(all.batch, all.begin, all.end).sum().backward();
  EXPECT_TRUE(model->named_parameters()["encoder.leaves.token.table"].grad().defined());
}

TEST(Model, CountsTablesApart) {
  const auto model = make_model();
  int64_t total = 0;
  for (const at::Tensor& parameter : model->parameters()) total += parameter.numel();
  const ParameterCounts counts = model->parameter_counts();
  EXPECT_EQ(counts.total(), total);
  EXPECT_EQ(counts.tables,
            (testing::kTokens + testing::kCategories + 2 * testing::kFields) * 12 + (testing::kKeys + 1) * 16);
}

TEST(Model, DropsOutInTrainingOnly) {
  const at::NoGradGuard no_grad;
  const auto model = make_model([](EncoderConfig& c) { c.dropout = 0.3, c.token_dropout = 0.3; });
  const RecordBatch all = batch_of(random_records(15, 20));
  const auto outputs = [&](uint64_t seed) {
    at::manual_seed(seed);
    return model->forward(all.batch, all.begin, all.end);
  };
  EXPECT_TRUE(outputs(1).equal(outputs(2)));
  model->train();
  EXPECT_TRUE(outputs(1).equal(outputs(1)));
  EXPECT_FALSE(outputs(1).equal(outputs(2)));
}

TEST(Module, ComputesWithTheTensorsItIsGiven) {
  const auto model = make_model();
  const RecordBatch all = batch_of(random_records(16, 5));
  const at::Tensor before = model->forward(all.batch, all.begin, all.end).detach();
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& parameter : model->parameters())
    tensors.push_back(parameter.detach().clone().requires_grad_());
  for (const at::Tensor& buffer : model->buffers()) tensors.push_back(buffer.clone());
  model->share(tensors);
  const at::Tensor after = model->forward(all.batch, all.begin, all.end);
  EXPECT_TRUE(after.detach().equal(before));
  after.sum().backward();
  for (const at::Tensor& tensor : tensors) EXPECT_EQ(tensor.grad().defined(), tensor.requires_grad());
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& tensor : tensors) tensor.mul_(1.5);
  }
  EXPECT_GT(distance(model->forward(all.batch, all.begin, all.end), before), 1e-3);
  tensors.pop_back();
  EXPECT_THROW(model->share(tensors), c10::ValueError);
}

TEST(Encoder, DoesWithoutGatheringWhereThereIsOneModality) {
  const at::NoGradGuard no_grad;
  const auto model = make_model();
  const std::vector<Record> records = random_records(17, 10, /*num_modalities=*/1);
  RecordBatch all = batch_of(records);
  const at::Tensor with_numbers = model->forward(all.batch, all.begin, all.end);
  all.batch.leaves[0].leaf = at::Tensor();
  EXPECT_TRUE(model->forward(all.batch, all.begin, all.end).equal(with_numbers));
}

std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(Encoder, SaysWhatIsWrongWithABatch) {
  const auto model = make_model();
  const RecordBatch good = batch_of(random_records(18, 3));
  const auto message = [&](const std::function<void(RecordBatch&)>& spoil) {
    RecordBatch bad = good;
    spoil(bad);
    return failure([&] { model->forward(bad.batch, bad.begin, bad.end); });
  };
  EXPECT_EQ(message([](RecordBatch& b) { b.batch.leaves.pop_back(); }),
            "encoder: the batch has leaves of 3 modalities, the encoder has 4");
  EXPECT_NE(message([](RecordBatch& b) { b.batch.leaves[0] = {}; }).find("rows of leaves, the forest has"),
            std::string::npos);
  EXPECT_NE(message([](RecordBatch& b) { b.batch.leaves[0].leaf = b.batch.leaves[0].leaf + 1; }).find("every leaf"),
            std::string::npos);
  EXPECT_NE(message([](RecordBatch& b) {
              b.batch.leaves[3].value = b.batch.leaves[3].value.narrow(1, 0, 2);
            }).find("expected [n, 5]"),
            std::string::npos);
  EXPECT_NE(message([](RecordBatch& b) {
              b.batch.positions.index = b.batch.positions.index.narrow(0, 0, 2);
            }).find("position index has shape [2]"),
            std::string::npos);
  EXPECT_NE(message([](RecordBatch& b) { b.end = b.end + 1; }).find("a range of leaves is not within 0 and"),
            std::string::npos);
  EXPECT_EQ(failure([&] {
              model->set_table("number", at::randn({1, 1}), true);
            }),
            "encoder: no modality of ids is called number");
  EXPECT_EQ(failure([&] {
              model->set_table("token", at::randn({1, 1}), true);
            }),
            "set_table: vectors of token have shape [1, 1]; expected [40, 12]");
  EXPECT_EQ(failure([&] { model->node_mass(good.batch, 2); }), "node_mass: layer 2; the encoder has 2 layers");
  EXPECT_EQ(failure([&] {
              Model(small_config(), {{"a.b", Feature::ids, 3}}, {}, 1);
            }),
            "encoder: 'a.b' cannot name a modality; expected a name without dots");
  EXPECT_EQ(failure([&] {
              Model(small_config(), {{"pooled", Feature::ids, 3}}, {}, 1);
            }),
            "encoder: two modalities are called pooled");
}

}  // namespace
}  // namespace ramify::nn
