#include "io/image.h"

#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "generators/error_message.h"
#include "io/image_encoders.h"

namespace ramify::io {
namespace {

using testing::Bytes;
using testing::encode_jpeg;
using testing::encode_png;
using testing::error_message;
using testing::JpegKind;

constexpr int kWidth = 24;
constexpr int kHeight = 16;

// Smooth, so that JPEG keeps it.
Bytes gradient(int channels) {
  Bytes samples;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      for (int c = 0; c < channels; ++c)
        samples.push_back(static_cast<uint8_t>(c == 0 ? x * 10 : c == 1 ? y * 15 : 90));
    }
  }
  return samples;
}

Image decode(const Bytes& bytes, const ImageLimits& limits = {}) {
  return decode_image(bytes, "a.img", limits);
}

std::string message_of(const Bytes& bytes, const ImageLimits& limits = {}) {
  return error_message<Error>([&] { decode(bytes, limits); });
}

void expect_near(const Image& image, const Bytes& expected, int tolerance) {
  ASSERT_EQ(image.rgb.size(), expected.size());
  EXPECT_EQ(image.width, kWidth);
  EXPECT_EQ(image.height, kHeight);
  int worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(image.rgb[i] - expected[i]));
  EXPECT_LE(worst, tolerance);
}

TEST(Jpeg, ColoursAreKept) {
  expect_near(decode(encode_jpeg(kWidth, kHeight, gradient(3), JpegKind::rgb)), gradient(3), 4);
  expect_near(decode(encode_jpeg(kWidth, kHeight, gradient(3), JpegKind::progressive)), gradient(3), 4);
}

TEST(Jpeg, GreyBecomesThreeEqualChannels) {
  Bytes expected;
  for (const uint8_t value : gradient(1)) expected.insert(expected.end(), 3, value);
  expect_near(decode(encode_jpeg(kWidth, kHeight, gradient(1), JpegKind::grey)), expected, 3);
}

TEST(Jpeg, InksBecomeColours) {
  // libjpeg writes an Adobe mark, so these are inverted inks: 255 is no ink
  Bytes inks;
  Bytes expected;
  for (const uint8_t value : gradient(1)) {
    inks.insert(inks.end(), {value, 200, 100, 204});
    expected.insert(expected.end(), {static_cast<uint8_t>(value * 4 / 5), 160, 80});
  }
  expect_near(decode(encode_jpeg(kWidth, kHeight, inks, JpegKind::cmyk)), expected, 5);
}

TEST(Jpeg, EveryTruncationIsAnError) {
  for (const JpegKind kind : {JpegKind::rgb, JpegKind::progressive}) {
    const Bytes bytes = encode_jpeg(kWidth, kHeight, gradient(3), kind);
    for (size_t length = 2; length < bytes.size(); ++length) {
      const std::string message = message_of(Bytes(bytes.begin(), bytes.begin() + static_cast<long>(length)));
      EXPECT_TRUE(message.starts_with("a.img: is a broken JPEG: ")) << length << ": " << message;
    }
  }
}

TEST(Jpeg, ChangedBytesNeverDoMoreThanThrow) {
  for (const JpegKind kind : {JpegKind::rgb, JpegKind::progressive, JpegKind::cmyk}) {
    const Bytes bytes = encode_jpeg(kWidth, kHeight, gradient(kind == JpegKind::cmyk ? 4 : 3), kind);
    for (size_t i = 2; i < bytes.size(); ++i) {
      for (const uint8_t value : {0x00, 0xFF, 0x55}) {
        Bytes changed = bytes;
        changed[i] ^= value;
        message_of(changed, {.max_pixels = 1 << 20});
      }
    }
  }
}

TEST(Jpeg, SizeIsCheckedBeforeAnythingIsAllocated) {
  Bytes bytes = encode_jpeg(kWidth, kHeight, gradient(3), JpegKind::rgb);
  const Bytes frame = {0xFF, 0xC0, 0x00, 0x11, 0x08};
  const auto sides = std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end()) + 5;
  ASSERT_LT(sides, bytes.end());
  std::copy_n(Bytes{0xFF, 0xDC, 0xFF, 0xDC}.begin(), 4, sides);
  EXPECT_EQ(message_of(bytes), "a.img: the image has 65500 x 65500 pixels; expected at least one and at most 67108864");
}

TEST(Jpeg, ManyPassesOverALargePictureAreRefused) {
  // 24 x 16 pixels with a limit for 24 x 16 x 4 stand for a picture of megapixels
  const Bytes bytes = encode_jpeg(kWidth, kHeight, gradient(3), JpegKind::progressive);
  EXPECT_EQ(message_of(bytes, {.max_scans = 2, .max_scan_pixels = kWidth * kHeight * 4}),
            "a.img: is a broken JPEG: it has too many scans");
  EXPECT_NO_THROW(decode(bytes, {.max_scans = 2}));
  EXPECT_NO_THROW(decode(bytes, {.max_scan_pixels = 1}));
}

TEST(Png, EveryKindBecomesRgb) {
  const Bytes rgb = gradient(3);
  expect_near(decode(encode_png(kWidth, kHeight, rgb, {PNG_COLOR_TYPE_RGB})), rgb, 0);
  expect_near(decode(encode_png(kWidth, kHeight, rgb, {PNG_COLOR_TYPE_RGB, 8, true})), rgb, 0);

  Bytes wide;
  for (const uint8_t value : rgb) wide.insert(wide.end(), {value, value});
  expect_near(decode(encode_png(kWidth, kHeight, wide, {PNG_COLOR_TYPE_RGB, 16})), rgb, 1);

  Bytes grey;
  for (const uint8_t value : gradient(1)) grey.insert(grey.end(), 3, value);
  expect_near(decode(encode_png(kWidth, kHeight, gradient(1), {PNG_COLOR_TYPE_GRAY})), grey, 0);

  const Bytes palette = {1, 2, 3, 250, 100, 0};
  Bytes places(kWidth * kHeight, 1);
  places[0] = 0;
  Bytes colours;
  for (const uint8_t place : places)
    colours.insert(colours.end(), palette.begin() + place * 3, palette.begin() + place * 3 + 3);
  expect_near(decode(encode_png(kWidth, kHeight, places, {PNG_COLOR_TYPE_PALETTE}, palette)), colours, 0);
}

TEST(Png, TransparencyShowsWhite) {
  Bytes samples;
  Bytes expected;
  for (int i = 0; i < kWidth * kHeight; ++i) {
    const bool visible = i % 2 == 0;
    samples.insert(samples.end(), {10, 20, 30, static_cast<uint8_t>(visible ? 255 : 0)});
    expected.insert(expected.end(), {static_cast<uint8_t>(visible ? 10 : 255), static_cast<uint8_t>(visible ? 20 : 255),
                                     static_cast<uint8_t>(visible ? 30 : 255)});
  }
  expect_near(decode(encode_png(kWidth, kHeight, samples, {PNG_COLOR_TYPE_RGB_ALPHA})), expected, 0);
}

TEST(Png, EveryTruncationOfItsDataIsAnError) {
  const Bytes bytes = encode_png(kWidth, kHeight, gradient(3), {PNG_COLOR_TYPE_RGB});
  constexpr size_t kEndChunk = 12;
  for (size_t length = 8; length < bytes.size() - kEndChunk - 4; ++length) {  // 4: the data's own checksum
    const std::string message = message_of(Bytes(bytes.begin(), bytes.begin() + static_cast<long>(length)));
    EXPECT_TRUE(message.starts_with("a.img: is a broken PNG: ")) << length << ": " << message;
  }
}

TEST(Png, ChangedBytesNeverDoMoreThanThrow) {
  for (const bool interlaced : {false, true}) {
    const Bytes bytes = encode_png(kWidth, kHeight, gradient(3), {PNG_COLOR_TYPE_RGB, 8, interlaced});
    for (size_t i = 8; i < bytes.size(); ++i) {
      for (const uint8_t value : {0x01, 0xFF, 0x55}) {
        Bytes changed = bytes;
        changed[i] ^= value;
        message_of(changed, {.max_pixels = 1 << 20});
      }
    }
  }
}

TEST(Png, SizeIsCheckedBeforeAnythingIsAllocated) {
  const Bytes wide(100'000 * 3);
  const Bytes bytes = encode_png(100'000, 1, wide, {PNG_COLOR_TYPE_RGB});
  EXPECT_EQ(message_of(bytes, {.max_pixels = 99'999}),
            "a.img: the image has 100000 x 1 pixels; expected at least one and at most 99999");
  EXPECT_EQ(decode(bytes, {.max_pixels = 100'000}).width, 100'000);
}

TEST(DecodeImage, OtherFormatsAreNamed) {
  for (const auto* text : {"", "G", "GIF89a...", "\x89PNG", "{\"a\": 1}"}) {
    const std::string_view view = text;
    EXPECT_EQ(message_of(Bytes(view.begin(), view.end())), "a.img: is neither JPEG nor PNG; expected one of them");
  }
}

// One row of grey pixels.
Image row(const Bytes& values) {
  Image image = {static_cast<int>(values.size()), 1, {}};
  for (const uint8_t value : values) image.rgb.insert(image.rgb.end(), 3, value);
  return image;
}

Bytes resized_row(const Bytes& values, int width) {
  const Image image = resize(row(values), width, 1);
  Bytes result;
  for (size_t i = 0; i < image.rgb.size(); i += 3) result.push_back(image.rgb[i]);
  return result;
}

TEST(Resize, ShrinkingAveragesTheCoveredArea) {
  EXPECT_EQ(resized_row({10, 20, 30, 50}, 2), (Bytes{15, 40}));
  EXPECT_EQ(resized_row({0, 90, 240}, 2), (Bytes{30, 190}));  // (0 + 90/2) / 1.5, (90/2 + 240) / 1.5
  EXPECT_EQ(resized_row({0, 100, 200}, 1), (Bytes{100}));
}

TEST(Resize, GrowingInterpolatesBetweenCentres) {
  EXPECT_EQ(resized_row({0, 100}, 4), (Bytes{0, 25, 75, 100}));
  EXPECT_EQ(resized_row({7}, 3), (Bytes{7, 7, 7}));
  EXPECT_EQ(resized_row({1, 2, 3}, 3), (Bytes{1, 2, 3}));
}

TEST(Resize, AxesAndChannelsDoNotMix) {
  const Image image = {2, 2, {0, 10, 20, 100, 110, 120, 200, 210, 220, 60, 70, 80}};
  const Image narrow = resize(image, 1, 2);
  EXPECT_EQ(narrow.rgb, (Bytes{50, 60, 70, 130, 140, 150}));
  const Image flat = resize(image, 2, 1);
  EXPECT_EQ(flat.rgb, (Bytes{100, 110, 120, 80, 90, 100}));
}

TEST(Resize, ConstantImagesStayConstant) {
  const Image image = {37, 23, Bytes(37 * 23 * 3, 131)};
  for (const auto& [width, height] : {std::pair(16, 16), std::pair(64, 5), std::pair(1, 1), std::pair(100, 100)}) {
    const Image result = resize(image, width, height);
    EXPECT_EQ(result.rgb, Bytes(static_cast<size_t>(width * height * 3), 131));
  }
}

TEST(Resize, RefusesSidesThatAreNoSides) {
  const Image image = row({1, 2});
  for (const auto& [width, height] : {std::pair(0, 1), std::pair(1, -1), std::pair(70'000, 1)}) {
    EXPECT_THROW(resize(image, width, height), std::invalid_argument);
  }
  EXPECT_THROW(resize(Image(), 1, 1), std::invalid_argument);
}

}  // namespace
}  // namespace ramify::io
