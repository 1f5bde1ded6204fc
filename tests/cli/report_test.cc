// `ramify report`: where the page goes, what is printed, exit codes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/program.h"

namespace ramify {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test, with a copy of the runs.
class Report : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "report-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::copy(RAMIFY_TEST_DATA "/runs", folder_ / "runs", fs::copy_options::recursive);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // In that folder; errors go to the output, too.
  ProgramRun report(const std::string& arguments, const std::string& environment = "") const {
    return run_shell("cd '" + folder_.string() + "' && " + environment + " " RAMIFY_PROGRAM " report " + arguments +
                     " 2>&1");
  }

  std::string text(const std::string& file) const {
    std::ostringstream content;
    content << std::ifstream(folder_ / file).rdbuf();
    return content.str();
  }

  void write(const std::string& file, const std::string& content) const { std::ofstream(folder_ / file) << content; }

  fs::path folder_;
};

TEST_F(Report, OfOneRunGoesIntoItsFolder) {
  const ProgramRun result = report("runs/flat/");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "runs/flat/report.html\n");
  EXPECT_NE(text("runs/flat/report.html").find("<h1><bdi>flat</bdi></h1>"), std::string::npos);
}

TEST_F(Report, OfSeveralRunsGoesWhereOneStands) {
  EXPECT_EQ(report("runs/hierarchical runs/flat runs/none").output, "report.html\n");
  EXPECT_NE(text("report.html").find("3 runs compared"), std::string::npos);
}

TEST_F(Report, GoesWhereItIsAskedTo) {
  EXPECT_EQ(report("runs/flat --out page.html").output, "page.html\n");
  EXPECT_EQ(report("--out='a page.html' runs/flat runs/none").output, "a page.html\n");
  EXPECT_FALSE(text("page.html").empty());
  EXPECT_FALSE(text("a page.html").empty());
}

TEST_F(Report, OfAStoppedRunNotesWhatIsMissing) {
  const ProgramRun result = report("runs/stopped");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("ramify: report: stopped: Not evaluated yet (evaluation.json)"), std::string::npos);
  EXPECT_TRUE(result.output.ends_with("runs/stopped/report.html\n"));
}

TEST_F(Report, ErrorsNameFileAndField) {
  EXPECT_EQ(report("nowhere").output, "ramify: nowhere: expected a folder that `ramify train --out` wrote\n");
  write("runs/flat/evaluation.json", R"({"valid": {"records": "many"}})");
  const ProgramRun broken = report("runs/none runs/flat");
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_EQ(broken.output, "ramify: runs/flat/evaluation.json: valid.records: expected a count, found string\n");
  EXPECT_FALSE(fs::exists(folder_ / "report.html"));
  fs::remove(folder_ / "runs/none/config.json");
  EXPECT_EQ(report("runs/none").output,
            "ramify: runs/none/config.json: missing; expected a folder that `ramify train --out` wrote\n");
}

TEST_F(Report, APlaceThatCannotBeWrittenIsAnError) {
  const ProgramRun result = report("runs/flat --out nowhere/page.html");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("nowhere/page.html"), std::string::npos) << result.output;
}

TEST_F(Report, OpenHandsThePageToTheDesktop) {
  fs::create_directory(folder_ / "bin");
  write("bin/xdg-open", "#!/bin/sh\nprintf '%s' \"$1\" > '" + (folder_ / "opened").string() + "'\n");
  fs::permissions(folder_ / "bin/xdg-open", fs::perms::owner_all);
  const ProgramRun result = report("runs/flat --out 'a $(page).html' --open", "PATH=\"$PWD/bin:$PATH\"");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(text("opened"), (fs::canonical(folder_) / "a $(page).html").string());
  write("bin/xdg-open", "#!/bin/sh\nexit 3\n");
  const ProgramRun failed = report("runs/flat --out page.html --open", "PATH=\"$PWD/bin:$PATH\"");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_NE(failed.output.find("xdg-open failed; the page is /"), std::string::npos) << failed.output;
  EXPECT_NE(report("runs/flat --out page.html --open", "PATH=/nowhere").output.find("xdg-open cannot be run"),
            std::string::npos);
}

TEST_F(Report, UsageAndHelp) {
  EXPECT_EQ(report("").exit_code, 2);
  EXPECT_EQ(report("runs/flat --colour").exit_code, 2);
  const ProgramRun help = report("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("Example:\n  ramify report"), std::string::npos);
}

}  // namespace
}  // namespace ramify
