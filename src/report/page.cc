#include "report/page.h"

#include <fmt/core.h>

#include <cstdint>

#include "ramify/version.h"
#include "report/html.h"
#include "report/page_assets.h"

namespace ramify::report {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

uint32_t hexadecimal(char digit) {
  return static_cast<uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

// The 32 bytes of a SHA-256 as a content security policy wants them: three hexadecimal digits are two of base64.
std::string base64_of_sha256(std::string_view hex) {
  std::string text;
  for (size_t at = 0; at < 63; at += 3) {
    const uint32_t bits = hexadecimal(hex[at]) << 8 | hexadecimal(hex[at + 1]) << 4 | hexadecimal(hex[at + 2]);
    text += kBase64[bits >> 6];
    text += kBase64[bits & 63];
  }
  return text + kBase64[hexadecimal(hex[63]) << 2] + "=";
}

}  // namespace

std::string page_html(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'sha256-{}'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"ramify " RAMIFY_VERSION
      "\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{}</main>\n<script>{}</script>\n</body>\n"
      "</html>\n",
      base64_of_sha256(kPageScriptSha256), escape(title, 200), kPageStyle, body, kPageScript);
}

}  // namespace ramify::report
