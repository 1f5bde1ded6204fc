#include "usage_errors.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "signal/similar_names.h"

namespace ramify::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string list_names(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

std::string unknown_command(const CLI::App& app, std::span<const char* const> arguments) {
  const CLI::App* command = &app;
  for (const std::string_view name : arguments) {
    const std::vector<const CLI::App*> commands = commands_of(*command);
    if (commands.empty() || name.starts_with('-')) break;
    const auto found = std::find_if(commands.begin(), commands.end(), [&](auto* c) { return c->get_name() == name; });
    if (found != commands.end()) {
      command = *found;
      continue;
    }
    std::vector<std::string> names;
    for (const CLI::App* known : commands) names.push_back(known->get_name());
    const std::string meant = signal::did_you_mean(name, names);
    return fmt::format("there is no command {}{}", name, meant.empty() ? "; expected " + list_names(names) : meant);
  }
  return "";
}

std::string unknown_option(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const std::string& argument : app.remaining(/*recurse=*/true)) {
    if (!argument.starts_with('-')) continue;
    const std::string name = argument.substr(0, argument.find('='));
    return fmt::format("there is no option {}{}", name, signal::did_you_mean(name, known));
  }
  return "";
}

}  // namespace ramify::cli
