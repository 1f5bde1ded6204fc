// `ramify inspect`: what a file of records is as nested signals: its schema, the shape of its trees, one record drawn,
// and how fast it is read. No torch.
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "commands.h"
#include "inspect_report.h"
#include "inspect_tree.h"
#include "io/atomic_file.h"
#include "notes.h"
#include "number_checks.h"
#include "progress_line.h"
#include "report/tree.h"
#include "schema_flags.h"
#include "signal/batch.h"
#include "signal/inference.h"
#include "signal/standard_input.h"
#include "signal/stream.h"
#include "signal/tree_json.h"

namespace ramify::cli {
namespace {

struct InspectOptions {
  std::vector<std::string> files;
  signal::SchemaSettings schema;
  int64_t record = 0;         // from 1; 0: none
  bool draws_record = false;  // on the terminal
  std::string html;
  bool json = false;
  bool throughput = false;
  int workers = 0;
};

using nlohmann::json;
using SharedCompiler = std::shared_ptr<const signal::Compiler>;

void show(ProgressLine& line, const char* what, const signal::ReadProgress& progress) {
  const double share =
      progress.bytes_total > 0 ? static_cast<double>(progress.bytes) / static_cast<double>(progress.bytes_total) : -1;
  line.show(what, share, count_text(static_cast<double>(progress.records)) + " records");
}

// All records once: the statistics, and where the record to be drawn stands.
struct Survey {
  signal::SignalStatistics statistics;
  signal::BadRecords bad;
  std::string file;
  int64_t line = 0;
};

void survey_record(const InspectOptions& options, const signal::Record& record, int64_t number, Survey& survey) {
  const bool is_wanted = number == options.record;
  if (is_wanted) {
    survey.file = options.files[static_cast<size_t>(record.file)];
    survey.line = record.line;
  }
  if (record.error.empty()) return survey.statistics.add(record.signal);
  if (options.schema.on_bad == "fail" || is_wanted) throw io::Error(record.error);
  if (survey.bad.messages.size() < signal::BadRecords::kMaxMessages) survey.bad.messages.push_back(record.error);
  ++survey.bad.count;
}

Survey survey_records(const InspectOptions& options, const SharedCompiler& compiler) {
  Survey survey;
  ProgressLine line;
  int64_t number = 0;
  signal::SignalStream stream(options.files, compiler, {.threads = options.workers});
  for (signal::RecordChunk chunk; stream.next(chunk);) {
    for (const signal::Record& record : chunk.records) survey_record(options, record, ++number, survey);
    show(line, "reading", stream.progress());
  }
  if (options.record > number) {
    throw std::invalid_argument(fmt::format("inspect: record {} is asked for, there {} {}", options.record,
                                            number == 1 ? "is" : "are", number));
  }
  return survey;
}

bool reads_standard_input(const InspectOptions& options) {
  return std::find(options.files.begin(), options.files.end(), "-") != options.files.end();
}

double core_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Reading, parsing, tokenising and the forests of batches, again and again for some seconds. Cores are counted by the
// time that they really worked, so a machine that is busy otherwise gives the same figure.
Throughput measure(const InspectOptions& options, const SharedCompiler& compiler) {
  constexpr double kSeconds = 3;
  using Clock = std::chrono::steady_clock;
  Throughput result;
  result.threads = options.workers > 0 ? options.workers : static_cast<int>(std::thread::hardware_concurrency());
  const auto begin = Clock::now();
  const double cores_begin = core_seconds();
  do {
    if (reads_standard_input(options)) signal::rewind_standard_input();
    signal::SignalStream stream(options.files, compiler, {.threads = result.threads});
    for (signal::RecordChunk chunk; stream.next(chunk);) {
      std::vector<const signal::Signal*> signals;
      for (const signal::Record& record : chunk.records) {
        result.bytes += record.bytes;
        if (record.error.empty()) signals.push_back(&record.signal);
      }
      signal::collate(signals, *compiler->schema());
      result.records += static_cast<int64_t>(chunk.records.size());
    }
    result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } while (result.seconds < kSeconds);
  result.core_seconds = core_seconds() - cores_begin;
  return result;
}

size_t tree_width() {
  return std::clamp<size_t>(terminal_width(STDOUT_FILENO, 100), 40, 200);
}

signal::Signal labelled_record(const InspectOptions& options, const Inspection& inspection, const Survey& survey) {
  if (survey.file == "-") signal::rewind_standard_input();
  const signal::Compiler compiler(std::make_shared<const signal::Schema>(inspection.schema),
                                  {.labels = signal::Labels::all, .images = options.schema.images});
  return read_lines(survey.file, std::vector{survey.line}, compiler).front().signal;
}

void write_results(const InspectOptions& options, const Inspection& inspection, const Survey& survey) {
  json result = options.json ? inspection_json(inspection) : json();
  if (!options.json) fmt::print("{}", inspection_text(inspection));
  if (options.record > 0) {
    const signal::Signal record = labelled_record(options, inspection, survey);
    const std::string title = fmt::format("{}:{}", survey.file == "-" ? "standard input" : survey.file, survey.line);
    if (options.json)
      result["record"] = {{"file", survey.file}, {"line", survey.line}, {"tree", signal::tree_json(record)}};
    if (!options.json && options.draws_record) fmt::print("\n{}\n{}", title, draw_tree(record, tree_width()));
    if (!options.html.empty()) {
      io::write_file_atomic(options.html,
                            report::tree_page(title, inspection_tables(inspection), tree_for_page(record)));
    }
  }
  if (options.json) fmt::print("{}\n", result.dump(2));
  if (!options.html.empty() && !options.json) fmt::print("\n{}\n", options.html);
}

void run(const InspectOptions& options) {
  Inspection inspection;
  inspection.files = options.files;
  {
    ProgressLine line;
    inspection.schema = signal::infer_schema(options.files, options.schema.options(),
                                             [&](const auto& progress) { show(line, "schema", progress); });
  }
  const auto compiler =
      std::make_shared<const signal::Compiler>(std::make_shared<const signal::Schema>(inspection.schema),
                                               signal::CompilerOptions{.images = options.schema.images});
  const Survey survey = survey_records(options, compiler);
  inspection.statistics = survey.statistics;
  inspection.bad = survey.bad;
  for (const std::string& message : inspection.bad.messages) tell("ramify: skipped {}\n", message);
  if (options.throughput) inspection.throughput = measure(options, compiler);
  write_results(options, inspection, survey);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Show what records are as nested signals");
  command->add_option("DATA", options->files, "records, one a line: .jsonl, .jsonl.zst, or - for standard input")
      ->required();
  command->add_option("--record", options->record, "draw this record (from 1) as its tree")->check(from_one());
  command->add_option("--html", options->html, "write the schema, the statistics and the tree of a record as a page");
  command->add_flag("--json", options->json, "print JSON");
  command->add_flag("--throughput", options->throughput, "measure how fast records become batches");
  command->add_option("--workers", options->workers, "threads that read records; 0: one a core")
      ->check(CLI::Range(0, 1024));
  add_schema_flags(*command, options->schema);
  command->footer("A schema file names fields and what they are (" + signal::kind_names() +
                  "):\n{\"fields\": {\"picture\": \"image\", \"year\": \"category\", \"notes\": \"ignore\"}}\n\n"
                  "Examples:\n"
                  "  ramify inspect reviews.jsonl --target label\n"
                  "  ramify inspect reviews.jsonl.zst --target label --record 3 --html record.html\n"
                  "  zstd -dc reviews.jsonl.zst | ramify inspect - --throughput --workers 1");
  command->callback([options] {
    options->draws_record = options->record > 0;
    if (!options->html.empty() && options->record == 0) options->record = 1;
    run(*options);
  });
}

}  // namespace ramify::cli
