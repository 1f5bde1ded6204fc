// What is known about the records of a data set: the kind of every field, the vocabulary, the target. Inferred from the
// training data (inference.h), stored with the model, and enforced when records are compiled (compiler.h).
//
// A field is named by its path: the keys from the record down, joined by dots; items of an array, a $set or a $graph
// are `[]`. Arrays inside arrays share the path of their items, so that nested lists of any depth have one:
//
//   {"title": "a", "sections": [{"heading": "b"}]}   title, sections, sections[], sections[].heading
//   {"tree": ["a", ["b", "c"]]}                      tree, tree[] (an array, or a text)
//
// A dot, bracket or backslash inside a key is written with a backslash before it. The record itself is the path "".
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ramify::signal {

enum class Kind {
  object,
  array,
  set,        // an array without order: {"$set": [...]}, or an array that is declared one
  graph,      // {"$graph": {"nodes": [...], "edges": [...]}}
  text,       // a string: paragraphs, sentences, tokens
  text_leaf,  // a string that is one leaf, out of a list of the known ones
  category,   // few different values; strings, or numbers that are declared so
  boolean,
  number,
  image,   // {"$image": path}, or a string that is declared one
  vector,  // {"$vector": [...]}, or an array of numbers that is declared one
  null,    // never anything but null
  ignore,  // left out
};
std::string_view name_of(Kind kind);  // as in schema files: "text-leaf"
Kind kind_of(std::string_view name);  // std::invalid_argument with the list of names
std::string kind_names();             // "object, array, ..."

enum class TextLevel { paragraph, sentence, token };
std::string_view name_of(TextLevel level);
// "paragraph,sentence,token" or a part of it that ends in token. "text-leaf" gives an empty list: a text is one leaf.
std::vector<TextLevel> parse_text_levels(std::string_view list);

// Texts whose vectors are those of a pretrained encoder.
enum class LeafLevel {
  table,      // leaves are its tokens, as ids; their vectors begin as its word table
  token,      // from here on a leaf is a vector (text_vectors.h): of a token in its text,
  sentence,   // of a sentence,
  paragraph,  // of a paragraph
};
std::string_view name_of(LeafLevel level);
LeafLevel leaf_level_of(std::string_view name);  // std::invalid_argument with the list of names

struct LeafEncoding {
  std::string model;  // its folder
  LeafLevel level = LeafLevel::sentence;
  int64_t width = 0;
  std::string sha256;  // of the model's files: vectors of another one mean something else

  bool operator==(const LeafEncoding&) const = default;
};

// A path can have two fields, an array or object and something else: then both kinds of value are allowed there.
struct Field {
  std::string path;
  Kind kind = Kind::null;
  int64_t count = 0;    // values seen, without null
  int64_t nulls = 0;    // with an id of their own if there are any
  int64_t empties = 0;  // empty arrays, objects and texts; the same
  int64_t graphs = 0;   // of an array, a set or a graph: how many of them have edges

  // number: normalised as (f(x) - mean) / deviation, cut off at +-kMaxNormalised; f is the logarithm of 1 + x if
  // `logarithmic` (what is never negative and spreads over magnitudes), else x itself
  double mean = 0;
  double deviation = 1;
  double min = 0;
  double max = 0;
  bool logarithmic = false;

  std::vector<std::string> values;  // category, text_leaf
  int64_t width = 0;                // vector
  std::vector<TextLevel> levels;    // text

  static constexpr double kMaxNormalised = 10;
  float normalised(double number) const;
};

enum class Task { none, classification, regression, multilabel, nodes };
std::string_view name_of(Task task);
Task task_of(std::string_view name);  // std::invalid_argument for what is no task, and for none

// What is to be predicted. Its field is not part of the signal.
struct Target {
  std::string path;  // "": nothing
  std::string of;    // nodes: the array field whose items have one label each
  Task task = Task::none;
  std::vector<std::string> classes;  // all but regression; sorted: numbers by value, then the rest by bytes
  double mean = 0, deviation = 1;    // regression: of the training data; targets are not normalised here
};

struct ImageOptions {
  int64_t patch = 16;          // pixels a side
  int64_t longest_side = 224;  // larger images shrink to it; both sides are rounded to whole patches
  int64_t width = 0;           // both given: every image gets this size
  int64_t height = 0;
};

// The kinds of leaves that a model has to embed, in a fixed order; those that the data has not are left out:
//   token       ids      rows of the tokenizer
//   category    ids      rows: see Schema::category_names
//   number      numbers  id: 1 + which number field (0: one that is not in the schema); value: normalised
//   patch       dense    patch * patch * 3 values in 0..1: rows, columns, colours
//   vector:W    dense    one for every width W
//   text        dense    a token, sentence or paragraph as an encoder's vector
enum class Feature { ids, numbers, dense };
struct Modality {
  std::string name;
  Feature feature = Feature::ids;
  int64_t size = 0;  // ids: rows; numbers: fields; dense: width

  bool operator==(const Modality&) const = default;
};

struct Schema {
  std::vector<Field> fields;                     // in order of first appearance
  std::vector<std::string> keys;                 // distinct keys; an id is a place in here
  std::vector<std::vector<int32_t>> key_tokens;  // [keys]: each key's words as token ids
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Target target;
  std::vector<std::string> only;  // not empty: fields elsewhere are left out, in new records too
  std::vector<TextLevel> text_levels = {TextLevel::paragraph, TextLevel::sentence, TextLevel::token};
  std::optional<LeafEncoding> leaf_encoding;  // none: texts are tokens whose vectors are learned
  ImageOptions image;
  int64_t graph_features = 8;
  int64_t max_graph_nodes = 512;
  int64_t max_leaves = 4096;  // of a record; what follows is cut off
  int64_t max_depth = 1000;   // of a record's nesting
  // For people, from inference; not stored: "price: 399 numbers, 1 string (a.jsonl:18): read as text; ..."
  std::vector<std::string> notes;

  bool has_text_vectors() const { return leaf_encoding && leaf_encoding->level != LeafLevel::table; }
  std::vector<Modality> modalities() const;
  // What each row of the category table stands for, "gender=Women". The first are not of any field: see
  // GenericCategory.
  std::vector<std::string> category_names() const;
  int64_t num_outputs() const;  // classes, or 1 for regression

  nlohmann::json to_json() const;
  // What to_json gave; io::Error("NAME: ...") for anything else.
  static Schema from_json(const nlohmann::json& json, const std::string& name);
};

// Category rows that every schema has: for what the training data did not have at that place.
enum GenericCategory : int32_t { kUnknownValue, kEmpty, kNull, kFalse, kTrue, kGenericCategories };

// The words of a key, apart: "releaseDate", "release_date" and "release-date" are "release date".
std::string key_words(std::string_view key);

}  // namespace ramify::signal
