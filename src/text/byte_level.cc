#include "text/byte_level.h"

#include <unicode/uchar.h>

#include <array>
#include <cstdint>

#include "text/letters.h"

namespace ramify::text {
namespace {

constexpr UChar32 kFirstStandIn = 0x100;
constexpr size_t kNumStandIns = 68;

struct ByteAlphabet {
  std::array<UChar32, 256> letter_of{};                         // of each byte
  std::array<uint8_t, kFirstStandIn + kNumStandIns> byte_of{};  // of each letter
  std::array<bool, kFirstStandIn + kNumStandIns> is_letter{};
};

constexpr ByteAlphabet make_byte_alphabet() {
  ByteAlphabet alphabet;
  UChar32 stand_in = kFirstStandIn;
  for (UChar32 byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const UChar32 letter = is_printable ? byte : stand_in++;
    alphabet.letter_of[static_cast<size_t>(byte)] = letter;
    alphabet.byte_of[static_cast<size_t>(letter)] = static_cast<uint8_t>(byte);
    alphabet.is_letter[static_cast<size_t>(letter)] = true;
  }
  return alphabet;
}

constexpr ByteAlphabet kByteAlphabet = make_byte_alphabet();

enum class WordClass : uint8_t { letter, number, space, other };

WordClass classify(UChar32 c) {
  if (c < 0x80) {
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return WordClass::letter;
    if (c >= '0' && c <= '9') return WordClass::number;
    return c == ' ' || (c >= '\t' && c <= '\r') ? WordClass::space : WordClass::other;
  }
  const uint32_t category = U_GET_GC_MASK(c);
  if (category & U_GC_L_MASK) return WordClass::letter;
  if (category & U_GC_N_MASK) return WordClass::number;
  return u_isUWhiteSpace(c) ? WordClass::space : WordClass::other;
}

// Bytes of the English ending that begins `text`; 0: there is none.
size_t ending_length(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

// The end of the run of one class around a letter that ends at `at`, and the place of the run's last letter.
struct Run {
  size_t last;
  size_t end;
};

Run run_of(WordClass wanted, std::string_view text, size_t begin, size_t at) {
  Run run{begin, at};
  while (run.end < text.size()) {
    size_t next = run.end;
    if (classify(next_letter(text, next)) != wanted) break;
    run = {run.end, next};
  }
  return run;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string token;
  for (const char c : bytes) append_letter(token, kByteAlphabet.letter_of[static_cast<unsigned char>(c)]);
  return token;
}

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const auto letter = static_cast<size_t>(next_letter(token, at));
    if (letter >= kByteAlphabet.is_letter.size() || !kByteAlphabet.is_letter[letter]) return std::nullopt;
    bytes += static_cast<char>(kByteAlphabet.byte_of[letter]);
  }
  return bytes;
}

size_t byte_level_word_end(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    if (const size_t length = ending_length(text.substr(begin))) return begin + length;
  }
  size_t at = begin;
  WordClass first = classify(next_letter(text, at));
  if (text[begin] == ' ' && at < text.size()) {
    size_t next = at;
    const WordClass second = classify(next_letter(text, next));
    if (second != WordClass::space) return run_of(second, text, at, next).end;
  }
  const Run run = run_of(first, text, begin, at);
  // Of the white space before a word the last piece is left: the word takes it if it is a space.
  const bool leaves_last = first == WordClass::space && run.end < text.size() && run.last > begin;
  return leaves_last ? run.last : run.end;
}

}  // namespace ramify::text
