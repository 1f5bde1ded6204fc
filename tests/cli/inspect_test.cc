// `ramify inspect` as a user runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"
#include "generators/temporary_folder.h"

namespace ramify {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;

const std::string kRecords =
    R"({"title": "A red fox. It ran away!", "price": 3.5, "kind": "new", "tags": ["x", "y"], "label": "a"}
{"title": "Some other thing", "price": 5, "kind": "new", "tags": [], "label": "b"}
{"title": "The third", "price": null, "kind": "old", "tags": ["x", "x"], "label": "a"}
{"title": "The last one", "price": 1, "kind": "old", "tags": ["y"], "label": "a"}
)";

bool has(const ProgramRun& run, const std::string& part) {
  return run.output.find(part) != std::string::npos;
}

TEST(Inspect, PrintsSchemaAndStatistics) {
  const TemporaryFolder folder;
  const ProgramRun result = run("inspect " + folder.write("a.jsonl", kRecords) + " --target label");
  EXPECT_EQ(result.exit_code, 0);
  for (const std::string part :
       {"4 records", "title     text", "price     number             3  1 to 5; 1 null",
        "kind      category           4  new, old", "tags      array              4  1 empty",
        "target: label (classification, 2 classes: a, b)", "category (table of ", "number (1 field)",
        "leaves of a record                 4         6        12        12", "children in objects"}) {
    EXPECT_TRUE(has(result, part)) << part << " in\n" << result.output;
  }
}

TEST(Inspect, DrawsARecord) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", kRecords);
  const ProgramRun result = run("inspect " + file + " --target label --record 1");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result, file + R"(:1
object  [12]
├─ title · text > paragraph  [8]
│  ├─ 0 · sentence: A | red | fox | .  [4]
│  └─ 1 · sentence: It | ran | away | !  [4]
├─ price · number: 3.5
├─ kind · category: new
└─ tags · array  [2]
   ├─ 0 · category: x
   └─ 1 · category: y
)")) << result.output;
}

TEST(Inspect, DrawsChainsOfOnlyChildrenAsOneLine) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", R"({"t": "one two. ", "l": [["x"]], "o": {"p": {"q": [1, 2]}}})");
  EXPECT_TRUE(has(run("inspect " + file + " --record 1"), R"(
├─ t · text > paragraph > sentence: one | two | .  [3]
├─ l · array > array > text > paragraph > sentence: x  [1]
└─ o · object > p · object > q · array  [2]
   ├─ 0 · number: 1
   └─ 1 · number: 2
)")) << run("inspect " + file + " --record 1").output;
}

TEST(Inspect, PrintsNotes) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", R"({"x": 1.5, "p": "a.png", "y": "a"}
{"x": "N/A", "p": "b.png", "y": "a"}
{"x": 2.5, "p": "c.png", "y": "a"})");
  const std::string note = "x: 2 numbers, 1 string (" + file + ":2): read as text; --schema can say number";
  const ProgramRun result = run("inspect " + file + " --target y --html " + folder / "page.html");
  EXPECT_TRUE(has(result, "note: " + note)) << result.output;
  EXPECT_TRUE(has(result, "note: p: these look like image files; --schema can say image")) << result.output;
  EXPECT_TRUE(has(result, "1 class: a")) << result.output;
  EXPECT_NE(folder.read("page.html").find("read as text"), std::string::npos);
  EXPECT_EQ(json::parse(run("inspect " + file + " --json").output)["notes"][0], note);
}

TEST(Inspect, CutsWhatIsLong) {
  const TemporaryFolder folder;
  std::string numbers = "[0", words;
  for (int i = 1; i < 30; ++i) numbers += ", " + std::to_string(i), words += "word ";
  const std::string deep = std::string(200, '[') + "1" + std::string(200, ']');
  const std::string file =
      folder.write("a.jsonl", "[" + numbers + "], \"" + words + "\", " + deep + ", [" + deep + ", 2]]\n");
  const ProgramRun result = run("inspect " + file + " --record 1");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result, "│  └─ … 19 more")) << result.output;
  EXPECT_TRUE(has(result, "word | w…  [29]")) << result.output;
  EXPECT_EQ(result.output.find(std::string(200, ' ')), std::string::npos) << "chains should be one line";
}

TEST(Inspect, PrintsJson) {
  const TemporaryFolder folder;
  const ProgramRun result = run("inspect " + folder.write("a.jsonl", kRecords) + " --target label --json --record 2");
  EXPECT_EQ(result.exit_code, 0);
  const json found = json::parse(result.output);
  EXPECT_EQ(found["records"], 4);
  EXPECT_EQ(found["schema"]["target"]["classes"], json({"a", "b"}));
  EXPECT_EQ(found["statistics"]["leaves"]["largest"], 12);
  EXPECT_EQ(found["statistics"]["families"]["objects"]["count"], 4);
  EXPECT_EQ(found["record"]["line"], 2);
  EXPECT_EQ(found["record"]["tree"]["children"][3]["kind"], "empty");
  EXPECT_EQ(found["record"]["tree"]["children"][1]["text"], "5");
}

TEST(Inspect, WritesAPage) {
  const TemporaryFolder folder;
  const ProgramRun result =
      run("inspect " + folder.write("a.jsonl", kRecords) + " --target label --html " + folder / "page.html");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result, folder / "page.html"));
  const std::string page = folder.read("page.html");
  for (const std::string part : {"<html", "Schema", "category", "away", "Target", "classification", "a, b"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

TEST(Inspect, PagesGoIntoPipes) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", kRecords), pipe = folder / "pipe";
  const ProgramRun result = run_shell("mkfifo " + pipe + "; cat " + pipe + " & " RAMIFY_PROGRAM " inspect " + file +
                                      " --html " + pipe + " > /dev/null; wait; test -p " + pipe);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result, "<html")) << result.output;
}

TEST(Inspect, OptionsOfSeveralFieldsLeaveTheDataAlone) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", kRecords);
  for (const std::string fields :
       {"--fields title,price ", "--fields title --fields price ", "--ignore kind,tags,label "}) {
    const ProgramRun result = run("inspect " + fields + file + " 2>&1");
    EXPECT_EQ(result.exit_code, 0) << fields << result.output;
    EXPECT_TRUE(has(result, "title     text") && has(result, "price     number")) << fields << result.output;
    EXPECT_FALSE(has(result, "category  ")) << fields << result.output;
  }
}

TEST(Inspect, ReadsStandardInput) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", kRecords);
  const ProgramRun redirected = run("inspect - --record 2 --target label < " + file);
  EXPECT_EQ(redirected.exit_code, 0);
  EXPECT_TRUE(has(redirected, "4 records") && has(redirected, "standard input:2\nobject")) << redirected.output;
  const ProgramRun piped = run("--version > /dev/null; cat " + file + " | " RAMIFY_PROGRAM " inspect - --record 1");
  EXPECT_EQ(piped.exit_code, 0);
  EXPECT_TRUE(has(piped, "4 records") && has(piped, "standard input:1\nobject")) << piped.output;
}

TEST(Inspect, MeasuresThroughput) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", kRecords);
  const ProgramRun result = run("inspect - --target label --throughput --workers 1 --json < " + file);
  EXPECT_EQ(result.exit_code, 0);
  const json speed = json::parse(result.output)["throughput"];
  EXPECT_EQ(speed["threads"], 1);
  EXPECT_GT(speed["records_per_second_per_core"], 0);
  EXPECT_EQ(speed["records"].get<int64_t>() % 4, 0);
  EXPECT_EQ(speed["bytes"], speed["records"].get<int64_t>() / 4 * (static_cast<int64_t>(kRecords.size()) - 4));
}

TEST(Inspect, TakesWhatIsSaidOfFields) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", kRecords);
  const std::string schema = folder.write("s.json", R"({"fields": {"price": "category", "tags": "set"}})");
  const ProgramRun result = run("inspect " + file + " --ignore kind,label --schema " + schema + " --text-levels token");
  EXPECT_EQ(result.exit_code, 0);
  for (const std::string part :
       {"price     category", "tags      set", "kind      ignore", "title     text               4  token"}) {
    EXPECT_TRUE(has(result, part)) << part << " in\n" << result.output;
  }
  EXPECT_TRUE(has(run("inspect " + file + " --fields title --max-leaves 2"), "3 records are cut off at 2 leaves"));
}

TEST(Inspect, BadRecordsFailOrAreSkipped) {
  const TemporaryFolder folder;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const std::string file =
      folder.write("a.jsonl", kRecords + "{\"label\": \"a\"\n" + deep +
                                  "\n{\"title\": \"\\ud800\", \"label\": \"a\"}\n{\"price\": 1}\n");
  const ProgramRun failed = run("inspect " + file + " --target label 2>&1");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_EQ(failed.output.substr(0, file.size() + 21), "ramify: " + file + ":5: not JSON:");
  const ProgramRun skipped = run("inspect " + file + " --target label --on-bad skip 2>&1");
  EXPECT_EQ(skipped.exit_code, 0);
  for (const std::string part :
       {"4 records, 4 bad ones left out", ":6: nested 100000 levels deep; at most 1000 are read", ":7: not JSON",
        ":8: the target label is missing"}) {
    EXPECT_TRUE(has(skipped, part)) << part << " in\n" << skipped.output;
  }
}

TEST(Inspect, HugeLinesAreMessages) {
  // a line of 300 MB that is never held
  const ProgramRun result =
      run("--version > /dev/null; (head -c 300000000 /dev/zero | tr '\\0' x; echo; echo '{\"a\": 1}') | " RAMIFY_PROGRAM
          " inspect - --on-bad skip 2>&1");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result, "1 record, 1 bad one left out")) << result.output;
  EXPECT_TRUE(has(result, "standard input:1: ")) << result.output;
}

TEST(Inspect, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", kRecords), empty = folder.write("empty.jsonl", "");
  const auto fails = [&](const std::string& arguments, int code, const std::string& part) {
    const ProgramRun result = run("inspect " + arguments + " 2>&1");
    EXPECT_EQ(result.exit_code, code) << arguments << "\n" << result.output;
    EXPECT_TRUE(has(result, part)) << part << " in\n" << result.output;
  };
  fails(empty, 1, "ramify: " + empty + ": no records");
  fails(folder / "missing.jsonl", 1, folder / "missing.jsonl");
  fails(folder.path(), 1, folder.path());
  fails(folder.write("broken.zst", "\x28\xB5\x2F\xFDgarbage"), 1, "broken.zst");
  fails(file + " --fields colour", 1, "no record has the field colour, which --fields names");
  fails(file + " --target colour", 1, file + ":1: the target colour is missing");
  fails(file + " --schema " + empty, 1, empty);
  fails(file + " --images " + folder / "no.tar", 1, "no.tar");
  fails(file + " --record 9", 2, "inspect: record 9 is asked for, there are 4");
  fails(file + " --record 0", 2, "--record: 0 is given; expected a whole number from 1\n");
  fails(folder.write("one.jsonl", "{\"a\": 1}") + " --record 2", 2, "record 2 is asked for, there is 1");
  fails(folder.write("array.jsonl", "[\n  {\"a\": 1}\n]\n"), 1, "one record a line is expected: jq -c '.[]'");
  fails(file + " --target lable", 1, "a.jsonl:1: the target lable is missing; did you mean label?");
  fails(file + " --fields title --ignore title", 2, "the field title is named by --fields and by --ignore");
  fails(file + " --ignore title,price,kind,tags --target label", 1, "nothing is left to learn from");
  fails(file + " --text-levels word", 2, "'word' is no level of texts; expected one of paragraph, sentence, token");
  fails(file + " --on-bad maybe", 2, "--on-bad");
  fails(file + " --task guess", 2, "'guess' is no task; expected one of classification, regression, multilabel, nodes");
  fails(file + " --target a..b", 2, "has an empty key");
  fails("", 2, "DATA");
  fails(file + " --html " + folder / "no/page.html", 1, "no/page.html: cannot create: No such file or directory\n");
}

TEST(Inspect, HelpHasExamples) {
  const ProgramRun result = run("inspect --help");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result, "ramify inspect reviews.jsonl --target label"));
  EXPECT_TRUE(has(result, R"({"fields": {"picture": "image")"));
  EXPECT_TRUE(
      has(result, "object, array, set, graph, text, text-leaf, category, boolean, number, image, vector, null, ignore"))
      << result.output;
}

}  // namespace
}  // namespace ramify
