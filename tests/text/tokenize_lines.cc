// The tokenizers of this library for programs that compare them with others (scripts/check-tokenizers): lines of JSON
// on standard input become lines of JSON on standard output.
//
//   tokenize_lines TOKENIZER               "text"                  [ids]
//   tokenize_lines --wrap LENGTH FOLDER    "text" or ["a", "b"]    {"ids", "types", "padding"}: with special tokens
//   tokenize_lines --speed TOKENIZER       "text"                  once, at the end: {"bytes", "tokens", "seconds"}
//   tokenize_lines --properties            code point              what ICU knows of it
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <ctime>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace ramify::text {
namespace {

using nlohmann::json;

template <class Answer>
void answer_lines(Answer answer) {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(json::parse(line)).dump() << '\n';
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, const json& text) {
  std::vector<int32_t> ids;
  tokenizer.tokenize(text.get_ref<const std::string&>(), ids);
  return ids;
}

void tokenize(const std::string& path) {
  const auto tokenizer = Tokenizer::load(path);
  answer_lines([&](const json& text) -> json { return ids_of(*tokenizer, text); });
}

void wrap(int64_t max_length, const std::string& folder) {
  const auto tokenizer = Tokenizer::load(folder);
  const auto special = SpecialTokens::load(folder, *tokenizer);
  const json padding = special.padding() ? json(*special.padding()) : json();
  answer_lines([&](const json& texts) -> json {
    const ModelInput input =
        texts.is_array() ? special.wrap(ids_of(*tokenizer, texts.at(0)), ids_of(*tokenizer, texts.at(1)), max_length)
                         : special.wrap(ids_of(*tokenizer, texts), max_length);
    return {{"ids", input.ids}, {"types", input.types}, {"padding", padding}};
  });
}

void measure(const std::string& path) {
  const auto tokenizer = Tokenizer::load(path);
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) texts.push_back(json::parse(line).get<std::string>());
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
  } else if (arguments.size() == 2 && arguments[0] == "--speed") {
    measure(arguments[1]);
  } else if (arguments.size() == 3 && arguments[0] == "--wrap") {
    wrap(std::stoll(arguments[1]), arguments[2]);
  } else {
    std::cerr << "usage: tokenize_lines [--speed | --wrap LENGTH] TOKENIZER, or tokenize_lines --properties\n";
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
