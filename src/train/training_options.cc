#include "train/training_options.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace ramify::train {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();

[[noreturn]] void reject(const std::string& key, const nlohmann::json& value, const std::string& expected) {
  throw std::invalid_argument("training: " + key + " is " + value.dump() + "; expected " + expected);
}

// Without a point where there is nothing behind it.
std::string text_of(double limit) {
  const bool whole = limit == std::floor(limit) && std::abs(limit) < 1e15;
  return whole ? std::to_string(static_cast<int64_t>(limit)) : nlohmann::json(limit).dump();
}

// A whole number or a real one, from `least` to `most`.
template <class Number>
void read(const std::string& key, const nlohmann::json& value, double least, double most, Number& out) {
  const bool right_type = std::is_integral_v<Number> ? value.is_number_integer() : value.is_number();
  const std::string range =
      most == kLargest ? text_of(least) + " or more" : "from " + text_of(least) + " to " + text_of(most);
  const std::string expected = (std::is_integral_v<Number> ? "a whole number, " : "a number, ") + range;
  if (!right_type || !(value.get<double>() >= least && value.get<double>() <= most)) reject(key, value, expected);
  out = value.get<Number>();
}

}  // namespace

TrainingOptions TrainingOptions::from_json(const nlohmann::json& json) {
  TrainingOptions o;
  if (!json.is_object()) reject("the whole", json, "an object");
  for (const auto& [key, value] : json.items()) {
    if (key == "epochs") {
      read(key, value, 1, 1e6, o.epochs);
    } else if (key == "rate") {
      read(key, value, 0, 100, o.rate);
    } else if (key == "warmup") {
      read(key, value, 0, 1, o.warmup);
    } else if (key == "weight_decay") {
      read(key, value, 0, 100, o.weight_decay);
    } else if (key == "clip") {
      read(key, value, 1e-12, kLargest, o.clip);
    } else if (key == "batch_records") {
      read(key, value, 1, 1e6, o.batch_records);
    } else if (key == "batch_leaves") {
      read(key, value, 1, 1e9, o.batch_leaves);
    } else if (key == "patience") {
      read(key, value, 0, 1e6, o.patience);
    } else if (key == "label_smoothing") {
      read(key, value, 0, 0.9, o.label_smoothing);
    } else if (key == "seed") {
      read(key, value, 0, 9e15, o.seed);
    } else if (key == "log_every") {
      read(key, value, 1, 1e9, o.log_every);
    } else if (key == "checkpoint_every") {
      read(key, value, 1, 1e9, o.checkpoint_every);
    } else if (key == "dtype") {
      if (value != "float32" && value != "bfloat16") reject(key, value, "\"float32\" or \"bfloat16\"");
      o.dtype = value;
    } else {
      throw std::invalid_argument("training: there is no option " + key);
    }
  }
  return o;
}

nlohmann::json TrainingOptions::to_json() const {
  return {{"epochs", epochs},
          {"rate", rate},
          {"warmup", warmup},
          {"weight_decay", weight_decay},
          {"clip", clip},
          {"batch_records", batch_records},
          {"batch_leaves", batch_leaves},
          {"patience", patience},
          {"label_smoothing", label_smoothing},
          {"seed", seed},
          {"dtype", dtype},
          {"log_every", log_every},
          {"checkpoint_every", checkpoint_every}};
}

}  // namespace ramify::train
