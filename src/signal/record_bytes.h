// Compiled records as bytes, for other processes on machines of the same kind; not a format for files. Labels of nodes
// (Signal::labels), which are for people, are left out.
#pragma once

#include <string>
#include <string_view>

#include "signal/stream.h"

namespace ramify::signal {

std::string to_bytes(const RecordChunk& chunk);
// io::Error for bytes that are no chunk.
RecordChunk chunk_from_bytes(std::string_view bytes);

}  // namespace ramify::signal
