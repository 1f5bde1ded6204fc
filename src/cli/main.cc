// The `ramify` program: the command line alone.
#include "command_line.h"

int main(int argc, char** argv) {
  return ramify_command_line(argc, argv, nullptr);
}
