// What a user says about records before any of them is read: the options that every command on data has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signal/inference.h"

namespace ramify::signal {

struct SchemaSettings {
  std::string target, target_of, task;
  std::vector<std::string> fields, ignore;
  std::string schema;  // a schema file
  std::string text_levels = "paragraph,sentence,token";
  std::string images;     // a .tar
  std::string tokenizer;  // a tokenizer file
  int64_t vocabulary = 50'000;
  int64_t min_count = 2;
  int64_t max_leaves = 4096;
  int64_t image_size = 224;
  int64_t patch = 16;
  std::string on_bad = "fail";

  // Reads the schema file and the tokenizer, if there are any. std::invalid_argument names what cannot be.
  SchemaOptions options() const;

  // visit(key, member) for every one of them: the list that reading and writing share.
  template <class Self, class Visit>
  static void visit(Self& self, const Visit& visit) {
    visit("target", self.target);
    visit("target_of", self.target_of);
    visit("task", self.task);
    visit("fields", self.fields);
    visit("ignore", self.ignore);
    visit("schema", self.schema);
    visit("text_levels", self.text_levels);
    visit("images", self.images);
    visit("tokenizer", self.tokenizer);
    visit("vocabulary", self.vocabulary);
    visit("min_count", self.min_count);
    visit("max_leaves", self.max_leaves);
    visit("image_size", self.image_size);
    visit("patch", self.patch);
    visit("on_bad", self.on_bad);
  }
};

}  // namespace ramify::signal
