// Runs the program as a user does.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace ramify {

struct ProgramRun {
  int exit_code;
  std::string output;  // of stdout, and of stderr where it is redirected
};

inline ProgramRun run_shell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  ProgramRun result = {-1, ""};
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) result.output.append(buffer.data(), count);
  result.exit_code = WEXITSTATUS(pclose(pipe));
  return result;
}

inline ProgramRun run(const std::string& arguments) {
  return run_shell(RAMIFY_PROGRAM " " + arguments);
}

}  // namespace ramify
