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
  std::string output;  // of stdout, and of stderr where `arguments` redirect it
};

inline ProgramRun run(const std::string& arguments) {
  FILE* pipe = popen((RAMIFY_PROGRAM " " + arguments).c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  ProgramRun result = {-1, ""};
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) result.output.append(buffer.data(), count);
  result.exit_code = WEXITSTATUS(pclose(pipe));
  return result;
}

}  // namespace ramify
