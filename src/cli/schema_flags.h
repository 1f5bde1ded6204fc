// The flags that say what records are, the same for every command that reads records it does not know yet.
#pragma once

#include <CLI/CLI.hpp>

#include "signal/schema_settings.h"

namespace ramify::cli {

void add_schema_flags(CLI::App& app, signal::SchemaSettings& settings);

}  // namespace ramify::cli
