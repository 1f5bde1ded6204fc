#include "train/metrics.h"

#include <cmath>
#include <numeric>

namespace ramify::train {
namespace {

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// The harmonic mean of precision and recall, from what both are made of.
double f1(int64_t hits, int64_t false_alarms, int64_t misses) {
  return ratio(2.0 * hits, 2.0 * hits + false_alarms + misses);
}

nlohmann::json class_row(const std::string& name, double precision, double recall, double f1, int64_t support) {
  return {{"class", name}, {"precision", precision}, {"recall", recall}, {"f1", f1}, {"support", support}};
}

}  // namespace

int64_t Confusion::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), unseen());
}

int64_t Confusion::unseen() const {
  return std::accumulate(unseen_.begin(), unseen_.end(), int64_t{0});
}

double Confusion::accuracy() const {
  int64_t right = 0;
  for (int64_t c = 0; c < classes_; ++c) right += counts_[c * classes_ + c];
  return ratio(right, total());
}

Confusion::Score Confusion::score(int64_t one) const {
  int64_t support = 0, predicted = unseen_[one];
  for (int64_t c = 0; c < classes_; ++c) {
    support += counts_[one * classes_ + c];
    predicted += counts_[c * classes_ + one];
  }
  const int64_t hits = counts_[one * classes_ + one];
  return {.precision = ratio(hits, predicted),
          .recall = ratio(hits, support),
          .f1 = f1(hits, predicted - hits, support - hits),
          .support = support,
          .predicted = predicted};
}

double Confusion::mean_over_classes(double Score::*figure) const {
  double sum = 0;
  int64_t seen = 0;
  for (int64_t c = 0; c < classes_; ++c) {
    const Score s = score(c);
    if (s.support + s.predicted == 0) continue;
    sum += s.*figure;
    ++seen;
  }
  return ratio(sum, seen);
}

double Confusion::macro_precision() const {
  return mean_over_classes(&Score::precision);
}
double Confusion::macro_recall() const {
  return mean_over_classes(&Score::recall);
}
double Confusion::macro_f1() const {
  return mean_over_classes(&Score::f1);
}

nlohmann::json Confusion::per_class(std::span<const std::string> names) const {
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t c = 0; c < classes_; ++c) {
    const Score s = score(c);
    rows.push_back(class_row(names[c], s.precision, s.recall, s.f1, s.support));
  }
  return rows;
}

nlohmann::json Confusion::matrix() const {
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t c = 0; c < classes_; ++c) {
    rows.push_back(std::vector<int64_t>(counts_.begin() + c * classes_, counts_.begin() + (c + 1) * classes_));
  }
  return rows;
}

void LabelCounts::add(int64_t label, bool truth, bool prediction) {
  Counts& counts = counts_[label];
  counts.hits += truth && prediction;
  counts.false_alarms += !truth && prediction;
  counts.misses += truth && !prediction;
}

double LabelCounts::exact_match() const {
  return ratio(exact_, records_);
}

double LabelCounts::micro_f1() const {
  Counts all;
  for (const Counts& c : counts_) {
    all.hits += c.hits;
    all.false_alarms += c.false_alarms;
    all.misses += c.misses;
  }
  return f1(all.hits, all.false_alarms, all.misses);
}

double LabelCounts::macro_f1() const {
  double sum = 0;
  int64_t seen = 0;
  for (const Counts& c : counts_) {
    if (c.hits + c.false_alarms + c.misses == 0) continue;
    sum += f1(c.hits, c.false_alarms, c.misses);
    ++seen;
  }
  return ratio(sum, seen);
}

nlohmann::json LabelCounts::per_class(std::span<const std::string> names) const {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t label = 0; label < counts_.size(); ++label) {
    const auto& [hits, false_alarms, misses] = counts_[label];
    rows.push_back(class_row(names[label], ratio(hits, hits + false_alarms), ratio(hits, hits + misses),
                             f1(hits, false_alarms, misses), hits + misses));
  }
  return rows;
}

void NumberErrors::add(double truth, double prediction) {
  const double error = prediction - truth;
  squares_ += error * error;
  absolutes_ += std::abs(error);
  const double from_mean = truth - truth_mean_;  // Welford's running mean and spread
  truth_mean_ += from_mean / static_cast<double>(++count_);
  truth_spread_ += from_mean * (truth - truth_mean_);
  if (pairs_.size() < kPairs) pairs_.emplace_back(truth, prediction);
}

double NumberErrors::rmse() const {
  return std::sqrt(ratio(squares_, count_));
}
double NumberErrors::mae() const {
  return ratio(absolutes_, count_);
}
double NumberErrors::r2() const {
  return truth_spread_ > 0 ? 1 - squares_ / truth_spread_ : 0;
}

}  // namespace ramify::train
