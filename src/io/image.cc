#include "io/image.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "io/image_codecs.h"

namespace ramify::io {
namespace {

// How the pixels of one axis are made of those before: output i is the sum of weight[j] * input[first + j].
struct Blend {
  int first;
  std::vector<float> weights;
};

std::vector<Blend> blends(int from, int to) {
  std::vector<Blend> all;
  all.reserve(static_cast<size_t>(to));
  const double step = static_cast<double>(from) / to;
  for (int i = 0; i < to; ++i) {
    Blend blend;
    if (from > to) {  // each input by the share of it that the output covers
      const double begin = i * step;
      const double end = std::min<double>(begin + step, from);
      blend.first = static_cast<int>(begin);
      for (int j = blend.first; j < end; ++j) {
        const double covered = std::min<double>(j + 1, end) - std::max<double>(j, begin);
        blend.weights.push_back(static_cast<float>(covered / (end - begin)));
      }
    } else {  // between the centres of two inputs
      const double centre = std::clamp((i + 0.5) * step - 0.5, 0.0, from - 1.0);
      blend.first = std::min(static_cast<int>(centre), std::max(from - 2, 0));
      const double share = centre - blend.first;
      blend.weights = {static_cast<float>(1 - share)};
      if (from > 1) blend.weights.push_back(static_cast<float>(share));
    }
    all.push_back(std::move(blend));
  }
  return all;
}

}  // namespace

void check_image_size(const std::string& name, int64_t width, int64_t height, const ImageLimits& limits) {
  if (width <= 0 || height <= 0 || width > limits.max_pixels / height) {
    throw Error(name + ": the image has " + std::to_string(width) + " x " + std::to_string(height) +
                " pixels; expected at least one and at most " + std::to_string(limits.max_pixels));
  }
}

Image decode_image(std::span<const uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 8));
  if (head.starts_with("\xFF\xD8")) return decode_jpeg(bytes, name, limits);
  if (head == "\x89PNG\r\n\x1A\n") return decode_png(bytes, name, limits);
  throw Error(name + ": is neither JPEG nor PNG; expected one of them");
}

Image resize(const Image& image, int width, int height) {
  constexpr int kMaxSide = 1 << 16;
  if (image.width <= 0 || image.height <= 0 || width <= 0 || height <= 0 || width > kMaxSide || height > kMaxSide) {
    throw std::invalid_argument("resize: from " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                                " to " + std::to_string(width) + " x " + std::to_string(height) +
                                "; expected sides of 1 to " + std::to_string(kMaxSide));
  }
  const auto columns = blends(image.width, width);
  const auto rows = blends(image.height, height);
  const size_t from_stride = static_cast<size_t>(image.width) * 3;
  const size_t stride = static_cast<size_t>(width) * 3;
  Image result = {width, height, std::vector<uint8_t>(stride * static_cast<size_t>(height))};
  std::vector<float> blended(from_stride);  // one row of the result, as wide as before
  for (int y = 0; y < height; ++y) {
    const Blend& row = rows[static_cast<size_t>(y)];
    std::fill(blended.begin(), blended.end(), 0.0f);
    for (size_t j = 0; j < row.weights.size(); ++j) {
      const uint8_t* from = image.rgb.data() + (static_cast<size_t>(row.first) + j) * from_stride;
      for (size_t x = 0; x < from_stride; ++x) blended[x] += row.weights[j] * static_cast<float>(from[x]);
    }
    uint8_t* to = result.rgb.data() + static_cast<size_t>(y) * stride;
    for (const Blend& column : columns) {
      for (size_t c = 0; c < 3; ++c) {
        float value = 0;
        const float* from = blended.data() + static_cast<size_t>(column.first) * 3 + c;
        for (size_t j = 0; j < column.weights.size(); ++j) value += column.weights[j] * from[3 * j];
        *to++ = static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L));
      }
    }
  }
  return result;
}

}  // namespace ramify::io
