#include "train/run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "io/atomic_file.h"
#include "io/error.h"
#include "io/folder.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/explain.h"
#include "train/interrupt.h"
#include "train/leaf_encoder.h"
#include "train/record_task.h"

namespace ramify::train {
namespace {

void check_target(const signal::Schema& schema) {
  const signal::Target& target = schema.target;
  if (target.task == signal::Task::regression || target.task == signal::Task::multilabel) return;
  if (target.classes.size() >= 2) return;
  throw io::Error("target " + target.path + " has only one value in the training data; there is nothing to tell apart");
}

using SharedEncoder = std::shared_ptr<LeafEncoder>;  // of leaves; none: their vectors are learned

ReadingOptions reading_options(const RunOptions& options, const SharedEncoder& encoder, RunObserver& observer) {
  return {.workers = options.workers,
          .text_vectors = encoder,
          .on_progress = [&](const auto& what, const auto& progress) { observer.on_reading(what, progress); },
          .on_note = [&](const std::string& note) { observer.on_note(note); },
          .replicas = options.replicas};
}

// What the run's tokens begin with.
at::Tensor token_vectors(RunDescription& run, RunObserver& observer) {
  if (run.schema->leaf_encoding) {
    check_unchanged(*run.schema->leaf_encoding);
    at::Tensor table = leaf_word_table(*run.schema->leaf_encoding);
    run.tokens = {.width = table.size(1), .frozen = !run.settings.data.train_vectors};
    return table;
  }
  int64_t missing = 0;
  at::Tensor vectors = read_token_vectors(run.settings.data.word_vectors, *run.schema, missing);
  run.tokens = {.width = vectors.size(1), .frozen = !run.settings.data.train_vectors};
  observer.on_note(std::to_string(vectors.size(0) - missing) + " of " + std::to_string(vectors.size(0)) +
                   " tokens have word vectors");
  return vectors;
}

// A text is a row of tokens: its sentences are of no use, and tokenizers may see a space before a word.
void prepare_for_texts(Settings& settings) {
  DataSettings& data = settings.data;
  if (!data.word_vectors.empty()) throw std::invalid_argument("--word-vectors are not for --architecture");
  data.text_levels = "token";
  if (settings.architecture.is_folder() && !std::filesystem::is_directory(settings.architecture.name)) {
    throw std::invalid_argument("--architecture: there is no folder " + settings.architecture.name +
                                "; expected bert, roberta or the folder of a published model");
  }
  if (!data.leaf_encoder.empty()) throw std::invalid_argument("--leaf-encoder is not for --architecture");
  if (!settings.architecture.is_folder()) return;
  if (!data.tokenizer.empty()) throw std::invalid_argument("--tokenizer: the folder of --architecture has its own");
  data.tokenizer = settings.architecture.name;
}

void resolve_architecture(Settings& settings, signal::Schema& schema, RunObserver& observer) {
  Architecture& architecture = settings.architecture;
  architecture.resolve(schema);
  schema.max_leaves = std::min(schema.max_leaves, architecture.max_leaves());
  const double dropout = models::ModelConfig::from_json(architecture.config, "architecture").attention_dropout;
  if (settings.attention == Mixing::hierarchical && dropout > 0) {
    observer.on_note("dropout of attention weights is left out in the layers with hierarchical attention");
  }
}

// With what the settings ask for, or, where a run goes on, with what its schema has.
SharedEncoder leaf_encoder(const std::optional<signal::LeafEncoding>& encoding, at::Device device,
                           const RunOptions& options) {
  if (!encoding || encoding->level == signal::LeafLevel::table) {
    if (options.leaf_cache.empty()) return nullptr;
    throw std::invalid_argument(encoding ? "--leaf-cache: with --leaf-level table no vectors are computed"
                                         : "--leaf-cache: without --leaf-encoder no vectors are computed");
  }
  if (!options.leaf_cache.empty() && options.replicas.size() > 1) {
    throw std::invalid_argument("--leaf-cache is for one process; with several each computes its part of the vectors");
  }
  return std::make_shared<LeafEncoder>(*encoding, LeafEncoder::Options{.device = device, .cache = options.leaf_cache});
}

signal::SchemaOptions schema_options(const DataSettings& data) {
  signal::SchemaOptions options = data.options();
  if (data.leaf_encoder.empty()) return options;
  options.leaf_encoding = describe_leaf_encoder(data.leaf_encoder, signal::leaf_level_of(data.leaf_level));
  if (options.leaf_encoding->level == signal::LeafLevel::table) {
    options.tokenizer = text::Tokenizer::load(data.leaf_encoder);
  }
  return options;
}

RunDescription new_run(Settings settings, at::Device device, const RunOptions& options, SharedEncoder& encoder,
                       RunObserver& observer) {
  if (settings.data.train.empty()) throw std::invalid_argument("no DATA; say which records to learn from");
  if (settings.data.target.empty()) throw std::invalid_argument("no target; say with --target which field to predict");
  if (settings.architecture.is_used()) prepare_for_texts(settings);
  const signal::SchemaOptions schema_settings = schema_options(settings.data);
  encoder = leaf_encoder(schema_settings.leaf_encoding, device, options);
  keep_standard_input(settings.data.train, joined(settings.data.valid, settings.data.test),
                      options.folder + "/" + kStandardInput);
  RunDescription run{.settings = std::move(settings), .command = options.command};
  signal::Schema schema =
      signal::infer_schema(run.settings.data.train, schema_settings, [&](const signal::ReadProgress& progress) {
        Interrupted::throw_if_caught();
        observer.on_reading("schema", progress);
      });
  if (run.settings.architecture.is_used()) resolve_architecture(run.settings, schema, observer);
  run.schema = std::make_shared<const signal::Schema>(std::move(schema));
  check_target(*run.schema);
  for (const std::string& note : run.schema->notes) observer.on_note(note);
  run.files = data_files(joined(run.settings.data.train, run.settings.data.valid));
  run.threads = at::get_num_threads();
  run.processes = options.replicas.size();
  return run;
}

// What the first process finds in the folder, or makes of what is asked for.
struct Beginning {
  RunDescription run;
  bool goes_on = false;
  at::Tensor vectors;  // that tokens begin with, where a checkpoint does not have them
};

Beginning begin_run(Settings settings, at::Device device, const RunOptions& options, SharedEncoder& encoder,
                    RunObserver& observer) {
  Beginning beginning{.run = {}, .goes_on = is_run(options.folder), .vectors = {}};
  RunDescription& run = beginning.run;
  if (beginning.goes_on) {
    run = load_description(options.folder);
    check_processes(run.processes, options.replicas.size());
    if (settings.data.train == std::vector<std::string>{"-"}) settings.data.train = run.settings.data.train;  // kept
    check_same_settings(run.settings.to_json(), settings.to_json());
    check_unchanged(run.files);
    if (run.schema->has_text_vectors()) check_unchanged(*run.schema->leaf_encoding);
    encoder = leaf_encoder(run.schema->leaf_encoding, device, options);
  } else {
    run = new_run(std::move(settings), device, options, encoder, observer);
  }
  const bool has_vectors =
      !run.settings.data.word_vectors.empty() || (run.schema->leaf_encoding && !run.schema->has_text_vectors());
  if (has_vectors && !io::folder_exists(options.folder + "/checkpoint")) {
    beginning.vectors = token_vectors(run, observer);
  }
  return beginning;
}

// In all processes what the first one has, but for the vectors, which come with the model.
void begin_alike(Beginning& beginning, at::Device device, const RunOptions& options, SharedEncoder& encoder) {
  const Replicas& replicas = options.replicas;
  beginning.goes_on = replicas.any(beginning.goes_on);
  tell_description(replicas, beginning.run);
  if (!replicas.is_first()) encoder = leaf_encoder(beginning.run.schema->leaf_encoding, device, options);
}

RunData read_all(const RunDescription& run, const RunOptions& options, const SharedEncoder& encoder,
                 RunObserver& observer) {
  const auto read = [&] {
    return read_run_data(run.settings, run.schema, reading_options(options, encoder, observer));
  };
  if (!encoder) return read();
  std::optional<RunData> data;
  try {
    data = read();
  } catch (...) {
    encoder->finish();  // what was computed so far need not be computed again
    throw;
  }
  encoder->finish();
  const LeafCache::Counts counts = encoder->counts();
  observer.on_note("leaf encoder: computed " + std::to_string(counts.computed) + " of " + std::to_string(counts.asked) +
                   " texts" + (counts.computed < counts.asked ? ", the rest was cached" : ""));
  at::set_num_threads(at::get_num_threads());  // encoding set it to 1 for threads that begin later
  return std::move(*data);
}

// Half of them wrong, if there are so many: those teach more.
std::vector<int64_t> chosen_records(const Evaluation& evaluation, const std::vector<int64_t>& all, int64_t count) {
  std::vector<int64_t> chosen;
  const auto take = [&](const std::vector<int64_t>& from, int64_t upto) {
    for (const int64_t record : from) {
      if (static_cast<int64_t>(chosen.size()) >= upto) return;
      if (std::ranges::find(chosen, record) == chosen.end()) chosen.push_back(record);
    }
  };
  take(evaluation.wrong, count / 2);
  take(evaluation.right, count);
  take(all, count);
  return chosen;
}

// Where and by what it is computed.
struct Use {
  const RunOptions& options;
  at::Device device;
  const SharedEncoder& encoder;
};

// None: interrupted.
std::optional<nlohmann::json> evaluate_best(const RunDescription& run, const RunData& data, nn::Network& model,
                                            const Use& use, RunObserver& observer) {
  const RunOptions& options = use.options;
  const at::Device device = use.device;
  const Replicas& replicas = options.replicas;
  replicas.on_first([&] { load_model(options.folder + "/model", model); });
  for (const auto& [name, tensor] : model_tensors(model)) replicas.copy_from_first({tensor});
  model.eval();
  EvaluationOptions how = evaluation_options(run.settings, device, options.workers);
  how.replicas = replicas;
  how.on_progress = [](int64_t) { return InterruptGuard::caught() == 0; };
  nlohmann::json evaluation = nlohmann::json::object();
  Evaluation last = evaluate(model, data.valid(), data.valid_records, how);
  if (!data.valid_records.empty()) evaluation["valid"] = last.to_json();
  if (data.test) {
    evaluation["test"] = evaluate(model, *data.test, data.test->all_records(), how).to_json();
  } else if (!run.settings.data.test.empty()) {
    const signal::Dataset test = read_records(run.settings.data.test, "test", run.schema, run.settings.data,
                                              reading_options(options, use.encoder, observer));
    evaluation["test"] = evaluate(model, test, test.all_records(), how).to_json();
  }
  if (replicas.any(InterruptGuard::caught() != 0)) return std::nullopt;
  evaluation["peak_memory_bytes"] = peak_memory(device);
  replicas.on_first([&] {
    if (options.explanations > 0) {
      // without validation those that were learned from are all there is
      const std::vector<int64_t>& records = data.valid_records.empty() ? data.train_records : data.valid_records;
      const nlohmann::json explained = explain_records(
          model, run, data.valid(), chosen_records(last, records, options.explanations), device, use.encoder);
      io::write_file_atomic(options.folder + "/explanations.json", explained.dump() + "\n");
    }
    io::write_file_atomic(options.folder + "/evaluation.json", evaluation.dump(2) + "\n");
  });
  return evaluation;
}

}  // namespace

RunResult train(const Settings& asked, const RunOptions& options, RunObserver& observer) {
  const InterruptGuard interrupts;
  const at::Device device = open_device(options.device);
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  if (options.threads > 0) at::set_num_threads(options.threads);
  Settings settings = asked;
  settings.make_paths_absolute();
  settings.data.settle_leaves();
  const Replicas& replicas = options.replicas;
  std::optional<FolderLock> lock;
  SharedEncoder encoder;
  Beginning beginning;
  replicas.on_first([&] {
    lock.emplace(options.folder, options.resume);
    beginning = begin_run(std::move(settings), device, options, encoder, observer);
  });
  begin_alike(beginning, device, options, encoder);
  RunDescription& run = beginning.run;
  const bool goes_on = beginning.goes_on;
  if (goes_on) {
    const std::string note = resume_threads(run.threads, options.threads, device);
    if (!note.empty()) observer.on_note(note);
  } else if (!run.settings.data.test.empty() && !encoder) {
    // what cannot be read there should be known before hours of training; with an encoder it is read with the rest
    read_records(run.settings.data.test, "test", run.schema, run.settings.data,
                 reading_options(options, encoder, observer));
  }
  const RunData data = read_all(run, options, encoder, observer);
  const auto model = build_network(run);
  const at::Tensor& vectors = beginning.vectors;
  if (vectors.defined()) dynamic_cast<nn::Model&>(*model).set_table("token", vectors, !run.tokens.frozen);
  replicas.on_first([&] {  // the others get them from it
    if (!run.settings.architecture.is_folder() || io::folder_exists(options.folder + "/checkpoint")) return;
    dynamic_cast<models::TextClassifier&>(*model).load(run.settings.architecture.name);
  });
  model->to(device);
  run.parameters = model->parameter_counts();
  run.train_records = static_cast<int64_t>(data.train_records.size());
  run.valid_records = static_cast<int64_t>(data.valid_records.size());
  if (!goes_on) replicas.on_first([&] { save_description(options.folder, run); });

  RecordTask task({.model = *model,
                   .train = data.train,
                   .train_records = data.train_records,
                   .valid = data.valid(),
                   .valid_records = data.valid_records,
                   .settings = run.settings,
                   .device = device,
                   .workers = std::max(1, options.workers),
                   .replicas = replicas});
  Trainer trainer({.task = task,
                   .options = run.settings.training,
                   .folder = options.folder,
                   .observer = observer,
                   .replicas = replicas});
  if (goes_on) trainer.resume();
  observer.on_ready(run, data.train, trainer.state(), trainer.total_steps());
  const Outcome outcome = trainer.run();
  if (outcome == Outcome::interrupted) return {.outcome = outcome, .evaluation = {}};
  const auto evaluation = evaluate_best(run, data, *model, {options, device, encoder}, observer);
  if (!evaluation) return {.outcome = Outcome::interrupted, .evaluation = {}};
  return {.outcome = outcome, .evaluation = *evaluation};
}

nlohmann::json evaluate_files(const std::string& folder, const std::vector<std::string>& files,
                              const EvaluateOptions& options, signal::BadRecords& bad) {
  const at::Device device = open_device(options.device);
  const TrainedModel trained = load_trained(folder, device);
  signal::DatasetOptions reading;
  reading.compiler.images = options.images.empty() ? trained.run.settings.data.images : options.images;
  reading.on_bad = signal::on_bad_of(options.on_bad);
  reading.compiler.text_vectors = open_leaf_encoder(*trained.run.schema, device);
  reading.threads = options.workers;
  reading.on_progress = options.on_reading;
  const signal::Dataset data = signal::Dataset::read(files, trained.run.schema, reading);
  bad = data.bad();
  EvaluationOptions how = evaluation_options(trained.run.settings, device, options.workers);
  how.on_progress = [&](int64_t done) {
    if (options.on_progress) options.on_progress(done, data.size());
    return InterruptGuard::caught() == 0;
  };
  return evaluate(*trained.model, data, data.all_records(), how).to_json();
}

}  // namespace ramify::train
