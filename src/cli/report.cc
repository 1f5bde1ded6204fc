// `ramify report`: one page of what runs of `ramify train` recorded.
#include "report/report.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "io/atomic_file.h"
#include "notes.h"

namespace ramify::cli {
namespace {

#ifdef __APPLE__
constexpr const char* kOpener = "open";
#else
constexpr const char* kOpener = "xdg-open";
#endif

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out;
  bool open = false;
};

// With one run the page is a part of its folder.
std::string page_path(const ReportOptions& options) {
  if (!options.out.empty()) return options.out;
  return options.folders.size() == 1 ? (std::filesystem::path(options.folders[0]) / "report.html").string()
                                     : "report.html";
}

// Hands the page to the desktop's program for it. No shell is asked: a path may hold anything.
void open_page(const std::string& path) {
  std::string opener = kOpener;
  std::string page = std::filesystem::absolute(path).string();
  char* arguments[] = {opener.data(), page.data(), nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, kOpener, &quiet, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (error != 0) {
    throw std::runtime_error(
        fmt::format("report: {} cannot be run: {}; the page is {}", kOpener, strerror(error), page));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error(fmt::format("report: {} failed; the page is {}", kOpener, page));
  }
}

void run(const ReportOptions& options) {
  const std::vector<std::filesystem::path> folders(options.folders.begin(), options.folders.end());
  const std::vector<report::Run> runs = report::read_runs(folders);
  for (const report::Run& run : runs) {
    for (const std::string& note : run.notes) tell("ramify: report: {}: {}\n", run.name, note);
  }
  const std::string path = page_path(options);
  io::write_file_atomic(path, report::report_page(runs));
  fmt::print("{}\n", path);
  if (options.open) open_page(path);
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "Draw runs of training as one HTML page");
  command->add_option("DIR", options->folders, "Folders that `ramify train --out` wrote; several are compared")
      ->required();
  command->add_option("--out", options->out, "The page (default: report.html, with one run inside its folder)");
  command->add_flag("--open", options->open, "Show the page in the browser");
  command->footer(
      "The page is one file that needs no network. A run that was stopped is drawn as far as it went.\n\n"
      "Example:\n  ramify report runs/hierarchical runs/flat runs/none --out comparison.html");
  command->callback([options] { run(*options); });
}

}  // namespace ramify::cli
