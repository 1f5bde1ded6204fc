// Records as short strings in, signals as short strings out.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "signal/batch.h"
#include "signal/compiler.h"
#include "signal/inference.h"
#include "signal/schema.h"
#include "signal/signal.h"

namespace ramify::testing {

using SharedSchema = std::shared_ptr<const signal::Schema>;

inline SharedSchema schema_of(const std::vector<std::string>& records, signal::SchemaOptions options = {}) {
  options.vocabulary.min_count = 1;
  signal::SchemaInference inference(std::move(options));
  for (const std::string& record : records) inference.add(record);
  return std::make_shared<const signal::Schema>(inference.finish());
}

inline signal::Signal compile(const SharedSchema& schema, const std::string& record,
                              const signal::CompilerOptions& options = {}, const std::string& folder = ".") {
  return signal::Compiler(schema, options).compile(record, folder);
}

// The tree as text, from the arrays alone: inner nodes are (...), their children behind a key (`?` if it is not in the
// schema), @row,column, or ~ for a node of a graph; items of sequences have nothing. Leaves: a token is its word, a
// category <name>, a number #field:value, a patch %mean, a vector v[...].
class SignalText {
 public:
  SignalText(const signal::Signal& signal, const signal::Schema& schema)
      : signal_(signal), schema_(schema), modalities_(schema.modalities()), categories_(schema.category_names()) {
    size_t child = 1;
    for (const int32_t children : signal.children) {
      first_child_.push_back(child);
      child += static_cast<size_t>(children);
    }
  }

  std::string text() { return node_text(0); }

 private:
  std::string node_text(size_t node) {  // recursion over small test cases only; leaves come left to right
    std::string text = position_text(node);
    if (signal_.children[node] == 0) return text + leaf_text();
    text += "(";
    for (int32_t c = 0; c < signal_.children[node]; ++c) {
      text += (c == 0 ? "" : " ") + node_text(first_child_[node] + static_cast<size_t>(c));
    }
    return text + ")";
  }

  std::string position_text(size_t node) const {
    const int32_t place = signal_.place[node];
    switch (signal_.domain[node]) {
      case signal::Domain::key:
        return place >= 0 ? schema_.keys[static_cast<size_t>(place)] + "=" : "?=";
      case signal::Domain::grid:
        return fmt::format("@{},{}:", place >> 16, place & 0xffff);
      case signal::Domain::graph:
        return "~";
      default:
        return "";
    }
  }

  std::string leaf_text() {
    const size_t leaf = leaf_++;
    const signal::Modality& modality = modalities_[signal_.modality[leaf]];
    const int32_t id = signal_.id[leaf];
    if (modality.name == "token") return std::string(schema_.tokenizer->token(id));
    if (modality.name == "category") return "<" + categories_[static_cast<size_t>(id)] + ">";
    if (modality.name == "number") return fmt::format("#{}:{:.3g}", id, signal_.values[value_++]);
    if (modality.name == "patch") {
      double sum = 0;
      for (int64_t i = 0; i < modality.size; ++i) sum += signal_.patches[patch_byte_++];
      return fmt::format("%{:.0f}", sum / static_cast<double>(modality.size));
    }
    std::string text = "v[";
    for (int64_t i = 0; i < modality.size; ++i)
      text += fmt::format("{}{:g}", i == 0 ? "" : " ", signal_.values[value_++]);
    return text + "]";
  }

  const signal::Signal& signal_;
  const signal::Schema& schema_;
  std::vector<signal::Modality> modalities_;
  std::vector<std::string> categories_;
  std::vector<size_t> first_child_;
  size_t leaf_ = 0, value_ = 0, patch_byte_ = 0;
};

inline std::string text_of(const signal::Signal& signal, const SharedSchema& schema) {
  return SignalText(signal, *schema).text();
}

// Infers from `records`, compiles the first of them.
inline std::string first_of(const std::vector<std::string>& records, const signal::SchemaOptions& options = {}) {
  const SharedSchema schema = schema_of(records, options);
  return text_of(compile(schema, records.front()), schema);
}

inline std::vector<const signal::Signal*> pointers(const std::vector<signal::Signal>& signals) {
  std::vector<const signal::Signal*> result;
  for (const signal::Signal& signal : signals) result.push_back(&signal);
  return result;
}

}  // namespace ramify::testing
