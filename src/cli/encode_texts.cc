// `ramify encode` with torch: texts are read in windows, each computed in batches of similar lengths, and written in
// order.
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <fmt/core.h>

#include <string>
#include <vector>

#include "line_output.h"
#include "model_commands.h"
#include "models/tensor_file.h"
#include "models/text_embedder.h"
#include "notes.h"
#include "progress_line.h"
#include "published_model.h"
#include "report/html.h"
#include "torch_settings.h"
#include "train/interrupt.h"

namespace ramify::cli {
namespace {

constexpr size_t kWindow = 1024;  // texts that are sorted by length together

std::string numbers(const float* values, int64_t count) {
  std::string text = "[";
  for (int64_t i = 0; i < count; ++i) fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", values[i]);
  return text + "]";
}

// Where vectors go: lines as they come, or one tensor at the end.
class VectorOutput {
 public:
  explicit VectorOutput(const std::string& path) : path_(path) {
    if (is_tensor()) {
      io::AtomicFile{path};  // what cannot be written should be known before the work
    } else {
      lines_.emplace(path);
    }
  }

  // [n, width]: a vector a text.
  void write(const at::Tensor& vectors) {
    models::require_finite(vectors);
    if (is_tensor()) {
      kept_.push_back(vectors);
      return;
    }
    const int64_t width = vectors.size(1);
    const auto* values = vectors.const_data_ptr<float>();
    for (int64_t i = 0; i < vectors.size(0); ++i) {
      lines_->write("{\"embedding\":" + numbers(values + i * width, width) + "}");
    }
    lines_->flush();
  }

  // [tokens, width]: a vector a token of one text.
  void write_tokens(const at::Tensor& rows) {
    models::require_finite(rows);
    if (is_tensor()) {
      kept_.push_back(rows);
      return;
    }
    std::string line = "{\"embedding\":[";
    for (int64_t i = 0; i < rows.size(0); ++i) {
      line += (i == 0 ? "" : ",") + numbers(rows.const_data_ptr<float>() + i * rows.size(1), rows.size(1));
    }
    lines_->write(line + "]}");
    lines_->flush();
  }

  void commit(bool of_tokens) {
    if (!is_tensor()) {
      lines_->commit();
      return;
    }
    models::NamedTensors tensors;
    if (of_tokens) {
      for (size_t i = 0; i < kept_.size(); ++i) tensors.emplace_back("tokens." + std::to_string(i), kept_[i]);
    } else {
      tensors.emplace_back("embeddings", at::cat(kept_));
    }
    models::save_tensors(path_, tensors);
  }

 private:
  bool is_tensor() const { return path_.ends_with(".safetensors"); }

  std::string path_;
  std::optional<LineOutput> lines_;
  std::vector<at::Tensor> kept_;
};

at::Tensor normalized(const at::Tensor& rows, bool wanted) {
  return wanted ? rows / at::linalg_vector_norm(rows, 2, {1}, /*keepdim=*/true).clamp_min(1e-12) : rows;
}

class Encoding {
 public:
  explicit Encoding(const EncodeCommand& command)
      : command_(command),
        model_(open_model(command.model)),
        max_tokens_(max_tokens_of(command.model, model_.config())),
        texts_(command.texts, command.fields),
        output_(command.out) {
    options_.plan = plan_of(command.model, model_.num_layers());
    options_.pooling = command.pooling == "cls" ? models::Pooling::cls : models::Pooling::mean;
    options_.normalize = command.normalize;
    options_.batch_tokens = command.batch_tokens;
    options_.on_batch = [this](size_t done) { return show(done); };
    for (const auto& layer : options_.plan.layers) with_segments_ |= layer && layer->hierarchy.follows_text();
  }

  int run() {
    std::vector<models::TokenizedText> window;
    while (read(window) && train::InterruptGuard::caught() == 0) {
      if (command_.pooling == "none") {
        write_tokens(window);
      } else {
        const at::Tensor vectors = embed(model_, window, options_);
        if (train::InterruptGuard::caught() != 0) break;
        output_.write(vectors);
      }
      done_ += window.size();
    }
    line_.clear();
    if (train::InterruptGuard::caught() != 0) {
      tell("interrupted\n");
      return interrupted_status();
    }
    output_.commit(command_.pooling == "none");
    if (cut_ > 0) {
      tell("{} of {} texts {} cut off at {} tokens\n", report::with_commas(cut_),
           report::with_commas(static_cast<int64_t>(done_)), cut_ == 1 ? "was" : "were", max_tokens_);
    }
    return 0;
  }

 private:
  // Fewer than a window where a pipe has no more for now: whoever feeds it may wait for the answer.
  bool read(std::vector<models::TokenizedText>& window) {
    window.clear();
    signal::TextRecord record;
    while (window.size() < kWindow && (window.empty() || texts_.is_ready()) && texts_.next(record)) {
      window.push_back(model_.tokenizer().tokenize(record.text, max_tokens_, with_segments_));
      cut_ += window.back().was_cut;
    }
    return !window.empty();
  }

  void write_tokens(const std::vector<models::TokenizedText>& window) {
    for (const models::TokenizedText& text : window) {
      const models::TokenizedText* one[] = {&text};
      const at::Tensor rows = model_.token_rows(model_.pack(one), options_.plan);
      output_.write_tokens(normalized(rows.to(at::kCPU, at::kFloat), command_.normalize).contiguous());
      if (!show(static_cast<size_t>(&text - window.data()))) return;
    }
  }

  bool show(size_t in_window) {
    line_.show("encoding", texts_.share(), count_text(static_cast<double>(done_ + in_window)) + " texts");
    return train::InterruptGuard::caught() == 0;
  }

  const EncodeCommand& command_;
  models::TextModel model_;
  int64_t max_tokens_;
  signal::TextRecords texts_;
  VectorOutput output_;
  models::EmbedOptions options_;
  ProgressLine line_;
  bool with_segments_ = false;
  size_t done_ = 0;
  int64_t cut_ = 0;
};

}  // namespace
}  // namespace ramify::cli

extern "C" int ramify_run_encode(const ramify::cli::EncodeCommand& given) {
  ramify::cli::EncodeCommand command = given;
  ramify::cli::require_no_input(command.out, command.texts);
  ramify::cli::apply_compute_options(command.model.compute);
  const ramify::train::InterruptGuard interrupts;
  return ramify::cli::Encoding(command).run();
}
