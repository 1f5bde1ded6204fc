// The page of `ramify compare`: what swapped attention costs and gains, as a table and plots.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ramify::report {

// What `ramify compare --json` writes. io::Error names the field that is not as expected.
std::string swap_page(const nlohmann::json& comparison);

}  // namespace ramify::report
