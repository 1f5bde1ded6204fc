#include "io/lines.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "io/input_file.h"

namespace ramify::io {
namespace {

constexpr size_t kRawBytes = size_t{1} << 17;
constexpr int kMaxWindowLog = 27;  // 128 MB, what zstd itself accepts without --long

// The first bytes tell what a file is; at least four of them.
bool is_zstd(std::string_view head) {
  if (head.starts_with("\x28\xB5\x2F\xFD")) return true;
  const bool skippable = head.size() >= 4 && (head[0] & 0xF0) == 0x50 && head.substr(1, 3) == "\x2A\x4D\x18";
  return skippable;
}

}  // namespace

// The file, its decompressor, and the part of the text that has been decoded but not yet returned: text_[at_, end_).
class LineReader::State {
 public:
  State(std::string path, size_t max_line_bytes)
      : file_(std::move(path)), max_line_bytes_(max_line_bytes), raw_(kRawBytes) {}

  bool next(std::string& line);

  bool is_ready() const {
    return file_.size() >= 0 || std::memchr(at_, '\n', static_cast<size_t>(end_ - at_)) || file_.is_ready();
  }
  int64_t number() const { return number_; }
  const InputFile& file() const { return file_; }
  int64_t bytes_taken() const { return bytes_taken_; }

 private:
  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  void begin();
  bool refill_raw();
  bool fill();
  bool fill_from_zstd();
  bool append_piece(std::string& line, size_t& length);
  size_t trim_line(std::string& line) const;
  std::string where() const;

  InputFile file_;
  size_t max_line_bytes_;
  std::vector<char> raw_;      // bytes of the file
  std::vector<char> decoded_;  // what zstd makes of them
  ZSTD_inBuffer input_ = {nullptr, 0, 0};
  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;  // none: the file is plain
  bool inside_frame_ = false;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  int64_t number_ = 0;
  int64_t bytes_taken_ = 0;
  bool begun_ = false;
  bool finished_ = false;
};

std::string LineReader::State::where() const {
  return file_.name() + ":" + std::to_string(number_) + ": ";
}

bool LineReader::State::refill_raw() {
  const size_t count = file_.read(std::as_writable_bytes(std::span(raw_)));
  input_ = {raw_.data(), count, 0};
  bytes_taken_ += static_cast<int64_t>(count);
  return count > 0;
}

// Reads the first bytes and decides what they are. A pipe may hand over fewer than the decision needs, so this
// collects.
void LineReader::State::begin() {
  begun_ = true;
  size_t count = 0;
  while (count < 4) {
    const size_t more = file_.read(std::as_writable_bytes(std::span(raw_).subspan(count)));
    if (more == 0) break;
    count += more;
  }
  bytes_taken_ = static_cast<int64_t>(count);
  input_ = {raw_.data(), count, 0};
  const std::string_view head(raw_.data(), count);
  if (is_zstd(head)) {
    decoded_.resize(ZSTD_DStreamOutSize());
    stream_.reset(ZSTD_createDStream());
    if (!stream_) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  } else if (head.starts_with("\x1F\x8B")) {
    throw Error(where() + "is compressed with gzip; expected plain text or zstd");
  } else {
    at_ = raw_.data();
    end_ = raw_.data() + count;
  }
}

bool LineReader::State::fill_from_zstd() {
  while (true) {
    if (input_.pos == input_.size && !refill_raw()) {
      if (inside_frame_) throw Error(where() + "the zstd stream is cut short; expected more bytes");
      return false;
    }
    ZSTD_outBuffer output = {decoded_.data(), decoded_.size(), 0};
    // Zero at the end of a frame; another one may follow.
    const size_t hint = ZSTD_decompressStream(stream_.get(), &output, &input_);
    if (ZSTD_isError(hint)) throw Error(where() + std::string("the zstd stream is broken: ") + ZSTD_getErrorName(hint));
    inside_frame_ = hint != 0;
    if (output.pos > 0) {
      at_ = decoded_.data();
      end_ = at_ + output.pos;
      return true;
    }
  }
}

bool LineReader::State::fill() {
  if (stream_) return fill_from_zstd();
  if (!refill_raw()) return false;
  at_ = raw_.data();
  end_ = at_ + input_.size;
  return true;
}

// Moves what is there of the line from the buffer to `line`, unless it has grown too long. True: the line ends here.
bool LineReader::State::append_piece(std::string& line, size_t& length) {
  const auto* newline = static_cast<const char*>(std::memchr(at_, '\n', static_cast<size_t>(end_ - at_)));
  const char* stop = newline ? newline : end_;
  const auto count = static_cast<size_t>(stop - at_);
  length += std::min(count, ~length);
  if (length <= max_line_bytes_ + 1) {  // one more may be a \r
    line.append(at_, count);
  } else {
    line = {};
  }
  at_ = newline ? stop + 1 : stop;
  return newline != nullptr;
}

bool LineReader::State::next(std::string& line) {
  line.clear();
  if (finished_) return false;
  finished_ = true;  // unless this line turns out well: nothing follows an unreadable one
  ++number_;
  if (!begun_) begin();
  size_t length = 0;
  bool some = false;
  bool ended = false;
  while (!ended && (at_ != end_ || fill())) {
    some = true;
    ended = append_piece(line, length);
  }
  if (!some) {
    --number_;
    return false;
  }
  finished_ = false;
  if (length == line.size()) length -= trim_line(line);
  if (length > max_line_bytes_) {
    line = {};
    throw LineTooLong(where() + "the line has " + std::to_string(length) + " bytes; expected at most " +
                      std::to_string(max_line_bytes_));
  }
  return true;
}

// Takes away what is not the line's own; returns how many bytes that were.
size_t LineReader::State::trim_line(std::string& line) const {
  const size_t length = line.size();
  if (line.ends_with('\r')) line.pop_back();
  if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return length - line.size();
}

LineReader::LineReader(std::string path, size_t max_line_bytes)
    : state_(std::make_unique<State>(std::move(path), max_line_bytes)) {}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

bool LineReader::next(std::string& line) {
  return state_->next(line);
}
bool LineReader::is_ready() const {
  return state_->is_ready();
}
int64_t LineReader::number() const {
  return state_->number();
}
const std::string& LineReader::name() const {
  return state_->file().name();
}
int64_t LineReader::bytes_taken() const {
  return state_->bytes_taken();
}
int64_t LineReader::bytes_in_file() const {
  return state_->file().size();
}

}  // namespace ramify::io
