// `ramify encode`: the options. The work needs torch and is in encode_texts.cc.
#include <memory>

#include "commands.h"
#include "exit_status.h"
#include "model_options.h"
#include "torch_library.h"

namespace ramify::cli {

void add_encode(CLI::App& app) {
  auto* encode = app.add_subcommand("encode", "Turn texts into vectors with a published model");
  const auto command = std::make_shared<EncodeCommand>();
  add_model_options(*encode, command->model);
  encode
      ->add_option("TEXTS", command->texts,
                   "texts: .jsonl or .jsonl.zst files, .txt with a text a line, - for standard input")
      ->required();
  encode->add_option("--field", command->fields.text, "where the text of a JSON record is")->capture_default_str();
  encode->add_flag("--plain", command->fields.plain_lines, "every line is a text, whatever the file is called");
  encode->add_option("--pooling", command->pooling, "mean of the tokens, cls (the first token), or none (all tokens)")
      ->check(CLI::IsMember({"mean", "cls", "none"}))
      ->capture_default_str();
  encode->add_flag("--normalize", command->normalize, "vectors of length 1");
  add_swap_options(*encode, command->model);
  encode->add_option("--batch-tokens", command->batch_tokens, "most tokens in a batch")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  encode->add_option("--out", command->out,
                     "file for the vectors; *.safetensors: one tensor `embeddings` [JSON lines to standard output]");
  encode->footer(
      "Examples:\n"
      "  ramify encode models/gte-small reviews.jsonl --normalize > vectors.jsonl\n"
      "  ramify encode models/gte-small reviews.jsonl --hierarchy 32,4,4 --layers 7,9,11 --out vectors.safetensors\n"
      "  echo 'What a film!' | ramify encode models/gte-small - --plain");
  encode->callback([command] { throw_exit_status(torch_function<RunEncode>(kEncodeFunction)(*command)); });
}

}  // namespace ramify::cli
