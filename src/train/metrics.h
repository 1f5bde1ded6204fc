// How good predictions are: accuracy and F1 of classes, error of numbers, per class and as a whole.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace ramify::train {

// Right and wrong answers of a classification, as counts[truth * classes + prediction].
class Confusion {
 public:
  explicit Confusion(int64_t classes) : classes_(classes), counts_(classes * classes), unseen_(classes) {}

  void add(int64_t truth, int64_t prediction) { ++counts_[truth * classes_ + prediction]; }
  void add_unseen(int64_t prediction) { ++unseen_[prediction]; }  // the truth is none of the classes

  int64_t total() const;
  int64_t unseen() const;
  double accuracy() const;  // 0 when there is nothing
  // means over the classes that occur in the truth or in the predictions
  double macro_precision() const;
  double macro_recall() const;
  double macro_f1() const;
  nlohmann::json per_class(std::span<const std::string> names) const;
  nlohmann::json matrix() const;

 private:
  struct Score {
    double precision, recall, f1;
    int64_t support, predicted;
  };
  Score score(int64_t one) const;
  double mean_over_classes(double Score::*figure) const;

  int64_t classes_;
  std::vector<int64_t> counts_, unseen_;
};

// Several labels a record: each label is a yes or no of its own.
class LabelCounts {
 public:
  explicit LabelCounts(int64_t labels) : counts_(labels) {}

  void add(int64_t label, bool truth, bool prediction);
  void add_record(bool exact) {
    ++records_;
    exact_ += exact;
  }

  double exact_match() const;  // records whose labels are all right
  double micro_f1() const;
  double macro_f1() const;
  nlohmann::json per_class(std::span<const std::string> names) const;

 private:
  struct Counts {
    int64_t hits = 0, false_alarms = 0, misses = 0;
  };
  std::vector<Counts> counts_;
  int64_t records_ = 0, exact_ = 0;
};

// Truth against prediction of numbers.
class NumberErrors {
 public:
  void add(double truth, double prediction);

  double rmse() const;
  double mae() const;
  double r2() const;                               // 0 when all truths are equal
  nlohmann::json pairs() const { return pairs_; }  // the first kPairs of them, for a picture

 private:
  static constexpr size_t kPairs = 1000;
  int64_t count_ = 0;
  double squares_ = 0, absolutes_ = 0, truth_mean_ = 0, truth_spread_ = 0;
  std::vector<std::pair<double, double>> pairs_;
};

}  // namespace ramify::train
