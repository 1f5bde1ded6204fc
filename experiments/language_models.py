#!/usr/bin/env python3
"""Exact and hierarchical attention in language models trained from scratch: the same decoder, text, tokens and seeds.

Three tables: the perplexity of a test text after training, the speed of training by the length of the context, and the
speed of generation by the length of the prompt, with the models of the second. Each run is a folder under --results;
those that are finished are not done again, those that were stopped go on.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("RAMIFY", ROOT / "build" / "release" / "ramify")
KINDS = {"exact": ["--attention", "exact"],
         "untied": ["--attention", "hierarchical", "--hierarchy", "16*", "--tie", "none"],
         "prefix-block": ["--attention", "hierarchical", "--hierarchy", "16*", "--tie", "block"],
         "window-32": ["--attention", "hierarchical", "--hierarchy", "16*", "--tie", "none", "--window", "32"],
         "window-128": ["--attention", "hierarchical", "--hierarchy", "16*", "--tie", "none", "--window", "128"]}
SPEED_KINDS = ["exact", "untied", "prefix-block", "window-32"]
PROMPT_BYTES = [1_600, 13_000, 108_000]  # of the training text: about 500, 3,700 and 30,000 tokens
SIZE = ["--layers", "4", "--width", "256", "--heads", "4"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="folder with wikitext103/{valid,test}.txt.zst")
    parser.add_argument("--part", choices=["perplexity", "speed", "generation", "table"], default="perplexity")
    parser.add_argument("--tokenizer", type=pathlib.Path,
                        help="folder or file; without it a byte-level BPE is trained on the training text, which needs "
                             "the package tokenizers")
    parser.add_argument("--vocabulary", type=int, default=4096, help="tokens of the tokenizer that is trained")
    parser.add_argument("--kinds", help=f"of {','.join(KINDS)}")
    parser.add_argument("--contexts", default="512,4096,32768")
    parser.add_argument("--seeds", default="0,1,2", help="of the runs for perplexity")
    parser.add_argument("--epochs", type=int, default=20, help="of the runs for perplexity, at most")
    parser.add_argument("--steps", type=int, default=4, help="of the runs for speed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", default="0")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "experiments" / "results" / "language-models")
    parser.add_argument("options", nargs="*", help="behind --: go to `ramify train-lm`")
    return parser.parse_args()


def words(path):
    return subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout


def make_tokenizer(arguments):
    """A byte-level BPE of the training text, as Hugging Face writes it."""
    folder = arguments.results / f"tokenizer-{arguments.vocabulary}"
    if (folder / "tokenizer.json").exists():
        return folder
    import tokenizers
    bpe = tokenizers.ByteLevelBPETokenizer()
    text = words(arguments.data / "wikitext103" / "valid.txt.zst").decode()
    bpe.train_from_iterator(text.splitlines(keepends=True), vocab_size=arguments.vocabulary, min_frequency=2,
                            show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    bpe.save(str(folder / "tokenizer.json"))
    return folder


def train(arguments, out, texts, kind, *options):
    """Whether a run is finished: one that fails leaves a line and the others go on."""
    if (out / "evaluation.json").exists():
        return
    print(out.relative_to(arguments.results), file=sys.stderr)
    command = [PROGRAM, "train-lm", *texts, *KINDS[kind], *SIZE, *options, "--device", arguments.device, "--threads",
               arguments.threads, "--resume", "--out", out, *arguments.options]
    status = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL).returncode
    if status >= 128:
        sys.exit(status)
    if status != 0:
        print(f"{out}: failed", file=sys.stderr)


def run_perplexity(arguments, tokenizer, kinds):
    texts = [arguments.data / "wikitext103" / "valid.txt.zst", "--test", arguments.data / "wikitext103" / "test.txt.zst",
             "--tokenizer", tokenizer]
    for seed in arguments.seeds.split(","):
        for context in map(int, arguments.contexts.split(",")):
            for kind in kinds:
                # as many tokens and steps for each kind; a step has 8,192 tokens, or one sequence
                train(arguments, arguments.results / "perplexity" / f"{context}-{kind}-{seed}", texts, kind,
                      "--context", context, "--batch-tokens", max(8192, context), "--epochs", arguments.epochs,
                      "--patience", 3, "--seed", seed, "--checkpoint-every", 100000)


def run_speed(arguments, tokenizer, kinds):
    texts = [arguments.data / "wikitext103" / f"{part}.txt.zst" for part in ("valid", "test")]
    for context in map(int, arguments.contexts.split(",")):
        batch = max(8192, context)
        for kind in kinds:
            train(arguments, arguments.results / "speed" / f"{context}-{kind}", [*texts, "--tokenizer", tokenizer], kind,
                  "--context", context, "--batch-tokens", batch, "--limit", batch * arguments.steps, "--epochs", 1,
                  "--valid-fraction", 0, "--log-every", 1)


def run_generation(arguments, kinds):
    """200 tokens behind prompts of several lengths, with the models of the longest context that were trained for speed."""
    text = words(arguments.data / "wikitext103" / "valid.txt.zst")
    context = max(map(int, arguments.contexts.split(",")))
    print("| prompt, tokens | attention | reading it, s | generation, tokens/s | cache |\n|---|---|---|---|---|")
    for size in PROMPT_BYTES:
        for kind in kinds:
            model = arguments.results / "speed" / f"{context}-{kind}"
            if not (model / "evaluation.json").exists():
                sys.exit(f"{model} is not there; run --part speed first")
            command = [PROGRAM, "generate", model, "--prompt-file", "-", "--max-tokens", "200", "--ignore-end", "--json",
                       "--device", arguments.device, "--threads", arguments.threads]
            # a cut inside a character would be an error
            prompt = text[:size].decode(errors="ignore").encode()
            run = subprocess.run([str(word) for word in command], input=prompt, check=True, capture_output=True)
            found = json.loads(run.stdout.splitlines()[-1])
            print(f"| {found['prompt_tokens']:,} | {kind} | {found['prompt_seconds']:.2f} "
                  f"| {found['tokens_per_second']:,.0f} | {found['cache_bytes'] / 2**20:.1f} MiB |", flush=True)


def speed_of(folder):
    """Tokens a second: the median step behind the first; of a run of a step or two, all of it."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["split"] == "train"]
    batch = json.loads((folder / "run.json").read_text())["training"]["batch_leaves"]
    steps = [b["seconds"] - a["seconds"] for a, b in zip(lines, lines[1:]) if b["step"] == a["step"] + 1]
    return batch / statistics.median(steps) if steps else lines[-1]["tokens_per_second"]


def rounded(values):
    mean = statistics.fmean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


def print_tables(results):
    runs = {}
    for path in sorted((results / "perplexity").glob("*/evaluation.json")):
        context, kind = path.parent.name.rsplit("-", 1)[0].split("-", 1)
        runs.setdefault((int(context), kind), []).append(path.parent)
    if runs:
        print("| context | attention | seeds | test perplexity | parameters | epochs to the best | tokens/s | peak memory |")
        print("|---|---|---|---|---|---|---|---|")
    for (context, kind), folders in sorted(runs.items(), key=lambda run: (run[0][0], list(KINDS).index(run[0][1]))):
        scores = [json.loads((folder / "evaluation.json").read_text()) for folder in folders]
        parameters = json.loads((folders[0] / "run.json").read_text())["parameters"]["total"]
        best = [json.loads((folder / "checkpoint" / "state.json").read_text())["best_epoch"] + 1 for folder in folders]
        memory = max(score["peak_memory_bytes"] for score in scores)
        print(f"| {context:,} | {kind} | {len(folders)} | {rounded([s['test']['perplexity'] for s in scores])} "
              f"| {parameters / 1e6:.2f} M | {statistics.fmean(best):.0f} "
              f"| {statistics.median(map(speed_of, folders)):,.0f} | {memory / 2**20:,.0f} MiB |")
    speeds = {tuple(path.parent.name.split("-", 1)): path.parent
              for path in (results / "speed").glob("*/evaluation.json")}
    if speeds:
        print("\n| context | attention | training, tokens/s | seconds a step | against exact | peak memory |")
        print("|---|---|---|---|---|---|")
    for context, kind in sorted(speeds, key=lambda key: (int(key[0]), list(KINDS).index(key[1]))):
        speed = speed_of(speeds[context, kind])
        memory = json.loads((speeds[context, kind] / "evaluation.json").read_text())["peak_memory_bytes"]
        exact = speeds.get((context, "exact"))
        against = f"{speed / speed_of(exact):.1f}×" if exact and kind != "exact" else ""
        print(f"| {int(context):,} | {kind} | {speed:,.0f} | {max(8192, int(context)) / speed:.2f} | {against} "
              f"| {memory / 2**20:,.0f} MiB |")


def main():
    arguments = parse()
    kinds = arguments.kinds.split(",") if arguments.kinds else \
        list(KINDS) if arguments.part == "perplexity" else SPEED_KINDS
    if arguments.part == "generation":
        return run_generation(arguments, kinds)
    if arguments.part != "table":
        tokenizer = arguments.tokenizer or make_tokenizer(arguments)
        (run_speed if arguments.part == "speed" else run_perplexity)(arguments, tokenizer, kinds)
    print_tables(arguments.results)


if __name__ == "__main__":
    main()
