#include "train/language_run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "io/atomic_file.h"
#include "io/error.h"
#include "io/leftovers.h"
#include "models/decoder.h"
#include "ramify/version.h"
#include "text/model_tokenizer.h"
#include "train/device.h"
#include "train/interrupt.h"
#include "train/language_task.h"
#include "train/published_tokenizer.h"
#include "train/token_text.h"

namespace ramify::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostTokenizerBytes = size_t{1} << 30;  // of a file

// A folder that is gone when it is not needed any more.
class Staging {
 public:
  explicit Staging(const std::string& folder) : path_(io::temporary_name(folder + "/tokenizer")) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) throw io::Error(path_ + ": cannot make this folder: " + error.message());
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr const char* kDecoderConfig = "{\"model_type\": \"llama\"}\n";

// The tokenizer in the files that the model will have beside it: what it means there is what training uses.
text::ModelTokenizer stage_tokenizer(const std::string& source, const std::string& folder) {
  copy_tokenizer(source, folder);
  io::write_file_atomic(folder + "/config.json", kDecoderConfig);
  return text::ModelTokenizer::load(folder);
}

// The files of a folder's tokenizer, for processes that do not know the folder.
std::string tokenizer_bytes(const std::string& folder) {
  nlohmann::json files = nlohmann::json::object();
  for (const std::string& name : tokenizer_files()) {
    const std::string path = folder + "/" + name;
    if (!fs::exists(path)) continue;
    const std::string content = io::read_file(path, kMostTokenizerBytes);
    files[name] = nlohmann::json::binary({content.begin(), content.end()});
  }
  std::string bytes;
  nlohmann::json::to_cbor(files, bytes);
  return bytes;
}

text::ModelTokenizer tokenizer_from_bytes(const std::string& bytes) {
  const Staging staging(fs::temp_directory_path().string());
  const nlohmann::json files = nlohmann::json::from_cbor(bytes);
  for (const auto& [name, content] : files.items()) {
    const auto& binary = content.get_binary();
    io::write_file_atomic(staging.path() + "/" + name, std::string(binary.begin(), binary.end()));
  }
  io::write_file_atomic(staging.path() + "/config.json", kDecoderConfig);
  return text::ModelTokenizer::load(staging.path());
}

struct Texts {
  Sequences train;
  std::optional<Sequences> valid, test;
};

class TextReader {
 public:
  TextReader(const LanguageSettings& settings, const text::ModelTokenizer& tokenizer, const RunOptions& options,
             LanguageObserver& observer)
      : settings_(settings), tokenizer_(tokenizer), observer_(observer), member_(options.replicas.member()) {
    const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    workers_ = options.workers > 0 ? options.workers : cores;
  }

  Texts read() const {
    const LanguageData& data = settings_.data;
    std::vector<int32_t> train = ids(data.train, "training", data.limit), tail;
    if (data.valid.empty() && data.valid_fraction > 0) {
      const auto kept = static_cast<std::ptrdiff_t>(static_cast<double>(train.size()) * (1 - data.valid_fraction));
      tail.assign(train.begin() + kept, train.end());
      train.resize(static_cast<size_t>(kept));
    }
    if (static_cast<int64_t>(train.size()) < data.context) {
      throw io::Error(data.train.front() + ": has " + std::to_string(train.size()) +
                      " tokens to learn from, fewer than one sequence of --context " + std::to_string(data.context));
    }
    Texts texts{.train = cut(std::move(train)), .valid = std::nullopt, .test = std::nullopt};
    if (!data.valid.empty()) tail = ids(data.valid, "validation");
    if (!data.valid.empty() || data.valid_fraction > 0) {
      texts.valid = cut(std::move(tail));
      require_tokens(*texts.valid, data.valid.empty() ? data.train.front() : data.valid.front(), "to validate with");
    }
    if (!data.test.empty()) {
      texts.test = cut(ids(data.test, "test"));
      require_tokens(*texts.test, data.test.front(), "to test with");
    }
    return texts;
  }

 private:
  std::vector<int32_t> ids(const std::vector<std::string>& files, const std::string& what, int64_t limit = 0) const {
    const auto on_progress = [&](double share, int64_t tokens) {
      Interrupted::throw_if_caught();
      observer_.on_reading(what, share, tokens);
    };
    return read_tokens(files, tokenizer_.tokenizer(),
                       {.field = settings_.data.field,
                        .limit = limit,
                        .workers = workers_,
                        .on_progress = on_progress,
                        .member = member_});
  }

  Sequences cut(std::vector<int32_t> text) const {
    return {std::move(text), tokens_before(tokenizer_), settings_.data.context};
  }

  static void require_tokens(const Sequences& text, const std::string& file, const char* purpose) {
    if (text.size() > 0) return;
    throw io::Error(file + ": too few tokens " + purpose);
  }

  const LanguageSettings& settings_;
  const text::ModelTokenizer& tokenizer_;
  LanguageObserver& observer_;
  signal::Member member_;
  int workers_;
};

nn::ParameterCounts count_parameters(const models::Decoder& decoder) {
  nn::ParameterCounts counts;
  for (const auto& item : decoder.named_parameters()) {
    (item.key().starts_with("words.") ? counts.tables : counts.encoder) += item.value().numel();
  }
  return counts;
}

nlohmann::json to_json(const LanguageRun& run) {
  nlohmann::json json = run.settings.to_json();
  json["ramify"] = RAMIFY_VERSION;
  json["command"] = run.command;
  json["vocabulary"] = run.model.vocabulary;
  json["parameters"] = {
      {"layers", run.parameters.encoder}, {"words", run.parameters.tables}, {"total", run.parameters.total()}};
  json["tokens"] = {{"train", run.train_tokens}, {"valid", run.valid_tokens}};
  json["sequences"] = {{"train", run.train_sequences}, {"valid", run.valid_sequences}};
  json["files"] = to_json(run.files);
  json["threads"] = run.threads;
  json["processes"] = run.processes;
  return json;
}

// `file`: what it is called in messages.
LanguageRun language_run_from_json(const nlohmann::json& json, const std::string& file) {
  LanguageRun run;
  try {
    run.settings = LanguageSettings::from_json({{"data", json.at("data")},
                                                {"attention", json.at("attention")},
                                                {"model", json.at("model")},
                                                {"training", json.at("training")}});
    run.model = run.settings.model_config(json.at("vocabulary"));
    run.command = json.at("command");
    run.parameters = {.encoder = json.at("parameters").at("layers"), .tables = json.at("parameters").at("words")};
    run.train_tokens = json.at("tokens").at("train");
    run.valid_tokens = json.at("tokens").at("valid");
    run.train_sequences = json.at("sequences").at("train");
    run.valid_sequences = json.at("sequences").at("valid");
    run.files = data_files_from_json(json.at("files"));
    run.threads = json.at("threads");
    run.processes = json.value("processes", int64_t{1});
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(file + ": not the description of a run: " + io::json_reason(error.what()));
  } catch (const std::invalid_argument& error) {
    throw io::Error(file + ": " + error.what());
  }
  return run;
}

// The model's own files, but for its weights. config.json comes last: with it the folder is complete.
void publish(const std::string& folder, const LanguageRun& run, const std::string& staged,
             const text::ModelTokenizer& tokenizer) {
  for (const std::string& name : tokenizer_files()) {
    if (fs::exists(staged + "/" + name)) fs::rename(staged + "/" + name, folder + "/" + name);
  }
  nlohmann::json config = run.model.to_json();
  config["architectures"] = {"LlamaForCausalLM"};
  config["torch_dtype"] = run.settings.training.dtype == "float64" ? "float64" : "float32";
  const std::vector<int32_t> before = tokens_before(tokenizer);
  config["bos_token_id"] = before.empty() ? nlohmann::json() : nlohmann::json(before.front());
  const int32_t end = end_token(tokenizer.tokenizer());
  config["eos_token_id"] = end < 0 ? nlohmann::json() : nlohmann::json(end);
  config["ramify"] = models::attention_note(run.settings.attention.choice());
  io::write_file_atomic(folder + "/config.json", config.dump(2) + "\n");
}

std::shared_ptr<models::Decoder> build_decoder(const LanguageRun& run, at::Device device) {
  at::manual_seed(run.settings.training.seed);
  auto decoder = std::make_shared<models::Decoder>(run.model, models::Decoder::Output::tied);
  decoder->initialize_for_training();
  decoder->to(device);
  return decoder;
}

void set_dtype(models::Decoder& decoder, const LanguageRun& run) {
  if (run.settings.training.dtype == "bfloat16") decoder.set_compute_dtype(at::kBFloat16);
  if (run.settings.training.dtype == "float64") decoder.to(at::kDouble);
}

// None: interrupted.
std::optional<nlohmann::json> score_best(const LanguageRun& run, const Texts& texts, at::Device device,
                                         const RunOptions& options) {
  const Replicas& replicas = options.replicas;
  const std::string& folder = options.folder;
  std::shared_ptr<models::Decoder> decoder;
  replicas.on_first([&] {
    decoder = models::load_decoder(folder);
    decoder->to(device);
  });
  if (!decoder) decoder = build_decoder(run, device);  // the weights follow
  set_dtype(*decoder, run);
  for (const auto& [name, tensor] : model_tensors(*decoder)) replicas.copy_from_first({tensor});
  const ScoreOptions how{.plan = run.settings.plan(),
                         .batch_tokens = run.settings.training.batch_leaves,
                         .device = device,
                         .on_progress = [](double) { return InterruptGuard::caught() == 0; },
                         .replicas = replicas};
  nlohmann::json evaluation = nlohmann::json::object();
  if (texts.valid) evaluation["valid"] = score_sequences(*decoder, *texts.valid, how).to_json();
  if (texts.test) evaluation["test"] = score_sequences(*decoder, *texts.test, how).to_json();
  if (replicas.any(InterruptGuard::caught() != 0)) return std::nullopt;
  evaluation["peak_memory_bytes"] = peak_memory(device);
  replicas.on_first([&] { io::write_file_atomic(folder + "/evaluation.json", evaluation.dump(2) + "\n"); });
  return evaluation;
}

LanguageRun new_language_run(LanguageSettings settings, const RunOptions& options) {
  LanguageData& data = settings.data;
  if (data.train.empty()) throw std::invalid_argument("no TEXT; say which files to learn from");
  if (data.tokenizer.empty()) throw std::invalid_argument("no tokenizer; say with --tokenizer which folder or file");
  keep_standard_input(data.train, joined(data.valid, data.test), options.folder + "/" + kStandardText);
  LanguageRun run;
  run.settings = std::move(settings);
  run.command = options.command;
  run.threads = at::get_num_threads();
  run.processes = options.replicas.size();
  return run;
}

// What the first process finds in the folder, or makes of what is asked for.
struct LanguageBeginning {
  LanguageRun run;
  std::optional<Staging> staging;
  std::optional<text::ModelTokenizer> tokenizer;
  bool goes_on = false, is_published = false;
};

void begin_language_run(LanguageSettings settings, const RunOptions& options, LanguageBeginning& beginning) {
  const std::string& folder = options.folder;
  LanguageRun& run = beginning.run;
  beginning.goes_on = is_run(folder, kLanguageRun);
  run = beginning.goes_on ? load_language_run(folder) : new_language_run(settings, options);
  if (beginning.goes_on) {
    check_processes(run.processes, options.replicas.size());
    if (settings.data.train == std::vector<std::string>{"-"}) settings.data.train = run.settings.data.train;  // kept
    check_same_settings(run.settings.to_json(), settings.to_json());
    check_unchanged(run.files);
  }
  beginning.is_published = beginning.goes_on && fs::exists(folder + "/config.json");
  beginning.staging.emplace(folder);
  beginning.tokenizer.emplace(beginning.is_published
                                  ? text::ModelTokenizer::load(folder)
                                  : stage_tokenizer(run.settings.data.tokenizer, beginning.staging->path()));
  run.model = run.settings.model_config(beginning.tokenizer->tokenizer().size());
}

// In all processes what the first one has.
void begin_alike(LanguageBeginning& beginning, const RunOptions& options) {
  const Replicas& replicas = options.replicas;
  if (replicas.size() == 1) return;
  beginning.goes_on = replicas.any(beginning.goes_on);
  std::string files;
  if (replicas.is_first()) files = tokenizer_bytes(beginning.is_published ? options.folder : beginning.staging->path());
  files = replicas.tell(std::move(files));
  const std::string run = replicas.tell(replicas.is_first() ? to_json(beginning.run).dump() : "");
  if (replicas.is_first()) return;
  beginning.run = language_run_from_json(nlohmann::json::parse(run), "the run");
  beginning.tokenizer.emplace(tokenizer_from_bytes(files));
}

}  // namespace

LanguageRun load_language_run(const std::string& folder) {
  const std::string file = folder + "/" + kLanguageRun;
  if (!is_run(folder, kLanguageRun)) throw io::Error(folder + ": not the folder of a run: it has no " + kLanguageRun);
  const nlohmann::json json = nlohmann::json::parse(io::read_file(file, 1 << 24), nullptr, false);
  if (!json.is_object()) throw io::Error(file + ": not a JSON object");
  return language_run_from_json(json, file);
}

RunResult train_language(const LanguageSettings& asked, const RunOptions& options, LanguageObserver& observer) {
  const InterruptGuard interrupts;
  const at::Device device = open_device(options.device);
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  if (options.threads > 0) at::set_num_threads(options.threads);
  LanguageSettings settings = asked;
  settings.make_paths_absolute();
  const std::string& folder = options.folder;
  const Replicas& replicas = options.replicas;
  std::optional<FolderLock> lock;
  LanguageBeginning beginning;
  replicas.on_first([&] {
    lock.emplace(folder, options.resume, kLanguageRun);
    begin_language_run(std::move(settings), options, beginning);
  });
  begin_alike(beginning, options);
  LanguageRun& run = beginning.run;
  if (beginning.goes_on) {
    const std::string note = resume_threads(run.threads, options.threads, device);
    if (!note.empty()) observer.on_note(note);
  }
  const Texts texts = TextReader(run.settings, *beginning.tokenizer, options, observer).read();
  const auto model = build_decoder(run, device);
  set_dtype(*model, run);
  if (!beginning.goes_on) {
    run.parameters = count_parameters(*model);
    run.train_tokens = texts.train.num_tokens();
    run.train_sequences = texts.train.size();
    run.valid_tokens = texts.valid ? texts.valid->num_tokens() : 0;
    run.valid_sequences = texts.valid ? texts.valid->size() : 0;
  }
  replicas.on_first([&] {
    if (!beginning.goes_on) {
      run.files = data_files(joined(run.settings.data.train, run.settings.data.valid));
      io::write_file_atomic(folder + "/" + kLanguageRun, to_json(run).dump(2) + "\n");
    }
    if (!beginning.is_published) publish(folder, run, beginning.staging->path(), *beginning.tokenizer);
  });

  LanguageTask task({.model = *model,
                     .plan = run.settings.plan(),
                     .train = texts.train,
                     .valid = texts.valid ? &*texts.valid : nullptr,
                     .options = run.settings.training,
                     .device = device,
                     .replicas = replicas});
  Trainer trainer(
      {.task = task, .options = run.settings.training, .folder = folder, .observer = observer, .replicas = replicas});
  if (beginning.goes_on) trainer.resume();
  observer.on_ready(run, trainer.state(), trainer.total_steps());
  const Outcome outcome = trainer.run();
  if (outcome == Outcome::interrupted) return {.outcome = outcome, .evaluation = {}};
  const auto evaluation = score_best(run, texts, device, options);
  if (!evaluation) return {.outcome = Outcome::interrupted, .evaluation = {}};
  return {.outcome = outcome, .evaluation = *evaluation};
}

}  // namespace ramify::train
