"""Measures the speed that attention on the CPU is held to, bar by bar, in one process and one run.

    PYTHONPATH=python .venv/bin/python benchmarks/attention_bars.py
    PYTHONPATH=python .venv/bin/python benchmarks/attention_bars.py --only documents --documents reviews.jsonl
    PYTHONPATH=python .venv/bin/python benchmarks/attention_bars.py --quick --json bars.json

Batch 1, 12 heads of 64, float32 and 2 threads, unless a bar says otherwise. Calls are made as a user makes them:
outputs and gradients allocated anew, the forest made once. What is compared takes turns, so that a busy moment of the
machine hits both; figures are ratios of medians. Exit status 0 when nothing failed, 1 otherwise.

The groups, for --only: main, bfloat16, paper, untied, documents, flat, long, threads, avx2, memory.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Callable, Optional

import torch
from torch.nn.functional import scaled_dot_product_attention

import ramify

HEADS, DIM, THREADS = 12, 64, 2
PASSES = ("forward", "forward + backward")


# Timing: the rules of src/cli/interleaved_timing.h

@dataclass
class Contender:
    call: Callable[[], object]
    before_turn: Callable[[], object] = lambda: None  # untimed


def seconds_of(call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def medians(contenders) -> list:
    """Seconds a call of each. Turns of a tenth of a second until each has 7 calls and half a second; 3 calls do for
    those that take more than a second. A turn of short calls begins with one that is not counted: the caches are
    another's."""
    about = []
    for contender in contenders:
        contender.before_turn()
        first = seconds_of(contender.call)
        about.append(first if first > 1 else seconds_of(contender.call))
    samples = [[] for _ in contenders]

    def enough(i):
        return len(samples[i]) >= 3 if about[i] > 1 else len(samples[i]) >= 7 and sum(samples[i]) >= 0.5

    while not all(enough(i) for i in range(len(contenders))):
        for i, contender in enumerate(contenders):
            if enough(i):
                continue
            contender.before_turn()
            if about[i] < 0.05:
                contender.call()
            turn = 0.0
            while turn < 0.1:
                samples[i].append(seconds_of(contender.call))
                turn += samples[i][-1]
    return [median(times) for times in samples]


# What is timed

def inputs(tokens, steps, dtype=torch.float32, layout="packed"):
    """q, k, v and, for backward, the gradient of the output (else None)."""
    torch.manual_seed(0)
    shape = (tokens, HEADS, DIM) if layout == "packed" else (1, HEADS, tokens, DIM)
    backward = steps == PASSES[1]
    qkv = [torch.randn(shape, dtype=dtype).requires_grad_(backward) for _ in range(3)]
    return qkv, torch.randn(shape, dtype=dtype) if backward else None


def pass_of(function, qkv, grad_out):
    if grad_out is None:
        return lambda: function(*qkv)
    return lambda: torch.autograd.grad(function(*qkv), qkv, grad_out)


def ours(forest, steps, dtype=torch.float32, **options) -> Contender:
    forest.plan(options.get("tie", "block"), options.get("causal", "none"))
    return Contender(pass_of(lambda q, k, v: ramify.attention(q, k, v, forest, **options),
                             *inputs(forest.num_leaves, steps, dtype)))


def sdpa(tokens, steps) -> Contender:
    return Contender(pass_of(scaled_dot_product_attention, *inputs(tokens, steps, layout="heads")))


def windows(tokens, branching="16*"):
    return ramify.Forest.windows([tokens], branching)


# Bars

@dataclass
class Result:
    name: str
    sense: str  # "at least" or "at most"
    bar: float
    measured: Optional[float] = None
    skipped: str = ""
    note: str = ""

    @property
    def verdict(self):
        if self.measured is None:
            return "skip"
        good = self.measured >= self.bar if self.sense == "at least" else self.measured <= self.bar
        return "pass" if good else "FAIL"


def at_least(name, bar, measured, note=""):
    return Result(name, "at least", bar, measured, note=note)


def at_most(name, bar, measured, note=""):
    return Result(name, "at most", bar, measured, note=note)


def in_ms(*seconds):
    return " / ".join(f"{1e3 * s:.3g}" for s in seconds) + " ms"


def main_table(arguments):
    """Against torch's softmax attention and against the composed implementation."""
    bars = {  # tokens: (SDPA / ours, composed / ours), forward and with backward
        512: ((25, 8), (30, 6)),
        4096: ((180, 6), (220, 8)),
        16384: ((500, 12), (700, 15)),
    }
    for tokens, of_passes in bars.items():
        for steps, (sdpa_bar, composed_bar) in zip(PASSES, of_passes):
            names = [f"main: {peer} / ours, {tokens}, {steps}" for peer in ("SDPA", "composed")]
            if arguments.quick and tokens > 4096:
                yield Result(names[0], "at least", sdpa_bar, skipped="--quick")
                yield Result(names[1], "at least", composed_bar, skipped="--quick")
                continue
            forest = windows(tokens)
            mine, composed, peer = medians([ours(forest, steps), ours(forest, steps, implementation="composed"),
                                            sdpa(tokens, steps)])
            yield at_least(names[0], sdpa_bar, peer / mine, in_ms(peer, mine))
            yield at_least(names[1], composed_bar, composed / mine, in_ms(composed, mine))


def bfloat16(_):
    for tokens in (4096, 16384):
        for steps in PASSES:
            forest = windows(tokens)
            single, half = medians([ours(forest, steps), ours(forest, steps, torch.bfloat16)])
            yield at_least(f"bfloat16: float32 / bfloat16, {tokens}, {steps}", 1, single / half, in_ms(single, half))


def paper(_):
    for tokens in (4096, 16384):
        for steps in PASSES:
            uniform, mixed = medians([ours(windows(tokens), steps), ours(windows(tokens, "2,4,8,16"), steps)])
            yield at_most(f"paper: 2,4,8,16 / 16*, {tokens}, {steps}", 1.5, mixed / uniform, in_ms(mixed, uniform))


def untied(_):
    forest = windows(4096)
    for steps in PASSES:
        tied, free = medians([ours(forest, steps), ours(forest, steps, tie="none")])
        yield at_most(f"untied: tie=none / tie=block, 4096, {steps}", 4, free / tied, in_ms(free, tied))


def documents(arguments):
    """Ragged trees against windows of as many leaves."""
    batch, source = read_documents(arguments.documents) if arguments.documents else synthetic_documents()
    forest = ramify.Forest.from_segments(segments_of(batch))
    for steps in PASSES:
        trees, uniform = medians([ours(forest, steps), ours(windows(forest.num_leaves), steps)])
        yield at_most(f"documents: {len(batch)} {source} / 16*, a leaf, {steps}", 2, trees / uniform,
                      f"{in_ms(trees, uniform)}, {forest.num_leaves} leaves")


def flat(_):
    forest = windows(4096, "4096")
    for steps in PASSES:
        mine, peer = medians([ours(forest, steps, include_self=True), sdpa(4096, steps)])
        yield at_most(f"flat: one family of 4096 / SDPA, {steps}", 1.3, mine / peer, in_ms(mine, peer))


def long(arguments):
    tokens, name = 1 << 20, "long: 1048576 / 16384, a leaf, forward"
    needed = 1.4 * 4 * tokens * HEADS * DIM * 4  # q, k, v, out, and room for work
    if arguments.quick:
        yield Result(name, "at most", 1.5, skipped="--quick")
    elif available_bytes() < needed:
        yield Result(name, "at most", 1.5, skipped=f"needs {needed / 1e9:.0f} GB of memory, "
                                                   f"{available_bytes() / 1e9:.0f} GB are available")
    else:
        many, few = medians([ours(windows(tokens), PASSES[0]), ours(windows(16384), PASSES[0])])
        yield at_most(name, 1.5, many / tokens / (few / 16384), in_ms(many, few))


def threads(_):
    """What a second thread gains, and what copying as many bytes gains by it: beyond the caches it cannot be much more."""
    if len(os.sched_getaffinity(0)) < 2:
        yield Result("threads: 1 / 2", "at least", 1.7, skipped="one core")
        return
    for tokens in (512, 4096, 16384):
        for steps, tensors in zip(PASSES, (4, 7 + 4)):  # as the copy floor counts them
            source = torch.ones(tensors * tokens * HEADS * DIM // 2)
            target = torch.empty_like(source)
            calls = (ours(windows(tokens), steps).call, lambda: target.copy_(source))
            one, two, copy_one, copy_two = medians([Contender(call, lambda n=n: torch.set_num_threads(n))
                                                    for call in calls for n in (1, 2)])
            torch.set_num_threads(THREADS)
            yield at_least(f"threads: 1 / 2, {tokens}, {steps}", 1.7, one / two,
                           f"{in_ms(one, two)}; copying {copy_one / copy_two:.2f}")


def avx2(_):
    """The instruction set is chosen once a process, so these are children, in turns."""
    if "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text():
        yield Result("avx2: speed of AVX2 / AVX-512", "at least", 0.5, skipped="the processor has no AVX-512")
        return
    for steps in PASSES:
        rounds = [(child("seconds", steps), child("seconds", steps, RAMIFY_CPU_TARGET="avx2")) for _ in range(3)]
        wide, narrow = (median(times) for times in zip(*rounds))
        yield at_least(f"avx2: speed of AVX2 / AVX-512, 4096, {steps}", 0.5, wide / narrow, in_ms(wide, narrow))


def memory(_):
    extra, tensors = child("memory", PASSES[1])
    yield at_most("memory: beside inputs, outputs, gradients / these", 0.25, extra / tensors,
                  f"{extra / 1e6:.0f} / {tensors / 1e6:.0f} MB, peak RSS of a fresh process, 65536 leaves")


GROUPS = {"main": main_table, "bfloat16": bfloat16, "paper": paper, "untied": untied, "documents": documents,
          "flat": flat, "long": long, "threads": threads, "avx2": avx2, "memory": memory}


# Children: what needs a process of its own

def child(task, steps, **environment):
    command = [sys.executable, __file__, "--child", task, str(PASSES.index(steps))]
    paths = os.pathsep.join(path for path in sys.path if path)
    run = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, **environment}, stdout=subprocess.PIPE,
                         text=True, check=True)
    return json.loads(run.stdout)


def child_seconds(steps):
    return medians([ours(windows(4096), steps)])[0]


def child_memory(steps):
    """What one pass adds to the memory in use at its peak, less its outputs and gradients; and the bytes of inputs,
    outputs and gradients (q, k, v, out, and the gradients by q, k and v)."""
    ours(windows(256), steps).call()  # code and threads
    forest = windows(65536).plan()
    call = ours(forest, steps).call
    tensor = forest.num_leaves * HEADS * DIM * 4
    before = process_bytes("VmRSS")
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    except OSError:
        pass  # then the peak is that of making the inputs, which need no more than they are
    results = call()
    peak = process_bytes("VmHWM")
    del results
    return peak - before - 4 * tensor, 7 * tensor


def process_bytes(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def available_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return math.inf


def implementation_of_auto():
    """What implementation="auto" takes, as RAMIFY_LOG=dispatch tells."""
    code = ("import torch, ramify; x = torch.randn(64, 12, 64); "
            "ramify.attention(x, x, x, ramify.Forest.windows([64], '16*'))")
    environment = {**os.environ, "RAMIFY_LOG": "dispatch", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True, check=True)
    lines = [line for line in run.stderr.splitlines() if "attention forward" in line]
    return lines[-1].rsplit(": ", 1)[-1] if lines else "unknown"


# Documents: lists of paragraphs, which are lists of sentences, given as their numbers of words

BATCH = 64


def segments_of(batch):
    """The levels that Forest.from_segments takes: words of sentences, sentences of paragraphs, paragraphs."""
    return ([words for document in batch for paragraph in document for words in paragraph],
            [len(paragraph) for document in batch for paragraph in document],
            [len(document) for document in batch])


def synthetic_documents():
    """Lengths as in news: about 19 words a sentence, two or three sentences a paragraph, 3 to 14 paragraphs."""
    draw = random.Random(0)

    def sentence():
        return min(80, max(2, round(draw.lognormvariate(2.8, 0.55))))

    return [[[sentence() for _ in range(draw.choice((1, 1, 2, 2, 2, 3, 4, 6)))] for _ in range(draw.randint(3, 14))]
            for _ in range(BATCH)], "synthetic documents"


def read_documents(path):
    """The first documents of a file: JSON records, one a line, or plain text, 8 paragraphs each; also with .zst."""
    if path.endswith(".zst"):
        text = subprocess.run(["zstd", "-dc", path], stdout=subprocess.PIPE, check=True).stdout.decode()
    else:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    if path.removesuffix(".zst").endswith(".jsonl"):
        texts = ("\n\n".join(strings(json.loads(line))) for line in text.splitlines() if line.strip())
        paragraphs = (re.split(r"\n\s*\n", document) for document in texts)
    else:
        all_paragraphs = [paragraph for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
        paragraphs = (all_paragraphs[i:i + 8] for i in range(0, len(all_paragraphs), 8))
    batch = []
    for document in paragraphs:
        counted = [counts for counts in map(sentences, document) if counts]
        if counted:
            batch.append(counted)
        if len(batch) == BATCH:
            return batch, f"documents of {pathlib.Path(path).name}"
    raise SystemExit(f"attention_bars: {path} has {len(batch)} documents; expected at least {BATCH}")


def sentences(paragraph):
    counts = (len(sentence.split()) for sentence in re.split(r"(?<=[.!?])\s+", paragraph))
    return [count for count in counts if count]


def strings(value):
    """The texts of a record, in order, without its label."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "label":
                yield from strings(item)


# Output

def machine():
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {"cpu": names[0] if names else "unknown processor", "threads": torch.get_num_threads(),
            "torch": torch.__version__, "ramify": ramify.__version__, "auto": implementation_of_auto()}


def line_of(result):
    measured = "-" if result.measured is None else f"{result.measured:.3g}"
    return (f"{result.verdict:5} {result.name:66} {result.sense:8} {result.bar:<6g} {measured:>8}  "
            f"{result.skipped or result.note}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=GROUPS, help="these groups of bars")
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    parser.add_argument("--documents", metavar="FILE", help=".jsonl or text, also .zst; default: synthetic lengths")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.documents and not os.path.isfile(arguments.documents):
        parser.error(f"--documents {arguments.documents}: no such file")
    return arguments


def main():
    arguments = parse_arguments()
    torch.set_num_threads(THREADS)
    if arguments.child:
        task = {"seconds": child_seconds, "memory": child_memory}[arguments.child[0]]
        print(json.dumps(task(PASSES[int(arguments.child[1])])))
        return 0
    about = machine()
    print(f"{about['cpu']}, {about['threads']} threads, torch {about['torch']}; auto takes {about['auto']}\n")
    results = []
    for name in arguments.only or GROUPS:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        for result in GROUPS[name](arguments):
            results.append(result)
            print(line_of(result), flush=True)
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in ("pass", "FAIL", "skip")}
    print(f"\n{counts['pass']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    if arguments.json:
        rows = [{**asdict(result), "verdict": result.verdict.lower()} for result in results]
        pathlib.Path(arguments.json).write_text(json.dumps({"machine": about, "bars": rows}, indent=2) + "\n")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
