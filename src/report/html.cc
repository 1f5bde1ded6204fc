#include "report/html.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>

namespace ramify::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kDash = "\xE2\x80\x93";

struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool is_valid = false;
};

// How many bytes a sequence has by its first one; 0: none begins so.
size_t sequence_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  if (first >= 0xF0 && first < 0xF5) return 4;
  return 0;
}

Character decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const size_t bytes = sequence_bytes(byte(0));
  if (bytes == 1) return {byte(0), 1, true};
  if (bytes == 0 || at + bytes > text.size()) return {};
  char32_t code = byte(0) & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool is_overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (is_overlong || is_surrogate || code > 0x10FFFF) return {};
  return {code, bytes, true};
}

bool is_blank(char32_t code) {
  return code == '\t' || code == '\n' || code == '\r';
}

// Controls have no glyph, noncharacters no meaning, and the embeddings, overrides and isolates of bidirectional text
// would reach past the element that holds them.
bool is_unwanted(char32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool is_noncharacter = (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFE) == 0xFFFE;
  const bool turns_direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return is_control || is_noncharacter || turns_direction;
}

std::string_view entity(char32_t code) {
  switch (code) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

}  // namespace

std::string_view first_characters(std::string_view text, size_t count) {
  size_t at = 0;
  for (; count > 0 && at < text.size(); --count) at += decode(text, at).bytes;
  return text.substr(0, at);
}

std::string escape(std::string_view text, size_t max_characters) {
  const std::string_view shown = first_characters(text, max_characters);
  std::string html;
  html.reserve(shown.size() + 16);
  for (size_t at = 0; at < shown.size();) {
    const Character character = decode(shown, at);
    if (!character.is_valid) {
      html += kReplacement;
    } else if (is_blank(character.code)) {
      html += ' ';
    } else if (is_unwanted(character.code)) {
      html += kReplacement;
    } else if (const std::string_view name = entity(character.code); !name.empty()) {
      html += name;
    } else {
      html += shown.substr(at, character.bytes);
    }
    at += character.bytes;
  }
  if (shown.size() < text.size()) html += "\xE2\x80\xA6";
  return html;
}

std::string isolated(std::string_view text, size_t max_characters) {
  return "<bdi>" + escape(text, max_characters) + "</bdi>";
}

std::string with_commas(int64_t count) {
  std::string digits = std::to_string(count);
  const ptrdiff_t first = count < 0 ? 1 : 0;
  for (ptrdiff_t at = std::ssize(digits) - 3; at > first; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string with_unit(double value) {
  if (!std::isfinite(value)) return std::string(kDash);
  const char* units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g}{}", value, units[unit]);
}

std::string decimal(double value) {
  if (!std::isfinite(value)) return std::string(kDash);
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return fmt::format("{:.3e}", value);
  return fmt::format("{:.{}f}", value, size < 10 ? 4 : size < 100 ? 3 : size < 1000 ? 2 : 1);
}

std::string percent(double share) {
  if (!std::isfinite(share)) return std::string(kDash);
  return fmt::format("{:.1f}%", share * 100);
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return std::string(kDash);
  if (bytes < 10 << 20) return fmt::format("{:.0f} KiB", bytes / (1 << 10));
  const bool is_large = bytes >= 1 << 30;
  return fmt::format("{:.{}f} {}", bytes / (is_large ? 1 << 30 : 1 << 20), is_large ? 1 : 0, is_large ? "GiB" : "MiB");
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return std::string(kDash);
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace ramify::report
