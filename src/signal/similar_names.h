// What a user may have meant by a name that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ramify::signal {

// Letters (ASCII without case) that are added, left out, replaced, or exchanged with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b);

// The name nearest to `name`, the first of several; "": none is near. Of short names fewer letters may differ.
std::string similar_name(std::string_view name, std::span<const std::string> known);

// "; did you mean train?", or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

}  // namespace ramify::signal
