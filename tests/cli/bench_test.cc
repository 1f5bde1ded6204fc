// `ramify bench attention`: usage, and what it counts. Times are only there; how long they are is not a test's
// business.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace ramify {
namespace {

TEST(Bench, HelpHasExamples) {
  for (const std::string command : {"bench --help", "bench attention --help"}) {
    const ProgramRun result = run(command);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.output.find("ramify bench attention --"), std::string::npos) << result.output;
  }
}

TEST(Bench, BadUsageExitsWithTwo) {
  for (const std::string arguments :
       {"bench", "bench nonsense", "bench attention --tokens", "bench attention --tokens many",
        "bench attention --dtype float8", "bench attention --tie all", "bench attention --causal left",
        "bench attention --window 4", "bench attention --peers flash", "bench attention --heads 1.5",
        "bench attention --colour"}) {
    const ProgramRun result = run(arguments + " 2>&1 1>/dev/null");
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_FALSE(result.output.empty()) << arguments;
  }
}

TEST(Bench, BadValuesExitWithTwoAndSayWhatWasExpected) {
  const std::pair<std::string, std::string> cases[] = {
      {"--tokens 64,0", "bench: tokens is 0; expected at least 1"},
      {"--tokens 2147483649", "bench: tokens is 2147483649; expected at most 2147483648"},
      {"--heads 0", "bench: heads is 0; expected at least 1"},
      {"--dim 5000", "bench: dim is 5000; expected at most 4096"},
      {"--window 4", "bench: window is 4 with tie block; a window needs --tie none"},
      {"--threads -1", "bench: threads is -1; expected at least 0"},
      {"--heads 8 --key-heads 3", "bench: key-heads is 3, heads is 8; key-heads must divide heads"},
      {"--peers none,sdpa", "bench: peers holds none and others; expected none alone"},
      {"--hierarchy 0", "hierarchy: branching holds 0; every size must be at least 1"},
  };
  for (const auto& [arguments, message] : cases) {
    const ProgramRun result = run("bench attention " + arguments + " 2>&1");
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.output, "ramify: " + message + "\n");
  }
}

TEST(Bench, MoreTokensThanMemoryIsAMessage) {
  const ProgramRun result = run("bench attention --tokens 2147483648 --heads 4096 --dim 4096 2>&1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output.find("ramify: bench: 2147483648 tokens need about "), 0U) << result.output;
}

#if !RAMIFY_HAS_TORCH

TEST(Bench, WithoutTorchItSaysSo) {
  const ProgramRun result = run("bench attention --tokens 64 --peers none 2>&1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("this command needs torch"), std::string::npos) << result.output;
}

#else

TEST(Bench, PrintsATable) {
  const ProgramRun result = run("bench attention --tokens 64 --heads 2 --dim 8 --threads 1 2>/dev/null");
  EXPECT_EQ(result.exit_code, 0);
  for (const std::string part : {"windows 16*, 2 heads of 8, float32", "1 threads, torch ", "composed/ours",
                                 "sdpa/ours", "copy floor", "FLOP floor", "\n        64 "}) {
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  }
}

TEST(Bench, SaysWhichImplementationIsOurs) {
  const std::string sizes = "bench attention --tokens 4,8 --heads 1 --threads 1 --peers none ";
  const std::string reason = "the fused kernels take dimensions up to 512";
  const std::string fused = run(sizes + "--dim 512 2>/dev/null").output;
  const std::string composed = run(sizes + "--dim 513 2>/dev/null").output;
  EXPECT_EQ(fused.find("ours is"), std::string::npos) << fused;
  EXPECT_TRUE(composed.ends_with("\n\nours is the composed implementation: " + reason + "\n")) << composed;
  const auto ours = [&](const std::string& dim) {
    return nlohmann::json::parse(run(sizes + "--json --dim " + dim + " 2>/dev/null").output)["ours"];
  };
  EXPECT_EQ(ours("512"), nlohmann::json({{"implementation", "fused"}}));
  EXPECT_EQ(ours("513"), nlohmann::json({{"implementation", "composed"}, {"reason", reason}}));
}

TEST(Bench, CountsBytesAndMultiplyAdds) {
  const ProgramRun result =
      run("bench attention --tokens 16,64 --heads 4 --key-heads 2 --dim 8 --backward --peers none --json 2>/dev/null");
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_TRUE(json["options"]["backward"]);
  EXPECT_EQ(json["options"]["peers"], nlohmann::json::array());
  EXPECT_GE(json["machine"]["threads"], 1);
  ASSERT_EQ(json["rows"].size(), 2U);
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["tokens"], 64);
  // q, grad_out, out, grad_q and again q of 4 heads; k, v twice, grad_k and grad_v of 2
  EXPECT_EQ(row["bytes"], 4 * 64 * 8 * (5 * 4 + 6 * 2));
  EXPECT_EQ(row["multiply_adds"], 7 * 4 * 8 * (4 * 16 * 15 + 4 * 3));  // 4 families of 16 and one of 4
  EXPECT_GE(row["times"]["ours"]["calls"], 3);
  EXPECT_GT(row["times"]["ours"]["median_ms"], 0);
  EXPECT_GT(row["copy_floor_ms"], 0);
  EXPECT_GT(row["flop_floor_ms"], 0);
}

TEST(Bench, CountsUntiedAndCausalPairs) {
  const ProgramRun result = run(
      "bench attention --tokens 64 --heads 1 --dim 8 --dtype bfloat16 --tie none --causal block --peers none --json "
      "2>/dev/null");
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["rows"][0]["bytes"], 4 * 64 * 8 * 2);
  // leaves see those to their left in four families of 16, windows to their left, and themselves
  EXPECT_EQ(json["rows"][0]["multiply_adds"], 2 * 8 * (4 * 120 + 16 * 6 + 64));
}

#endif

}  // namespace
}  // namespace ramify
