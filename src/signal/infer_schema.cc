// Schema inference over files.
#include <fmt/format.h>

#include <algorithm>

#include "io/error.h"
#include "signal/compiler.h"
#include "signal/inference.h"
#include "signal/record_lines.h"
#include "signal/standard_input.h"

namespace ramify::signal {

Schema infer_schema(const std::vector<std::string>& files, const SchemaOptions& options,
                    const std::function<void(const ReadProgress&)>& on_progress) {
  constexpr int64_t kRecordsBetweenReports = 256;
  const bool has_standard_input = std::find(files.begin(), files.end(), "-") != files.end();
  if (has_standard_input) make_standard_input_rewindable();
  SchemaInference inference(options);
  RecordLines lines(files);
  int64_t good = 0;
  std::string first_error;
  for (RecordLine line; lines.next(line);) {
    try {
      if (!line.error.empty()) throw io::Error(line.error);
      try {
        inference.add(line.json, {lines.name(line.file), line.line});
        ++good;
      } catch (const BadRecord& error) {
        throw io::Error(fmt::format("{}:{}: {}", lines.name(line.file), line.line, error.what()));
      }
    } catch (const io::Error& error) {
      if (options.on_bad == OnBad::fail) throw;
      if (first_error.empty()) first_error = error.what();
    }
    const ReadProgress progress = lines.progress();
    if (on_progress && progress.records % kRecordsBetweenReports == 0) on_progress(progress);
  }
  if (good == 0) throw io::Error(fmt::format("all records are bad; the first: {}", first_error));
  if (on_progress) on_progress(lines.progress());
  if (has_standard_input) rewind_standard_input();
  try {
    return inference.finish();
  } catch (const io::Error& error) {
    throw io::Error(fmt::format("{}: {}", files.size() == 1 ? lines.name(0) : "training data", error.what()));
  }
}

}  // namespace ramify::signal
