#include "train/token_text.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <stdexcept>

#include "io/error.h"
#include "signal/text_records.h"

namespace ramify::train {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;  // that a thread tokenises at once
constexpr int64_t kPiecesOfProcess = 4;            // where there are several, whatever threads each has
constexpr size_t kMostIds = std::numeric_limits<int32_t>::max();

bool has_records(const std::string& file) {
  return file.ends_with(".jsonl") || file.ends_with(".jsonl.zst");
}

// Pieces of whole lines, the same whoever asks. "": the end.
std::string next_piece(signal::TextRecords& lines) {
  std::string piece;
  for (signal::TextRecord line; piece.size() < kPieceBytes && lines.next(line);) piece += line.text + "\n";
  return piece;
}

void append(std::string_view bytes, std::vector<int32_t>& ids) {
  const size_t before = ids.size();
  ids.resize(before + bytes.size() / sizeof(int32_t));
  std::memcpy(ids.data() + before, bytes.data(), bytes.size());
}

// Some pieces, in order, a thread each; of several processes each tokenises some of them.
bool add_pieces(signal::TextRecords& lines, const text::Tokenizer& tokenizer, const TokenReading& options,
                std::vector<int32_t>& ids) {
  const signal::Member& member = options.member;
  const int64_t own_pieces = member.size == 1 ? std::max(1, options.workers) : kPiecesOfProcess;
  std::vector<std::future<std::vector<int32_t>>> pieces;
  bool at_end = false;
  for (int64_t i = 0; i < own_pieces * member.size && !at_end; ++i) {
    std::string piece = next_piece(lines);
    at_end = piece.empty();
    if (at_end) break;
    if (i / own_pieces != member.rank) continue;
    pieces.push_back(std::async(std::launch::async, [&tokenizer, piece = std::move(piece)] {
      std::vector<int32_t> own;
      tokenizer.tokenize(piece, own);
      return own;
    }));
  }
  std::vector<int32_t> own;
  for (auto& piece : pieces) {
    const std::vector<int32_t> some = piece.get();
    own.insert(own.end(), some.begin(), some.end());
  }
  if (member.size == 1) {
    ids.insert(ids.end(), own.begin(), own.end());
    return !at_end;
  }
  // first whether the file has ended, by which all see whether they read the same one
  std::string said(1, at_end ? '.' : '+');
  said.append(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(int32_t));
  for (const std::string& one : member.gather(std::move(said))) {
    if ((one.front() == '.') != at_end) {
      throw io::Error("the processes do not find the same text; is the data the same for all of them?");
    }
    append(std::string_view(one).substr(1), ids);
  }
  return !at_end;
}

}  // namespace

std::vector<int32_t> read_tokens(const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                                 const TokenReading& options) {
  std::vector<int32_t> ids;
  const size_t limit = options.limit > 0 ? static_cast<size_t>(options.limit) : kMostIds;
  for (size_t f = 0; f < files.size() && ids.size() < limit; ++f) {
    const size_t before = ids.size();
    signal::TextRecords lines({files[f]}, {.text = options.field, .plain_lines = !has_records(files[f])});
    while (ids.size() < limit && add_pieces(lines, tokenizer, options, ids)) {
      const double share = lines.share();
      const auto before_this = static_cast<double>(f);
      if (!options.on_progress) continue;
      options.on_progress(share < 0 ? -1 : (before_this + share) / static_cast<double>(files.size()),
                          static_cast<int64_t>(ids.size()));
    }
    if (ids.size() > kMostIds) throw io::Error(files[f] + ": too much text; at most 2,147,483,647 tokens are kept");
    if (ids.size() == before) throw io::Error(files[f] + ": has no text");
  }
  if (ids.size() > limit) ids.resize(limit);
  return ids;
}

Sequences::Sequences(std::vector<int32_t> text, std::vector<int32_t> before, int64_t context)
    : text_(std::move(text)), before_(std::move(before)), room_(context - static_cast<int64_t>(before_.size())) {
  if (room_ < 1 || context < 2) {
    throw std::invalid_argument("--context " + std::to_string(context) + " has no room for a token behind the " +
                                std::to_string(before_.size()) + " special ones; expected more");
  }
  size_ = (num_tokens() + room_ - 1) / room_;
  if (size_ > 0 && length(size_ - 1) < 2) --size_;
}

int64_t Sequences::of_text(int64_t sequence) const {
  return std::min(room_, num_tokens() - sequence * room_);
}

int64_t Sequences::length(int64_t sequence) const {
  return static_cast<int64_t>(before_.size()) + of_text(sequence);
}

models::PackedTexts Sequences::pack(std::span<const int64_t> sequences, int64_t max_tokens, at::Device device) const {
  std::vector<models::TextStructure> structures;
  int64_t count = 0;
  for (const int64_t sequence : sequences) {
    structures.push_back({.tokens = length(sequence), .sentences = {}, .paragraphs = {}});
    count += structures.back().tokens;
  }
  at::Tensor ids = at::empty({count}, at::dtype(at::kLong));
  auto* next = ids.mutable_data_ptr<int64_t>();
  for (const int64_t sequence : sequences) {
    next = std::copy(before_.begin(), before_.end(), next);
    next = std::copy_n(text_.begin() + sequence * room_, of_text(sequence), next);
  }
  ids = ids.to(device);
  return {ids, at::zeros_like(ids), std::move(structures), 0, max_tokens};
}

}  // namespace ramify::train
