#include "compare/comparison.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <stdexcept>

#include "compare/logistic_head.h"
#include "ramify/cost.h"
#include "train/metrics.h"

namespace ramify::compare {
namespace {

using nlohmann::json;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Which texts a head learns from, and which it is scored on.
struct Fold {
  std::vector<int64_t> learned, scored;
};

at::Tensor rows_of(const at::Tensor& vectors, const std::vector<int64_t>& rows) {
  return at::index_select(vectors, 0, at::tensor(rows));
}

template <class Value>
std::vector<Value> chosen(const std::vector<Value>& all, const std::vector<int64_t>& places) {
  std::vector<Value> some;
  for (const int64_t place : places) some.push_back(all[static_cast<size_t>(place)]);
  return some;
}

// Every k-th text of each class, so that all folds have all classes.
std::vector<Fold> cross_validation(const std::vector<int64_t>& classes, int64_t num_classes, int64_t folds) {
  std::vector<Fold> made(static_cast<size_t>(folds));
  std::vector<int64_t> seen(static_cast<size_t>(num_classes));
  for (size_t i = 0; i < classes.size(); ++i) {
    const int64_t own = seen[static_cast<size_t>(classes[i])]++ % folds;
    for (int64_t f = 0; f < folds; ++f) {
      Fold& fold = made[static_cast<size_t>(f)];
      (f == own ? fold.scored : fold.learned).push_back(static_cast<int64_t>(i));
    }
  }
  return made;
}

class Comparing {
 public:
  Comparing(const models::TextModel& model, const LabelledTexts& train, const LabelledTexts& test,
            const CompareOptions& options)
      : model_(model), train_(train), test_(test), options_(options), has_test_(!test.texts.empty()) {
    number_classes();
    if (!has_test_) folds_ = cross_validation(train_classes_, num_classes(), options.folds);
  }

  Comparison run(const std::vector<Variant>& variants) {
    Comparison comparison{.train_texts = static_cast<int64_t>(train_.texts.size()),
                          .test_texts = static_cast<int64_t>(scored().size()),
                          .classes = num_classes(),
                          .folds = has_test_ ? 0 : options_.folds};
    for (const models::TokenizedText& text : scored()) comparison.tokens += text.structure.tokens;
    if (!fit_heads()) return comparison;
    const DriftReference reference(model_, drift_texts());
    const auto exact = models::AttentionPlan::exact(model_.num_layers());
    VariantResult first{.name = "exact", .hierarchy = "", .layers = "", .tie = ""};
    if (!evaluate(exact, first)) return comparison;
    comparison.results.push_back(first);
    for (const Variant& variant : variants) {
      VariantResult result{.name = variant.name(model_.num_layers()),
                           .hierarchy = variant.attention.hierarchy.text(),
                           .layers = models::layers_text(variant.layers, model_.num_layers()),
                           .tie = std::string(models::name_of(variant.attention.tie)),
                           .start_layer = variant.start_layer};
      const models::AttentionPlan plan = variant.plan(model_.num_layers());
      if (!evaluate(plan, result)) return comparison;
      result.drift = reference.drift(plan);
      comparison.results.push_back(result);
    }
    return comparison;
  }

 private:
  const std::vector<models::TokenizedText>& scored() const { return has_test_ ? test_.texts : train_.texts; }
  const std::vector<int64_t>& truth() const { return has_test_ ? test_classes_ : train_classes_; }
  int64_t num_classes() const { return static_cast<int64_t>(class_of_.size()); }

  void number_classes() {
    for (const std::string& label : train_.labels) class_of_.emplace(label, 0);
    if (class_of_.size() < 2)
      throw std::invalid_argument("compare: the texts have only one label; nothing to tell apart");
    constexpr size_t kMaxClasses = 1000;
    if (class_of_.size() > kMaxClasses) {
      throw std::invalid_argument("compare: the texts have " + std::to_string(class_of_.size()) +
                                  " labels; expected at most " + std::to_string(kMaxClasses) +
                                  ". Is it the right target?");
    }
    int64_t next = 0;
    for (auto& [label, number] : class_of_) number = next++;
    for (const std::string& label : train_.labels) train_classes_.push_back(class_of_.at(label));
    for (const std::string& label : test_.labels) {
      const auto found = class_of_.find(label);
      test_classes_.push_back(found == class_of_.end() ? -1 : found->second);
    }
    if (has_test_ && std::ranges::all_of(test_classes_, [](int64_t c) { return c < 0; })) {
      throw std::invalid_argument("compare: no label of the test part is among those of DATA");
    }
    std::vector<int64_t> counts(class_of_.size());
    for (const int64_t c : train_classes_) ++counts[static_cast<size_t>(c)];
    const auto rarest = std::ranges::min_element(counts) - counts.begin();
    if (has_test_ || counts[static_cast<size_t>(rarest)] >= options_.folds) return;
    throw std::invalid_argument("compare: label '" + std::next(class_of_.begin(), rarest)->first + "' has only " +
                                std::to_string(counts[static_cast<size_t>(rarest)]) + " texts; cross-validation in " +
                                std::to_string(options_.folds) + " parts needs as many of each, or give a test part");
  }

  models::EmbedOptions embedding(const models::AttentionPlan& plan, const std::string& what, size_t texts) const {
    models::EmbedOptions embedding{.plan = plan, .pooling = options_.pooling, .batch_tokens = options_.batch_tokens};
    embedding.on_batch = [this, what, texts](size_t done) {
      return !options_.on_progress || options_.on_progress(what, static_cast<double>(done) / texts);
    };
    return embedding;
  }

  // False: stopped.
  bool fit_heads() {
    bool whole = true;
    auto learn = embedding(models::AttentionPlan::exact(model_.num_layers()), "learning", train_.texts.size());
    learn.on_batch = [&, show = learn.on_batch](size_t done) { return whole = show(done); };
    const at::Tensor vectors = embed(model_, train_.texts, learn);
    if (!whole) return false;
    models::require_finite(vectors);
    if (has_test_) {
      heads_.push_back(LogisticHead::fit(vectors, train_classes_, num_classes()));
      return true;
    }
    for (const Fold& fold : folds_) {
      heads_.push_back(
          LogisticHead::fit(rows_of(vectors, fold.learned), chosen(train_classes_, fold.learned), num_classes()));
    }
    return true;
  }

  std::vector<int64_t> predict(const at::Tensor& vectors) const {
    if (has_test_) return heads_[0].predict(vectors);
    std::vector<int64_t> predictions(scored().size());
    for (size_t f = 0; f < folds_.size(); ++f) {
      const std::vector<int64_t> own = heads_[f].predict(rows_of(vectors, folds_[f].scored));
      for (size_t i = 0; i < own.size(); ++i) predictions[static_cast<size_t>(folds_[f].scored[i])] = own[i];
    }
    return predictions;
  }

  // The first one is the exact model. False: stopped.
  bool evaluate(const models::AttentionPlan& plan, VariantResult& result) {
    bool whole = true;
    models::Trace trace{.time_attention = true};
    auto how = embedding(plan, result.name, scored().size());
    how.trace = &trace;
    how.on_batch = [&, show = how.on_batch](size_t done) { return whole = show(done); };
    const double began = now();
    const at::Tensor vectors = embed(model_, scored(), how);
    if (!whole) return false;
    models::require_finite(vectors);
    result.seconds = now() - began;
    result.attention_seconds = trace.attention_seconds;
    const std::vector<int64_t> predictions = predict(vectors);
    if (!exact_vectors_.defined()) {
      exact_vectors_ = vectors;
      exact_predictions_ = predictions;
    }
    score(predictions, result);
    result.cosine = at::cosine_similarity(vectors, exact_vectors_).mean().item<double>();
    add_cost(plan, result);
    return true;
  }

  void score(const std::vector<int64_t>& predictions, VariantResult& result) const {
    train::Confusion confusion(num_classes());
    int64_t same = 0;
    for (size_t i = 0; i < predictions.size(); ++i) {
      if (truth()[i] < 0) {
        confusion.add_unseen(predictions[i]);
      } else {
        confusion.add(truth()[i], predictions[i]);
      }
      same += predictions[i] == exact_predictions_[i];
    }
    result.scores = {confusion.accuracy(), confusion.macro_precision(), confusion.macro_recall(), confusion.macro_f1()};
    result.agreement = static_cast<double>(same) / static_cast<double>(predictions.size());
  }

  void add_cost(const models::AttentionPlan& plan, VariantResult& result) const {
    AttentionShape shape{.width = model_.config().width, .heads = model_.config().heads};
    std::map<std::string, AttentionCost> known;  // of all texts, by hierarchy
    for (const auto& layer : plan.layers) {
      const std::string hierarchy = layer ? layer->hierarchy.text() : "";
      if (!known.contains(hierarchy)) {
        AttentionCost sum;
        for (const models::TokenizedText& text : scored()) {
          shape.tokens = text.structure.tokens;
          const AttentionCost cost =
              layer ? forest_cost(shape, layer->hierarchy.build({&text.structure, 1})) : flat_cost(shape);
          sum.paper_flops += cost.paper_flops;
          sum.multiply_adds += cost.multiply_adds;
        }
        known.emplace(hierarchy, sum);
      }
      result.paper_flops += known.at(hierarchy).paper_flops;
      result.multiply_adds += known.at(hierarchy).multiply_adds;
    }
  }

  // Spread over all that are scored.
  std::vector<const models::TokenizedText*> drift_texts() const {
    const auto count = std::min<size_t>(static_cast<size_t>(options_.drift_texts), scored().size());
    std::vector<const models::TokenizedText*> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(&scored()[i * scored().size() / count]);
    return texts;
  }

  const models::TextModel& model_;
  const LabelledTexts &train_, &test_;
  const CompareOptions& options_;
  bool has_test_;
  std::map<std::string, int64_t> class_of_;
  std::vector<int64_t> train_classes_, test_classes_;
  std::vector<Fold> folds_;
  std::vector<LogisticHead> heads_;  // one a fold, or one
  at::Tensor exact_vectors_;
  std::vector<int64_t> exact_predictions_;
};

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

}  // namespace

json VariantResult::to_json() const {
  json layers_json = json::array();
  for (const LayerDrift& layer : drift) {
    layers_json.push_back({{"output_error", layer.output_error}, {"divergence", number_or_null(layer.divergence)}});
  }
  json result = {{"name", name},
                 {"accuracy", scores.accuracy},
                 {"precision", scores.precision},
                 {"recall", scores.recall},
                 {"f1", scores.f1},
                 {"agreement", agreement},
                 {"cosine", cosine},
                 {"paper_flops", paper_flops},
                 {"multiply_adds", multiply_adds},
                 {"attention_seconds", attention_seconds},
                 {"seconds", seconds}};
  if (hierarchy.empty()) return result;
  result.update({{"hierarchy", hierarchy}, {"layers", layers}, {"tie", tie}, {"drift", layers_json}});
  if (start_layer >= 0) result["start_layer"] = start_layer;
  return result;
}

json Comparison::to_json() const {
  json list = json::array();
  for (const VariantResult& result : results) list.push_back(result.to_json());
  json all = {{"train_texts", train_texts},
              {"test_texts", test_texts},
              {"tokens", tokens},
              {"classes", classes},
              {"results", list}};
  if (folds > 0) all["folds"] = folds;
  return all;
}

Comparison compare(const models::TextModel& model, const LabelledTexts& train, const LabelledTexts& test,
                   const std::vector<Variant>& variants, const CompareOptions& options) {
  return Comparing(model, train, test, options).run(variants);
}

}  // namespace ramify::compare
