// The program as a user runs it: output, errors and exit codes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"
#include "generators/temporary_folder.h"
#include "ramify/version.h"

namespace ramify {
namespace {

TEST(CommandLine, PrintsItsVersion) {
  const ProgramRun result = run("--version");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "ramify " RAMIFY_VERSION "\n");
}

TEST(CommandLine, HelpHasAnExample) {
  const std::pair<const char*, const char*> examples[] = {{"--help", "ramify train"},
                                                          {"flops --help", "ramify flops --tokens"}};
  for (const auto& [command, example] : examples) {
    const ProgramRun result = run(command);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.output.find(example), std::string::npos) << result.output;
  }
}

TEST(CommandLine, BadUsageExitsWithTwo) {
  for (const std::string arguments : {"", "nonsense", "flops", "flops --tokens", "flops --tokens many",
                                      "flops --tokens 12 --colour", "flops --tokens 1.5"}) {
    const ProgramRun result = run(arguments + " 2>&1 1>/dev/null");
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_FALSE(result.output.empty()) << arguments;
  }
}

TEST(CommandLine, NamesThatAreMisspeltAreRecognised) {
  const auto output = [](const std::string& arguments) {
    const ProgramRun result = run(arguments + " 2>&1");
    EXPECT_EQ(result.exit_code, 2) << arguments;
    return result.output;
  };
  EXPECT_EQ(output("trian a.jsonl"), "ramify: there is no command trian; did you mean train?\n");
  EXPECT_EQ(output("bench atention"), "ramify: there is no command atention; did you mean attention?\n");
  EXPECT_EQ(output("nonsense"),
            "ramify: there is no command nonsense; expected train, train-lm, eval, predict, encode, compare, "
            "generate, perplexity, bench, flops, "
            "inspect, report\n");
  EXPECT_EQ(output("flops --tokens 12 --hieararchy=2"),
            "ramify: there is no option --hieararchy; did you mean --hierarchy?\n");
  EXPECT_EQ(output("flops --tokens 12 --colour"), "ramify: there is no option --colour\n");
  EXPECT_EQ(output("inspect a.jsonl --tragte label"), "ramify: there is no option --tragte; did you mean --target?\n");
}

TEST(CommandLine, OutputThatCannotBeWrittenIsAnError) {
  if (run_shell("test -c /dev/full").exit_code != 0) GTEST_SKIP() << "there is no /dev/full";
  for (const std::string arguments : {"flops --tokens 12", "--version", "flops --help"}) {
    const ProgramRun result = run(arguments + " 2>&1 > /dev/full");
    EXPECT_EQ(result.exit_code, 1) << arguments;
    EXPECT_TRUE(result.output.starts_with("ramify: standard output: cannot write")) << arguments << result.output;
  }
  EXPECT_EQ(run("flops --tokens 12 2>&1 > /dev/full").output,
            "ramify: standard output: cannot write: No space left on device\n");
}

TEST(CommandLine, StandardErrorThatCannotBeWrittenChangesNothing) {
  if (run_shell("test -c /dev/full").exit_code != 0) GTEST_SKIP() << "there is no /dev/full";
  const testing::TemporaryFolder folder;
  const std::string records = folder.write("a.jsonl", "{\"x\": 1}\n{broken\n");
  const std::string commands[] = {"trian", "flops --tokens 0", "flops --tokens 12 --colour", "report " + folder.path(),
                                  "inspect --on-bad skip " + records};
  for (const std::string& arguments : commands) {
    const ProgramRun wanted = run(arguments + " 2>/dev/null");
    for (const std::string error : {" 2>/dev/full", " 2>&-"}) {
      const ProgramRun result = run(arguments + error);
      EXPECT_EQ(result.exit_code, wanted.exit_code) << arguments << error;
      EXPECT_EQ(result.output, wanted.output) << arguments << error;
    }
  }
}

TEST(CommandLine, BadValuesExitWithTwoAndSayWhatWasExpected) {
  const ProgramRun tokens = run("flops --tokens 0 2>&1");
  EXPECT_EQ(tokens.exit_code, 2);
  EXPECT_EQ(tokens.output, "ramify: flops: tokens is 0; expected at least 1\n");
  const ProgramRun hierarchy = run("flops --tokens 12 --hierarchy 2,x 2>&1");
  EXPECT_EQ(hierarchy.exit_code, 2);
  EXPECT_EQ(
      hierarchy.output,
      "ramify: hierarchy: '2,x' is not a list of sizes; expected sizes from the bottom up, such as 2,4,8,16 or 16*\n");
}

TEST(Flops, PrintsATable) {
  const ProgramRun result = run("flops --tokens 264 --hierarchy 2,4,8,16 --width 768 --heads 12");
  EXPECT_EQ(result.exit_code, 0);
  for (const std::string part :
       {"264 tokens, width 768, 12 heads", "FLOPs, paper's convention", "214.94 M", "4.3238 M"}) {
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  }
}

TEST(Flops, PrintsJson) {
  const ProgramRun result = run("flops --tokens 12 --hierarchy '2*' --width 16 --heads 2 --json");
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["tokens"], 12);
  EXPECT_EQ(json["width"], 16);
  EXPECT_EQ(json["heads"], 2);
  EXPECT_EQ(json["hierarchy"], "2*");
  EXPECT_EQ(json["flat"]["paper_flops"], 12 * 12 * 66);
  EXPECT_EQ(json["flat"]["score_pairs"], 144);
  EXPECT_EQ(json["hierarchical"]["score_pairs"], 2 * 6 + 2 * 3 + 2 + 2);  // families of 2: 6, 3, 1 (and one of 1), 1
  EXPECT_LT(json["hierarchical"]["multiply_adds"], json["flat"]["multiply_adds"]);
}

}  // namespace
}  // namespace ramify
