#include "signal/compiler.h"

#include <fmt/format.h>

#include <utility>

#include "signal/image_patches.h"
#include "signal/record_walk.h"
#include "signal/schema_index.h"
#include "signal/target_reader.h"

namespace ramify::signal {
namespace {

// Of the schema's width, or none where it wants none.
std::shared_ptr<const TextVectors> checked(std::shared_ptr<const TextVectors> vectors, const Schema& schema) {
  if (!schema.has_text_vectors()) return nullptr;
  const int64_t width = vectors ? vectors->width() : 0;
  if (width == schema.leaf_encoding->width) return vectors;
  throw std::invalid_argument(fmt::format("compiler: the schema has text vectors of width {}, those given have {}",
                                          schema.leaf_encoding->width, width));
}

}  // namespace

class Compiler::State {
 public:
  State(std::shared_ptr<const Schema> schema, const CompilerOptions& options)
      : index(std::move(schema)),
        images(options.images),
        text_vectors(checked(options.text_vectors, index.schema())),
        target(index.schema().target, options.target),
        labels(options.labels) {}

  SchemaIndex index;
  ImageSource images;
  std::shared_ptr<const TextVectors> text_vectors;
  TargetReader target;
  Labels labels;
};

Compiler::Compiler(std::shared_ptr<const Schema> schema, const CompilerOptions& options)
    : state_(std::make_unique<const State>(std::move(schema), options)) {}

Compiler::~Compiler() = default;

const std::shared_ptr<const Schema>& Compiler::schema() const {
  return state_->index.shared_schema();
}

Signal Compiler::compile(std::string_view json, const std::string& folder) const {
  thread_local RecordWalk walk;  // keeps the memory of its lists
  return walk.run(json,
                  {state_->index, state_->images, state_->text_vectors.get(), state_->target, state_->labels, folder});
}

}  // namespace ramify::signal
