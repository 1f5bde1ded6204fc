#include "signal/schema_settings.h"

#include <fmt/format.h>

#include <stdexcept>

namespace ramify::signal {
namespace {

void require(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw std::invalid_argument(fmt::format("{} is {}; expected {} to {}", name, value, least, most));
}

}  // namespace

SchemaOptions SchemaSettings::options() const {
  require("vocabulary", vocabulary, 2, 10'000'000);
  require("min_count", min_count, 1, int64_t{1} << 40);
  require("max_leaves", max_leaves, 1, int64_t{1} << 31);
  require("image_size", image_size, 1, 8192);
  require("patch", patch, 1, 512);
  SchemaOptions options;
  options.target = target;
  options.target_of = target_of;
  if (!task.empty()) options.task = task_of(task);
  options.fields = fields;
  options.ignore = ignore;
  options.text_levels = parse_text_levels(text_levels);
  if (!tokenizer.empty()) options.tokenizer = text::Tokenizer::load(tokenizer);
  options.vocabulary = {.min_count = min_count, .max_size = vocabulary};
  options.image.patch = patch;
  options.image.longest_side = image_size;
  options.max_leaves = max_leaves;
  options.on_bad = on_bad_of(on_bad);
  if (!schema.empty()) read_schema_file(schema, options);
  return options;
}

}  // namespace ramify::signal
