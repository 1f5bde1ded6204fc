#include "io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace ramify::io {
namespace {

using nlohmann::json;

struct Dtype {
  std::string_view name;
  int64_t bytes;
};
constexpr Dtype kDtypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
                             {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
                             {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8},     {"C64", 8}};

// Takes the header as it is parsed. Only what the format allows is accepted at each place, so that nesting is bounded
// and nothing is stored that is not a tensor:
//   {"__metadata__": {key: string}, name: {"dtype": string, "shape": [n...], "data_offsets": [begin, end]}}
class HeaderHandler : public json::json_sax_t {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}

  std::vector<TensorInfo> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;

  bool start_object(size_t) override {
    switch (place_) {
      case Place::outside:
        place_ = Place::header;
        return true;
      case Place::metadata_value:
        place_ = Place::metadata;
        return true;
      case Place::tensor_value:
        place_ = Place::tensor;
        return true;
      default:
        unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    if (place_ == Place::header) {
      begin_entry(name);
    } else if (place_ == Place::metadata) {
      metadata.emplace_back(name, "");
      place_ = Place::metadata_string;
    } else {
      begin_field(name);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (!has_dtype_ || !has_shape_ || !has_offsets_) fail(printable(name_) + " lacks dtype, shape or data_offsets");
      place_ = Place::header;
    } else if (place_ == Place::metadata) {
      place_ = Place::header;
    } else {
      place_ = Place::outside;
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata_string) {
      metadata.back().second = value;
      place_ = Place::metadata;
    } else if (place_ == Place::dtype) {
      tensors.back().dtype = value;
      place_ = Place::tensor;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::shape && place_ != Place::offsets) unexpected("a list");
    place_ = place_ == Place::shape ? Place::shape_items : Place::offset_items;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::shape_items && place_ != Place::offset_items) unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail(printable(name_) + " has a number of more than 63 bits");
    }
    if (place_ == Place::shape_items) {
      tensors.back().shape.push_back(static_cast<int64_t>(value));
    } else {
      if (num_offsets_ == 2) fail(printable(name_) + " has more than two data_offsets");
      (num_offsets_ == 0 ? tensors.back().offset : tensors.back().size) = static_cast<int64_t>(value);
      ++num_offsets_;
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offset_items && num_offsets_ != 2) fail(printable(name_) + " has not two data_offsets");
    place_ = Place::tensor;
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(int64_t) override { unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { unexpected("a fraction or a huge number"); }
  bool binary(json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    throw Error(path_ + ": the header is not valid JSON at byte " + std::to_string(position) + " of it");
  }

 private:
  enum class Place {
    outside,
    header,
    metadata_value,
    metadata,
    metadata_string,
    tensor_value,
    tensor,
    dtype,
    shape,
    shape_items,
    offsets,
    offset_items
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(path_ + ": tensor " + what + "; expected a safetensors header");
  }
  [[noreturn]] void unexpected(const std::string& found) const {
    throw Error(path_ + ": the header has " + found + " out of place" +
                (name_.empty() ? "" : " (in " + printable(name_) + ")") + "; expected a safetensors header");
  }

  void begin_entry(const std::string& name) {
    name_ = name;
    if (name == "__metadata__") {
      if (has_metadata_) throw Error(path_ + ": the header has two __metadata__; expected at most one");
      has_metadata_ = true;
      place_ = Place::metadata_value;
      return;
    }
    tensors.push_back({name, "", {}, 0, 0});
    has_dtype_ = has_shape_ = has_offsets_ = false;
    num_offsets_ = 0;
    place_ = Place::tensor_value;
  }

  void begin_field(const std::string& name) {
    const auto begin = [&](bool& seen, Place place) {
      if (seen) fail(printable(name_) + " has two " + name);
      seen = true;
      place_ = place;
    };
    if (name == "dtype") return begin(has_dtype_, Place::dtype);
    if (name == "shape") return begin(has_shape_, Place::shape);
    if (name == "data_offsets") return begin(has_offsets_, Place::offsets);
    fail(printable(name_) + " has a field " + printable(name));
  }

  const std::string& path_;
  Place place_ = Place::outside;
  std::string name_;  // of the entry that is being read
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int num_offsets_ = 0;
};

// Until here `offset` and `size` are the two data_offsets, begin and end.
void check_tensor(const std::string& path, TensorInfo& tensor) {
  const auto fail = [&](const std::string& what) { throw Error(path + ": tensor " + printable(tensor.name) + what); };
  if (dtype_bytes(tensor.dtype) == 0) {
    fail(" has dtype " + printable(tensor.dtype) +
         "; expected BOOL, U8 to U64, I8 to I64, F8_*, F16, BF16, F32, F64 or C64");
  }
  const int64_t bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (bytes < 0) fail(" has a shape of more than 2^63 bytes");
  if (tensor.size < tensor.offset) fail(" ends before it begins");
  tensor.size -= tensor.offset;
  if (tensor.size != bytes) {
    fail(" has " + std::to_string(tensor.size) + " bytes; expected " + std::to_string(bytes) +
         " by its shape and dtype");
  }
}

void check_coverage(const std::string& path, std::vector<TensorInfo>& tensors, int64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
  });
  int64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != at) {
      throw Error(path + ": tensor " + printable(tensor.name) + " begins at byte " + std::to_string(tensor.offset) +
                  " of the data; expected " + std::to_string(at) + (tensor.offset < at ? " (overlap)" : " (gap)"));
    }
    if (tensor.size > data_bytes - at) {
      throw Error(path + ": tensor " + printable(tensor.name) + " goes beyond the end of the file");
    }
    at += tensor.size;
  }
  if (at != data_bytes) {
    throw Error(path + ": has " + std::to_string(data_bytes - at) + " bytes after the last tensor; expected none");
  }
}

}  // namespace

int64_t dtype_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

int64_t tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = dtype_bytes(dtype);
  if (bytes == 0) return -1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

SafetensorsHeader parse_header(const std::string& path, std::string_view text, int64_t data_bytes) {
  if (!text.starts_with('{')) throw Error(path + ": the header does not begin with {; expected a safetensors file");
  HeaderHandler handler(path);
  json::sax_parse(text, &handler);

  SafetensorsHeader header;
  for (auto& [key, value] : handler.metadata) {
    if (!header.metadata.emplace(key, std::move(value)).second) {
      throw Error(path + ": __metadata__ has the key " + printable(key) + " twice");
    }
  }
  header.tensors = std::move(handler.tensors);
  for (TensorInfo& tensor : header.tensors) check_tensor(path, tensor);
  check_coverage(path, header.tensors, data_bytes);

  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(header.tensors.begin(), header.tensors.end(),
                                        [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice != header.tensors.end()) throw Error(path + ": has the tensor " + printable(twice->name) + " twice");
  const auto data_begin = static_cast<int64_t>(8 + text.size());
  for (TensorInfo& tensor : header.tensors) tensor.offset += data_begin;
  return header;
}

}  // namespace ramify::io
