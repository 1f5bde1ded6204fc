#include "signal/compiler.h"

#include <utility>

#include "signal/image_patches.h"
#include "signal/record_walk.h"
#include "signal/schema_index.h"
#include "signal/target_reader.h"

namespace ramify::signal {

class Compiler::State {
 public:
  State(std::shared_ptr<const Schema> schema, const CompilerOptions& options)
      : index(std::move(schema)),
        images(options.images),
        target(index.schema().target, options.target),
        labels(options.labels) {}

  SchemaIndex index;
  ImageSource images;
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
  return walk.run(json, {state_->index, state_->images, state_->target, state_->labels, folder});
}

}  // namespace ramify::signal
