// Entry of the command line: exit 0 when done, 1 when it failed, 2 for bad usage.
#include <fmt/core.h>

#include <exception>
#include <stdexcept>

#include "commands.h"
#include "exit_status.h"
#include "ramify/version.h"

int main(int argc, char** argv) {
  CLI::App app("Attention over nested data.", "ramify");
  app.set_version_flag("--version", "ramify " RAMIFY_VERSION);
  app.require_subcommand(1);
  app.footer("Example:\n  ramify flops --tokens 4096 --hierarchy '16*'");
  ramify::cli::add_train(app, {argv, argv + argc});
  ramify::cli::add_eval(app);
  ramify::cli::add_predict(app);
  ramify::cli::add_bench(app);
  ramify::cli::add_flops(app);
  ramify::cli::add_inspect(app);
  ramify::cli::add_report(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const ramify::cli::ExitStatus& exit) {
    return exit.status;
  } catch (const std::invalid_argument& error) {  // what the library says of a value that the user gave
    fmt::print(stderr, "ramify: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ramify: {}\n", error.what());
    return 1;
  }
  return 0;
}
