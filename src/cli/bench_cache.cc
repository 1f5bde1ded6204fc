// `ramify bench cache`: the options. Measuring needs torch and is in cache_bench.cc.
#include <memory>

#include "commands.h"
#include "exit_status.h"
#include "generation_commands.h"
#include "torch_library.h"

namespace ramify::cli {

void add_bench_cache(CLI::App& bench) {
  auto* cache =
      bench.add_subcommand("cache", "Time a step of generation: a hierarchical cache beside all keys and values");
  const auto command = std::make_shared<CacheBenchCommand>();
  cache->add_option("--context", command->contexts, "tokens that came before; a list gives a row each")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 26))
      ->default_str("4096,65536,1048576");
  cache->add_option("--steps", command->steps, "steps that end at each context; the mean is given")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  cache->add_option("--hierarchy", command->hierarchy, "windows from the bottom up")->capture_default_str();
  cache->add_option("--tie", command->tie, "none or block")
      ->check(CLI::IsMember({"none", "block"}))
      ->capture_default_str();
  cache->add_option("--window", command->window, "so many tokens are seen one by one")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  cache->add_option("--heads", command->heads, "attention heads")->check(CLI::Range(1, 1024))->capture_default_str();
  cache->add_option("--dim", command->dim, "width of one head")->check(CLI::Range(1, 512))->capture_default_str();
  cache
      ->add_option(
          "--kv-context", command->kv_context,
          "longest context at which all keys and values are kept and timed, too; beyond, only their bytes are given")
      ->capture_default_str();
  cache->add_option("--threads", command->compute.threads, "threads; 0: all cores")->check(CLI::Range(0, 1024));
  cache->add_flag("--json", command->json, "print JSON");
  cache->footer(
      "Examples:\n"
      "  ramify bench cache\n"
      "  ramify bench cache --context 1024,1048576 --hierarchy 8* --window 64 --threads 1");
  cache->callback([command] { throw_exit_status(torch_function<RunCacheBench>(kCacheBenchFunction)(*command)); });
}

}  // namespace ramify::cli
