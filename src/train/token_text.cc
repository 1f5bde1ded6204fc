#include "train/token_text.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <future>
#include <limits>
#include <stdexcept>

#include "io/error.h"
#include "signal/text_records.h"

namespace ramify::train {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;  // that a thread tokenises at once
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

// As many pieces as there are threads, in order.
bool add_pieces(signal::TextRecords& lines, const text::Tokenizer& tokenizer, int workers, std::vector<int32_t>& ids) {
  std::vector<std::future<std::vector<int32_t>>> pieces;
  bool at_end = false;
  while (!at_end && static_cast<int>(pieces.size()) < workers) {
    std::string piece = next_piece(lines);
    at_end = piece.empty();
    if (at_end) break;
    pieces.push_back(std::async(std::launch::async, [&tokenizer, piece = std::move(piece)] {
      std::vector<int32_t> own;
      tokenizer.tokenize(piece, own);
      return own;
    }));
  }
  for (auto& piece : pieces) {
    const std::vector<int32_t> own = piece.get();
    ids.insert(ids.end(), own.begin(), own.end());
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
    while (ids.size() < limit && add_pieces(lines, tokenizer, std::max(1, options.workers), ids)) {
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
