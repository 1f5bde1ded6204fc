#include "command_line.h"

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "exit_status.h"
#include "notes.h"
#include "ramify/version.h"
#include "usage_errors.h"

namespace {

constexpr int kFailed = 1, kBadUsage = 2;

// A file would get the number of a standard stream that is closed, and what is said there would end up in the file.
// /dev/null the wrong way round keeps the number, and reading from it or writing to it fails as before.
void keep_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);  // the lowest free number
  }
}

int complain(const std::string& message, int status) {
  ramify::cli::tell("ramify: {}\n", message);
  return status;
}

int run(CLI::App& app, int argc, char** argv) {
  if (const std::string message = ramify::cli::unknown_command(app, std::span(argv + 1, argv + argc));
      !message.empty()) {
    return complain(message, kBadUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError& error) {
    const std::string message = ramify::cli::unknown_option(app);
    return message.empty() ? (app.exit(error), kBadUsage) : complain(message, kBadUsage);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  } catch (const ramify::cli::ExitStatus& exit) {
    return exit.status;
  } catch (const std::invalid_argument& error) {  // what the library says of a value that the user gave
    return complain(error.what(), kBadUsage);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
  return 0;
}

// Whatever a command has printed is only done when it has arrived.
int finish_output() {
  const bool had_failed = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !had_failed) return 0;
  const int reason = errno;
  return complain("standard output: cannot write" + (reason == 0 ? "" : std::string(": ") + std::strerror(reason)),
                  kFailed);
}

// Of several processes all see the same mistakes in their arguments: one that does not speak leaves them to the first.
int run_silently(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? 0 : kBadUsage;
  } catch (const ramify::cli::ExitStatus& exit) {
    return exit.status;
  } catch (const std::exception&) {
    return kFailed;
  }
  return 0;
}

ramify::cli::Launch launch_of(const RamifyLaunch* launch) {
  if (!launch) return {};
  return {
      .group = launch->group, .rank = launch->rank, .local_rank = launch->local_rank, .local_size = launch->local_size};
}

}  // namespace

int ramify_command_line(int argc, char** argv, const RamifyLaunch* launch) {
  keep_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that must not grow is an error like a full disk, not the end
  CLI::App app("Attention over nested data.", "ramify");
  app.set_version_flag("--version", "ramify " RAMIFY_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  ramify train reviews.jsonl --target label --out runs/reviews\n"
      "  ramify predict runs/reviews new.jsonl > predictions.jsonl");
  ramify::cli::add_train(app, {argv, argv + argc}, launch_of(launch));
  ramify::cli::add_train_language(app, {argv, argv + argc}, launch_of(launch));
  ramify::cli::add_eval(app);
  ramify::cli::add_predict(app);
  ramify::cli::add_encode(app);
  ramify::cli::add_compare(app);
  ramify::cli::add_generate(app);
  ramify::cli::add_perplexity(app);
  ramify::cli::add_bench(app);
  ramify::cli::add_flops(app);
  ramify::cli::add_inspect(app);
  ramify::cli::add_report(app);
  const bool is_first = !launch || launch->rank == 0;
  const int status = is_first ? run(app, argc, argv) : run_silently(app, argc, argv);
  return status == 0 ? finish_output() : status;
}
