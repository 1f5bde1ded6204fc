// Pictures as rows of 8-bit red, green, blue. JPEG and PNG, told by their content; grey, palette, alpha (over white),
// CMYK and 16-bit ones are converted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/error.h"

namespace ramify::io {

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

struct ImageLimits {
  int64_t max_pixels = int64_t{1} << 26;  // 200 MB as RGB
  // A progressive JPEG may ask for hundreds of passes over the picture; ordinary ones have about ten. Refused is one of
  // more than `max_scans` passes over more than `max_scan_pixels` pixels in all.
  int max_scans = 16;
  int64_t max_scan_pixels = int64_t{1} << 28;
};

// `name` is for messages. Error for what is broken, truncated, too large or of another format.
Image decode_image(std::span<const uint8_t> bytes, const std::string& name, const ImageLimits& limits = {});

// Each axis by itself: the average over the covered area where it shrinks, linear interpolation where it grows.
Image resize(const Image& image, int width, int height);

}  // namespace ramify::io
