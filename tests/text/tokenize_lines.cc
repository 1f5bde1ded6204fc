// The tokenizers of this library for programs that compare them with others (scripts/check-tokenizers): lines of JSON
// on standard input become lines of JSON on standard output.
//
//   tokenize_lines TOKENIZER                TEXT                    [ids]
//   tokenize_lines --encode LENGTH FOLDER   [TEXT] or [TEXT, TEXT]  {"ids", "types", "spans"}: with special tokens
//   tokenize_lines --decode TOKENIZER       [ids]                   {"skipped", "shown"}: special tokens; of each the
//                                                                   {"text"} and the {"parts"} that the tokens add
//   tokenize_lines --speed TOKENIZER        TEXT                    once, at the end: {"bytes", "tokens", "seconds"}
//   tokenize_lines --properties             code point              what ICU knows of it
//
// TEXT is a string or, for bytes that are none, {"base64": "..."}.
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <ctime>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "text/base64.h"
#include "text/detokenizer.h"
#include "text/model_tokenizer.h"
#include "text/tokenizer.h"

namespace ramify::text {
namespace {

using nlohmann::json;

template <class Answer>
void answer_lines(Answer answer) {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(json::parse(line)).dump() << '\n';
}

std::string text_of(const json& line) {
  if (line.is_string()) return line.get<std::string>();
  auto bytes = from_base64(line.at("base64").get_ref<const std::string&>());
  if (!bytes) throw std::runtime_error("a line is not base64");
  return std::move(*bytes);
}

void tokenize(const std::string& path) {
  const auto tokenizer = Tokenizer::load(path);
  answer_lines([&](const json& line) -> json {
    std::vector<int32_t> ids;
    tokenizer->tokenize(text_of(line), ids);
    return ids;
  });
}

void encode(int64_t max_length, const std::string& folder) {
  const auto tokenizer = ModelTokenizer::load(folder);
  const EncodeOptions options{.max_length = max_length, .with_spans = true};
  answer_lines([&](const json& line) -> json {
    const ModelInput input = line.size() == 2 ? tokenizer.encode_pair(text_of(line[0]), text_of(line[1]), options)
                                              : tokenizer.encode(text_of(line.at(0)), options);
    json spans = json::array();
    for (const Span span : input.spans) spans.push_back({span.begin, span.end});
    return {{"ids", input.ids}, {"types", input.types}, {"spans", std::move(spans)}};
  });
}

json decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const DecodeOptions& options) {
  Detokenizer detokenizer(tokenizer, options);
  json parts = json::array();
  for (const int32_t id : ids) parts.push_back(detokenizer.next(id));
  parts.push_back(detokenizer.finish());
  return {{"text", decode(tokenizer, ids, options)}, {"parts", std::move(parts)}};
}

void decode_lines(const std::string& path) {
  const auto tokenizer = Tokenizer::load(path);
  answer_lines([&](const json& line) -> json {
    const auto ids = line.get<std::vector<int32_t>>();
    return {{"skipped", decoded(*tokenizer, ids, {})},
            {"shown", decoded(*tokenizer, ids, {.with_special_tokens = true})}};
  });
}

void measure(const std::string& path) {
  const auto tokenizer = Tokenizer::load(path);
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) texts.push_back(text_of(json::parse(line)));
  std::vector<int32_t> ids;
  size_t bytes = 0;
  size_t tokens = 0;
  const std::clock_t started = std::clock();  // of the processor: other programs do not count
  for (const std::string& text : texts) {
    ids.clear();
    tokenizer->tokenize(text, ids);
    bytes += text.size();
    tokens += ids.size();
  }
  const double seconds = static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
  std::cout << json{{"bytes", bytes}, {"tokens", tokens}, {"seconds", seconds}}.dump() << '\n';
}

json properties(UChar32 code) {
  UErrorCode status = U_ZERO_ERROR;
  const auto* decomposer = icu::Normalizer2::getNFDInstance(status);
  if (U_FAILURE(status)) throw std::runtime_error("ICU has no data for normalisation");
  UVersionInfo age;
  u_charAge(code, age);
  const auto utf8 = [](const icu::UnicodeString& text) {
    std::string bytes;
    return text.toUTF8String(bytes);
  };
  return {{"age", age[0]},
          {"category", u_getPropertyValueName(UCHAR_GENERAL_CATEGORY, u_charType(code), U_SHORT_PROPERTY_NAME)},
          {"combining_class", u_getCombiningClass(code)},
          {"white_space", static_cast<bool>(u_isUWhiteSpace(code))},
          {"lower", utf8(icu::UnicodeString(code).toLower(icu::Locale::getRoot()))},
          {"decomposed", utf8(decomposer->normalize(icu::UnicodeString(code), status))}};
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "--properties") {
    answer_lines([](const json& code) { return properties(code.get<UChar32>()); });
  } else if (arguments.size() == 1) {
    tokenize(arguments[0]);
  } else if (arguments.size() == 2 && arguments[0] == "--decode") {
    decode_lines(arguments[1]);
  } else if (arguments.size() == 2 && arguments[0] == "--speed") {
    measure(arguments[1]);
  } else if (arguments.size() == 3 && arguments[0] == "--encode") {
    encode(std::stoll(arguments[1]), arguments[2]);
  } else {
    std::cerr
        << "usage: tokenize_lines [--speed | --decode | --encode LENGTH] TOKENIZER, or tokenize_lines --properties\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace ramify::text

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    return ramify::text::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "tokenize_lines: " << error.what() << '\n';
    return 1;
  }
}
