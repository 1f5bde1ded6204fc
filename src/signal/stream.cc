#include "signal/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "io/error.h"
#include "signal/record_lines.h"

namespace ramify::signal {
namespace {

constexpr size_t kMaxChunkBytes = size_t{1} << 20;  // a chunk ends with the line that passes it

int thread_count(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Record compile(RecordLine& line, const RecordLines& lines, const Compiler& compiler) {
  Record record = {
      .file = line.file, .line = line.line, .bytes = static_cast<int64_t>(line.json.size()), .error = line.error};
  if (!line.error.empty()) return record;
  try {
    record.signal = compiler.compile(line.json, lines.folder(line.file));
  } catch (const BadRecord& error) {
    record.error = fmt::format("{}:{}: {}", lines.name(line.file), line.line, error.what());
  }
  return record;
}

}  // namespace

// Workers take turns in reading lines, compile what they read, and put it where the consumer finds it in order.
class SignalStream::State {
 public:
  State(std::vector<std::string> files, std::shared_ptr<const Compiler> compiler, const StreamOptions& options)
      : lines_(std::move(files)), compiler_(std::move(compiler)), options_(options) {
    const int threads = thread_count(options.threads);
    window_ = 2 * threads + 2;
    for (int t = 0; t < threads; ++t) workers_.emplace_back([this] { work(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
  }

  bool next(RecordChunk& chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_result_ == end_ || results_.contains(next_result_); });
    if (next_result_ == end_) {
      if (error_) std::rethrow_exception(error_);
      return false;
    }
    const auto found = results_.find(next_result_++);
    chunk = std::move(found->second);
    results_.erase(found);
    progress_.records += static_cast<int64_t>(chunk.records.size()) * options_.ranks;
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  ReadProgress progress() const {
    const std::lock_guard lock(mutex_);
    return progress_;
  }

 private:
  static constexpr int64_t kNone = -1;

  void work() {
    std::vector<RecordLine> lines;
    for (;;) {
      const int64_t number = take_turn(lines);
      if (number == kNone) return;
      try {
        RecordChunk chunk = number % options_.ranks == options_.rank ? compile_chunk(lines) : RecordChunk{};
        const std::lock_guard lock(mutex_);
        results_.emplace(number, std::move(chunk));
      } catch (...) {  // not a matter of one record: no memory, say
        end_with(number, std::current_exception());
      }
      changed_.notify_all();
    }
  }

  // Reads the next chunk when there is room for it. Its number; kNone: there is none any more.
  int64_t take_turn(std::vector<RecordLine>& lines) {
    const std::lock_guard turn(reading_);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_stopped_ || end_ != kNone || next_chunk_ < next_result_ + window_; });
      if (is_stopped_ || end_ != kNone) return kNone;
    }
    read_chunk(lines);
    const ReadProgress read = lines_.progress();
    {
      const std::lock_guard lock(mutex_);
      progress_.bytes = read.bytes;
      progress_.bytes_total = read.bytes_total;
      if (!lines.empty()) return next_chunk_++;
    }
    end_with(next_chunk_, reading_error_);
    return kNone;
  }

  // Empty: the end, or reading_error_.
  void read_chunk(std::vector<RecordLine>& lines) {
    lines.clear();
    const auto most = static_cast<size_t>(std::max<int64_t>(1, options_.chunk_records));
    try {
      for (size_t bytes = 0; lines.size() < most && bytes < kMaxChunkBytes && !reading_error_;) {
        RecordLine line;
        if (!lines_.next(line)) break;
        bytes += line.json.size();
        lines.push_back(std::move(line));
        if (!lines_.is_ready()) break;  // what a pipe has sent so far is not kept waiting
      }
    } catch (...) {
      reading_error_ = std::current_exception();  // what came before it is delivered first
    }
  }

  RecordChunk compile_chunk(std::vector<RecordLine>& lines) const {
    RecordChunk chunk;
    chunk.records.reserve(lines.size());
    for (RecordLine& line : lines) {
      chunk.records.push_back(compile(line, lines_, *compiler_));
      if (options_.keep_json) chunk.records.back().json = std::move(line.json);
    }
    return chunk;
  }

  void end_with(int64_t number, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (end_ != kNone && end_ <= number) return;
    end_ = number;
    error_ = std::move(error);
    changed_.notify_all();
  }

  std::mutex reading_;  // held by the worker whose turn it is
  RecordLines lines_;
  std::exception_ptr reading_error_;
  const std::shared_ptr<const Compiler> compiler_;
  const StreamOptions options_;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<int64_t, RecordChunk> results_;
  int64_t window_ = 0;       // chunks that may be ahead of the consumer
  int64_t next_chunk_ = 0;   // to be read
  int64_t next_result_ = 0;  // to be delivered
  int64_t end_ = kNone;      // number after the last chunk, once known
  std::exception_ptr error_;
  ReadProgress progress_;
  bool is_stopped_ = false;
  std::vector<std::jthread> workers_;  // last, so that they end first
};

SignalStream::SignalStream(std::vector<std::string> files, std::shared_ptr<const Compiler> compiler,
                           StreamOptions options)
    : state_(std::make_unique<State>(std::move(files), std::move(compiler), options)) {}

SignalStream::~SignalStream() = default;

bool SignalStream::next(RecordChunk& chunk) {
  return state_->next(chunk);
}

ReadProgress SignalStream::progress() const {
  return state_->progress();
}

std::vector<Record> read_lines(const std::string& file, std::span<const int64_t> wanted, const Compiler& compiler) {
  std::vector<Record> records;
  RecordLines lines({file});
  RecordLine line;
  while (records.size() < wanted.size() && lines.next(line)) {
    if (line.line < wanted[records.size()]) continue;
    if (line.line > wanted[records.size()]) break;
    records.push_back(compile(line, lines, compiler));
    records.back().json = std::move(line.json);
  }
  if (records.size() == wanted.size()) return records;
  throw io::Error(fmt::format("{}:{}: no record there", lines.name(0), wanted[records.size()]));
}

}  // namespace ramify::signal
