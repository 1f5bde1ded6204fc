// What byte-level BPE does before it merges: the alphabet in which its files write bytes, and the words into which
// GPT-2 and its relatives cut a text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ramify::text {

// Vocabularies spell tokens with one printable letter a byte: most of Latin-1 stands for itself, the other bytes are
// U+0100 and up in their order, so that a space is U+0120.
std::string to_byte_alphabet(std::string_view bytes);
std::optional<std::string> from_byte_alphabet(std::string_view token);  // nothing: it has other letters

// The end of the word that begins at `begin` < text.size(). Words cover the text (valid UTF-8); they are what
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// matches one after the other: a space belongs to the word behind it, other white space to none.
size_t byte_level_word_end(std::string_view text, size_t begin);

}  // namespace ramify::text
