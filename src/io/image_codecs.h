// The decoders behind decode_image, one a file.
#pragma once

#include "io/image.h"

namespace ramify::io {

// Error("NAME: ...") unless both sides are positive and the picture is within the limits.
void check_image_size(const std::string& name, int64_t width, int64_t height, const ImageLimits& limits);

Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, const ImageLimits& limits);
Image decode_png(std::span<const uint8_t> bytes, const std::string& name, const ImageLimits& limits);

}  // namespace ramify::io
