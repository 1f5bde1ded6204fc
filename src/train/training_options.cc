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

// visit(key, member, least, most) for every option that is a number: the list that reading and writing share.
template <class Options, class Visit>
void visit_numbers(Options& o, const Visit& visit) {
  visit("epochs", o.epochs, 1, 1e6);
  visit("rate", o.rate, 0, 100);
  visit("warmup", o.warmup, 0, 1);
  visit("weight_decay", o.weight_decay, 0, 100);
  visit("clip", o.clip, 1e-12, kLargest);
  visit("batch_records", o.batch_records, 1, 1e6);
  visit("batch_leaves", o.batch_leaves, 1, 1e9);
  visit("patience", o.patience, 0, 1e6);
  visit("label_smoothing", o.label_smoothing, 0, 0.9);
  visit("seed", o.seed, 0, 9e15);
  visit("log_every", o.log_every, 1, 1e9);
  visit("checkpoint_every", o.checkpoint_every, 1, 1e9);
}

}  // namespace

TrainingOptions TrainingOptions::from_json(const nlohmann::json& json) {
  TrainingOptions options;
  if (!json.is_object()) reject("the whole", json, "an object");
  nlohmann::json left = json;
  visit_numbers(options, [&](const char* key, auto& member, double least, double most) {
    if (!json.contains(key)) return;
    read(key, json[key], least, most, member);
    left.erase(key);
  });
  if (json.contains("dtype")) {
    const nlohmann::json& dtype = json["dtype"];
    if (dtype != "float32" && dtype != "bfloat16" && dtype != "float64") {
      reject("dtype", dtype, "\"float32\", \"bfloat16\" or \"float64\"");
    }
    options.dtype = dtype;
    left.erase("dtype");
  }
  if (!left.empty()) throw std::invalid_argument("training: there is no option " + left.begin().key());
  return options;
}

nlohmann::json TrainingOptions::to_json() const {
  nlohmann::json json = {{"dtype", dtype}};
  visit_numbers(*this, [&](const char* key, const auto& member, double, double) { json[key] = member; });
  return json;
}

}  // namespace ramify::train
