// Pictures as files, for the tests to read and to break.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/image.h"

namespace ramify::testing {

using Bytes = std::vector<uint8_t>;

enum class JpegKind { rgb, grey, cmyk, progressive };

// `samples`: [height, width, 1, 3 or 4]. Quality 100, no subsampling.
Bytes encode_jpeg(int width, int height, const Bytes& samples, JpegKind kind);

struct PngKind {
  int colour_type;  // PNG_COLOR_TYPE_*
  int bit_depth = 8;
  bool interlaced = false;
};

// `samples` as the file has them; palette images have the colours of `palette`.
Bytes encode_png(int width, int height, const Bytes& samples, PngKind kind, const Bytes& palette = {});

}  // namespace ramify::testing
