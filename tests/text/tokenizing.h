// How the tests look at a tokenizer: its ids, its tokens, the parts of the text that they come from, and what holds for
// every one of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace ramify::text {

using Tokens = std::vector<std::string>;

inline std::vector<int32_t> ids(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> all;
  tokenizer.tokenize(text, all);
  return all;
}

inline Tokens tokens(const Tokenizer& tokenizer, std::string_view text) {
  Tokens all;
  for (const int32_t id : ids(tokenizer, text)) all.emplace_back(tokenizer.token(id));
  return all;
}

inline Tokens sources(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> all;
  std::vector<Span> spans;
  tokenizer.tokenize(text, all, spans);
  EXPECT_EQ(all, ids(tokenizer, text));
  EXPECT_EQ(all.size(), spans.size());
  Tokens parts;
  for (const Span span : spans) parts.emplace_back(span.of(text));
  return parts;
}

// Spans lie inside the text, whatever it is, and broken UTF-8 is what it is repaired to.
inline void expect_sound_spans(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> all;
  std::vector<Span> spans;
  tokenizer.tokenize(text, all, spans);
  ASSERT_EQ(all.size(), spans.size());
  ASSERT_EQ(all, ids(tokenizer, text));
  ASSERT_EQ(all, ids(tokenizer, valid_utf8(text)));
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_GE(all[i], 0);
    ASSERT_LT(all[i], tokenizer.size());
    ASSERT_LT(spans[i].begin, spans[i].end);
    ASSERT_LE(spans[i].end, text.size());
    ASSERT_TRUE(i == 0 || spans[i - 1].begin <= spans[i].begin);
    ASSERT_TRUE(!is_valid_utf8(text) || is_valid_utf8(spans[i].of(text))) << "a span ends inside a letter";
  }
}

inline std::string random_text(std::mt19937& random) {
  constexpr std::string_view kPieces[] = {"un",
                                          "aff",
                                          "able",
                                          "a",
                                          "N",
                                          "'t",
                                          " ",
                                          "\n",
                                          ".",
                                          "3",
                                          "\xFF",
                                          "\xC3",
                                          "\xC3\xA9",
                                          "\xCC\x81",
                                          "\xE6\xBC\xA2",
                                          "\xEA\xB0\x80",
                                          "\xF0\x9F\x98\x80",
                                          "\xC2\xAD"};
  std::string text;
  for (size_t length = random() % 12; length > 0; --length) text += kPieces[random() % std::size(kPieces)];
  return text;
}

inline void expect_sound_everywhere(const Tokenizer& tokenizer) {
  std::mt19937 random(11);
  for (int i = 0; i < 5'000; ++i) expect_sound_spans(tokenizer, random_text(random));
}

inline void expect_same_after_json(const Tokenizer& tokenizer, std::string_view text) {
  const std::string stored = tokenizer.to_json().dump();
  const auto again = Tokenizer::from_json(nlohmann::json::parse(stored), "schema.json");
  EXPECT_EQ(again->size(), tokenizer.size());
  EXPECT_EQ(again->unknown(), tokenizer.unknown());
  EXPECT_EQ(ids(*again, text), ids(tokenizer, text));
  EXPECT_EQ(again->to_json().dump(), stored);
}

}  // namespace ramify::text
