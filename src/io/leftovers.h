// The temporary names of files and folders being written, and what killed writers have left under them.
#pragma once

#include <string>

namespace ramify::io {

std::string folder_of(const std::string& path);       // "." for a bare name
std::string temporary_name(const std::string& path);  // PATH.tmp-PID

// Removes PATH.tmp-PID of processes that are gone, and of this one.
void remove_leftovers(const std::string& path);

// The same for everything in `folder`, whatever was being written there.
void remove_leftovers_in(const std::string& folder);

}  // namespace ramify::io
