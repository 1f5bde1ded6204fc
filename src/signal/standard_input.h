// Standard input that can be read twice, once for the schema and once for the records.
#pragma once

namespace ramify::signal {

// Where it is a pipe, it is first copied whole into a temporary file that takes its place. io::Error: no room for it.
void make_standard_input_rewindable();
void rewind_standard_input();

}  // namespace ramify::signal
