#include "io/folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/atomic_file.h"
#include "io/sha256.h"

namespace ramify::io {
namespace {

namespace fs = std::filesystem;
using testing::error_message;
using testing::TemporaryFolder;

void write_generation(const std::string& folder, const std::string& generation, FolderSwap swap) {
  FolderWriter writer(folder);
  writer.write("a", generation);
  writer.write("b", generation + std::string(50'000, 'b'));
  writer.commit(swap);
}

std::string read_generation(const std::string& folder) {
  const std::string path = open_folder(folder);
  const std::string a = read_file(path + "/a");
  EXPECT_EQ(read_file(path + "/b"), a + std::string(50'000, 'b'));
  return a;
}

class Folder : public ::testing::TestWithParam<FolderSwap> {
 protected:
  void write(const std::string& generation) const { write_generation(path, generation, GetParam()); }

  const TemporaryFolder parent;
  const std::string path = parent / "checkpoint";
};

TEST_P(Folder, CommitReplacesTheFolderAndLeavesNothingElse) {
  write("1");
  EXPECT_EQ(read_generation(path), "1");
  write("2");
  EXPECT_EQ(open_folder(path), path);
  EXPECT_EQ(read_generation(path), "2");
  EXPECT_EQ(parent.num_entries(), 1u);
}

TEST_P(Folder, OldFolderStandsInForABrokenOne) {
  write("1");
  fs::copy(path, path + ".old");
  for (const auto& breakage : {"/a", "/manifest.json", ""}) {
    fs::remove_all(path + breakage);
    EXPECT_EQ(open_folder(path), path + ".old");
    write("2");
    EXPECT_EQ(read_generation(path), "2");
    EXPECT_EQ(parent.num_entries(), 1u);
    fs::copy(path, path + ".old");
  }
}

INSTANTIATE_TEST_SUITE_P(, Folder, ::testing::Values(FolderSwap::exchange, FolderSwap::renames),
                         [](const auto& swap) { return swap.param == FolderSwap::exchange ? "Exchange" : "Renames"; });

TEST(FolderWriter, WithoutCommitNothingRemains) {
  const TemporaryFolder parent;
  {
    FolderWriter writer(parent / "model/");
    writer.write("a", "text");
  }
  EXPECT_EQ(parent.num_entries(), 0u);
}

TEST(FolderWriter, CommittedWriterDoesNotDisturbTheNextOne) {
  const TemporaryFolder parent;
  auto first = std::make_unique<FolderWriter>(parent / "model");
  first->commit();
  FolderWriter second(parent / "model");
  second.write("a", "text");
  first.reset();
  second.commit();
  EXPECT_EQ(parent.read("model/a"), "text");
}

TEST(FolderWriter, ManifestHasSizeAndDigestOfEachFile) {
  const TemporaryFolder parent;
  FolderWriter writer(parent / "model");
  parent.write(fs::relative(writer.path("a"), parent.path()).string(), "abc");
  writer.commit();
  const auto manifest = nlohmann::json::parse(parent.read("model/manifest.json"));
  EXPECT_EQ(manifest, (nlohmann::json{{"files", {{"a", {{"bytes", 3}, {"sha256", sha256_hex("abc")}}}}}}));
}

TEST(FolderWriter, RefusesNamesThatAreNoFileNames) {
  const TemporaryFolder parent;
  FolderWriter writer(parent / "model");
  for (const auto* name : {"", ".", "..", "a/b", "../a", "manifest.json"}) {
    EXPECT_NE(error_message<Error>([&] { writer.write(name, "x"); }).find("expected a plain name"), std::string::npos);
  }
}

TEST(OpenFolder, NamesTheFileThatIsWrong) {
  const TemporaryFolder parent;
  const auto broken = [&](const std::string& file, const std::string& bytes) {
    write_generation(parent / "model", "1", FolderSwap::exchange);
    parent.write("model/" + file, bytes);
    return error_message<Error>([&] { open_folder(parent / "model"); });
  };
  const std::string a = parent / "model/a";
  const std::string manifest = parent / "model/manifest.json";
  EXPECT_EQ(broken("a", "2"), a + ": its contents have changed; expected the SHA-256 of the manifest");
  EXPECT_EQ(broken("a", ""), a + ": has 0 bytes; expected 1 by the manifest");
  const std::string no_manifest = manifest + ": is no manifest; expected the size and SHA-256 of each file";
  EXPECT_EQ(broken("manifest.json", "{\"files\": {"), no_manifest);
  EXPECT_EQ(broken("manifest.json", "[]"), no_manifest);
  EXPECT_EQ(broken("manifest.json", "{\"files\": {\"a\": 1}}"), no_manifest);
  EXPECT_EQ(broken("manifest.json", std::string(1'000'000, '[')), no_manifest);
  EXPECT_EQ(broken("manifest.json", R"({"files": {"../a": {"bytes": 1, "sha256": ""}}})"),
            manifest + ": names \"../a\"; expected files of this folder");

  write_generation(parent / "model", "1", FolderSwap::exchange);
  fs::remove(a);
  EXPECT_EQ(error_message<Error>([&] { open_folder(parent / "model"); }),
            a + ": cannot open: No such file or directory");
  EXPECT_EQ(error_message<Error>([&] { open_folder(parent / "none"); }),
            parent / "none/manifest.json" + ": cannot open: No such file or directory");
}

}  // namespace
}  // namespace ramify::io
