#include "text/decoding.h"

#include <nlohmann/json.hpp>

#include "text/json_files.h"

namespace ramify::text {
namespace {

using nlohmann::json;
using Rule = Decoding::Rule;
using LeadingSpace = Decoding::LeadingSpace;

constexpr const char* kPieceSpaceName = "\xE2\x96\x81";  // U+2581

Decoding unsupported(const json& decoder) {
  Decoding decoding;
  decoding.rule = Rule::unsupported;
  decoding.unsupported = decoder.dump();
  return decoding;
}

// Llama's: U+2581 to spaces, bytes, all in one text, and mostly its first space dropped.
json llama_decoders(LeadingSpace leading_space) {
  json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kPieceSpaceName}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (leading_space == LeadingSpace::one_dropped) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return decoders;
}

Decoding sequence_from_json(const json& decoder) {
  const json& decoders = decoder.at("decoders");
  Decoding decoding;
  decoding.leading_space = decoders.size() == 3 ? LeadingSpace::kept : LeadingSpace::one_dropped;
  if (decoders != llama_decoders(decoding.leading_space)) return unsupported(decoder);
  decoding.rule = Rule::sentencepiece;
  return decoding;
}

// Older files say with add_prefix_space whether there is one.
Decoding metaspace_from_json(const json& decoder) {
  if (decoder.at("replacement") != kPieceSpaceName) return unsupported(decoder);
  const bool adds_space = decoder.contains("prepend_scheme") ? decoder.at("prepend_scheme") != "never"
                                                             : json_flag(decoder, "add_prefix_space", true);
  Decoding decoding;
  decoding.rule = Rule::sentencepiece;
  decoding.byte_pieces = false;
  decoding.leading_space = adds_space ? LeadingSpace::dropped_from_first_token : LeadingSpace::kept;
  return decoding;
}

json sentencepiece_to_json(const Decoding& decoding) {
  if (!decoding.byte_pieces) {
    const bool adds_space = decoding.leading_space == LeadingSpace::dropped_from_first_token;
    return {
        {"type", "Metaspace"}, {"replacement", kPieceSpaceName}, {"prepend_scheme", adds_space ? "always" : "never"}};
  }
  return {{"type", "Sequence"}, {"decoders", llama_decoders(decoding.leading_space)}};
}

}  // namespace

Decoding decoding_from_json(const json& decoder) {
  Decoding decoding;
  if (decoder.is_null()) return decoding;
  const auto type = decoder.at("type").get<std::string>();
  if (type == "Sequence") return sequence_from_json(decoder);
  if (type == "Metaspace") return metaspace_from_json(decoder);
  if (type == "ByteLevel") {
    decoding.rule = Rule::byte_level;
    return decoding;
  }
  if (type != "WordPiece") return unsupported(decoder);
  decoding.rule = Rule::wordpiece;
  decoding.prefix = decoder.value("prefix", decoding.prefix);
  decoding.cleanup = json_flag(decoder, "cleanup", true);
  return decoding;
}

json decoding_to_json(const Decoding& decoding) {
  switch (decoding.rule) {
    case Rule::words:
      return nullptr;
    case Rule::wordpiece:
      return {{"type", "WordPiece"}, {"prefix", decoding.prefix}, {"cleanup", decoding.cleanup}};
    case Rule::byte_level:
      return {{"type", "ByteLevel"}};
    case Rule::sentencepiece:
      return sentencepiece_to_json(decoding);
    case Rule::unsupported:
      return json::parse(decoding.unsupported);
  }
  return nullptr;
}

Decoding stored_decoding(const json& stored, const Decoding& otherwise) {
  const auto found = stored.find("decoder");
  return found == stored.end() ? otherwise : decoding_from_json(*found);
}

}  // namespace ramify::text
