// Images as patches: where they come from, their sizes, and broken ones.
#include <gtest/gtest.h>
#include <png.h>

#include <cstdlib>
#include <string>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/image_encoders.h"
#include "signal/batch_text.h"
#include "signal/image_patches.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::Bytes;
using testing::compile;
using testing::error_message;
using testing::schema_of;
using testing::SharedSchema;
using testing::TemporaryFolder;
using testing::text_of;

// Grey pixels of 10 * row + column.
std::string numbered_png(int width, int height) {
  Bytes samples;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) samples.push_back(static_cast<uint8_t>(10 * y + x));
  }
  const Bytes file = testing::encode_png(width, height, samples, {PNG_COLOR_TYPE_GRAY});
  return {file.begin(), file.end()};
}

const SchemaOptions kSmallPatches = {.declared = {{"i", {Kind::image}}}, .image = {.patch = 2, .longest_side = 8}};

TEST(Images, AreCutIntoPatchesRowByRow) {
  const TemporaryFolder folder;
  folder.write("a.png", numbered_png(4, 4));
  const SharedSchema schema = schema_of({R"({"i": "a.png"})"}, kSmallPatches);
  const Signal signal = compile(schema, R"({"i": "a.png"})", {}, folder.path());
  EXPECT_EQ(text_of(signal, schema), "(i=(@0,0:%6 @0,1:%8 @1,0:%26 @1,1:%28))");  // means of 2 x 2 pixels, rounded
  // within a patch: rows, columns, colours
  EXPECT_EQ(std::vector<uint8_t>(signal.patches.begin() + 12, signal.patches.begin() + 24),
            (std::vector<uint8_t>{2, 2, 2, 3, 3, 3, 12, 12, 12, 13, 13, 13}));
}

TEST(Images, MayBeGivenAsObjects) {
  const TemporaryFolder folder;
  folder.write("a.png", numbered_png(2, 2));
  const SharedSchema schema = schema_of({R"([{"$image": "a.png"}, "other text"])"}, {.image = {.patch = 2}});
  EXPECT_EQ(text_of(compile(schema, R"([{"$image": "a.png"}, "other text"])", {}, folder.path()), schema),
            "((@0,0:%6) (((other text))))");
}

TEST(Images, ShrinkToTheLongestSideAndToWholePatches) {
  const auto grid = [](int width, int height, const ImageOptions& options) {
    io::Image image = {width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height), 7)};
    const Patches patches = cut_patches(image, options);
    EXPECT_EQ(patches.bytes,
              std::vector<uint8_t>(
                  static_cast<size_t>(patches.rows * patches.columns * 3 * options.patch * options.patch), 7));
    return std::pair(patches.rows, patches.columns);
  };
  EXPECT_EQ(grid(64, 80, {}), std::pair(int64_t{5}, int64_t{4}));
  EXPECT_EQ(grid(448, 224, {}), std::pair(int64_t{7}, int64_t{14}));
  EXPECT_EQ(grid(100, 100, {}), std::pair(int64_t{6}, int64_t{6}));  // 6.25
  EXPECT_EQ(grid(1, 1000, {}), std::pair(int64_t{14}, int64_t{1}));
  EXPECT_EQ(grid(3, 3, {.patch = 4, .width = 8, .height = 12}), std::pair(int64_t{3}, int64_t{2}));
}

TEST(Images, ComeOutOfATar) {
  const TemporaryFolder folder;
  folder.write("a.png", numbered_png(2, 2));
  const std::string tar = folder / "images.tar";
  ASSERT_EQ(std::system(("tar -C " + folder.path() + " -cf " + tar + " a.png").c_str()), 0);
  const SharedSchema schema = schema_of({R"({"i": "a.png"})"}, kSmallPatches);
  EXPECT_EQ(text_of(compile(schema, R"({"i": "a.png"})", {.images = tar}, "/nowhere"), schema), "(i=(@0,0:%6))");
  const std::string missing = error_message<BadRecord>([&] { compile(schema, R"({"i": "b.png"})", {.images = tar}); });
  EXPECT_NE(missing.find(tar), std::string::npos) << missing;
  EXPECT_NE(missing.find("b.png"), std::string::npos) << missing;
}

TEST(Images, BadOnesAreBadRecords) {
  const TemporaryFolder folder;
  folder.write("text.png", "this is no image");
  folder.write("cut.png", numbered_png(9, 9).substr(0, 60));
  const SharedSchema schema = schema_of({R"({"i": "a.png"})"}, kSmallPatches);
  for (const std::string name : {"missing.png", "text.png", "cut.png", "", "."}) {
    const std::string record = R"({"i": ")" + name + R"("})";
    const std::string message = error_message<BadRecord>([&] { compile(schema, record, {}, folder.path()); });
    EXPECT_NE(message.find(folder / name), std::string::npos) << message;
  }
}

TEST(Images, ABatchHasEachCellOnce) {
  const TemporaryFolder folder;
  folder.write("a.png", numbered_png(4, 4));
  folder.write("b.png", numbered_png(2, 6));
  const std::vector<std::string> records = {R"({"i": "a.png", "n": [1, 2]})", R"({"i": "b.png", "n": [3]})"};
  const SharedSchema schema = schema_of(records, kSmallPatches);
  std::vector<Signal> signals;
  for (const std::string& record : records) signals.push_back(compile(schema, record, {}, folder.path()));
  const auto both = testing::pointers(signals);
  const Batch batch = collate(both, *schema);
  EXPECT_EQ(batch.positions.cells, (std::vector<float>{0, 0, 0, 1, 1, 0, 1, 1, 2, 0}));
  EXPECT_EQ(batch.leaves.back().width, 12);
  EXPECT_FLOAT_EQ(batch.leaves.back().value[12 * 6 + 11],
                  51 / 255.F);  // the last patch of b.png ends in row 5, column 1
  for (size_t t = 0; t < 2; ++t) {
    const Batch alone = collate(std::span(both).subspan(t, 1), *schema);
    EXPECT_EQ(testing::BatchText(batch).tree(static_cast<int64_t>(t)), testing::BatchText(alone).tree(0));
  }
}

TEST(Images, AreCutOffLikeEverythingElse) {
  const TemporaryFolder folder;
  folder.write("a.png", numbered_png(4, 4));
  SchemaOptions options = kSmallPatches;
  options.max_leaves = 3;
  const SharedSchema schema = schema_of({R"({"i": "a.png"})"}, options);
  const Signal signal = compile(schema, R"({"i": "a.png"})", {}, folder.path());
  EXPECT_TRUE(signal.truncated);
  EXPECT_EQ(signal.num_leaves(), 3);
  EXPECT_EQ(signal.patches.size(), 3 * 12);
}

}  // namespace
}  // namespace ramify::signal
