#!/usr/bin/env python3
"""Where the time of training goes: samples a command with perf and groups what it finds, in two ways.

usage: experiments/profile.py [--after SECONDS] [--seconds SECONDS] [--operations N] -- build/release/ramify train ...

main thread: percent of the wall time of the thread that trains. What it waits for at the end of a parallel part belongs
to the operation that waits; time in which it sleeps is "asleep". Time in which it could run but other programs (or perf)
had its processor is left out, and said: on a quiet machine there is little. A call of the attention op counts with all
that it calls; of everything else the innermost torch operation counts, so that the bias that is copied before a product
is no product.

all samples: percent of the samples of all threads, by the function that was running. Threads that have nothing to do
spin for a while, and are counted as waiting.

The command is stopped after the sampling. Needs perf (Debian: linux-perf) and the right to use it.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

PRODUCTS, ATTENTION, WAITING = "matrix products", "attention op", "waiting for the other thread"
ASLEEP, OTHER, MEMORY = "asleep", "other operations", "memory from the system"

# The first that matches "symbol (library)" counts.
GROUPS = (
    (PRODUCTS, r"gemm|gemv|dnnl_|mkl_blas|_scopy_"),
    ("layer norm", r"[Ll]ayer_?[Nn]orm|RowwiseMoments|GammaBeta|norm_(forward|backward|centre|load|store)|HeadNorm"),
    ("activation", r"[Gg]elu"),
    ("optimizer and clipping", r"[Aa]dam|norm_kernel|clip|lerp|addcdiv|addcmul"),
    ("rows of tables", r"sum_taken|taken_rows|TakeRows|[Ee]mbedding"),
    (ATTENTION, r"libramify_kernels|libramify_ops"),
    ("reading and batching", r"libramify_(signal|text|io|report|train)|libicu|libzstd|nlohmann|libsentencepiece"),
    (WAITING, r"libgomp|libpthread|futex|sched"),
    (MEMORY, r"\[kernel|libc\.so|WarmMemory"),
    (OTHER, r""),
)

# Of the main thread: what is anywhere in the stack of calls; else the innermost call that one of OPERATIONS matches.
ANYWHERE = (
    (ATTENTION, r"ramify::(fused_op|run_forward|run_backward|call_attention)"),
    ("layer norm", r"norm_(forward|backward)|HeadNorm"),
    ("activation", r"bias_gelu|BiasGelu"),
    ("optimizer and clipping", r"AdamW::|adamw"),
    ("rows of tables", r"TakeRows|taken_rows"),
)
OPERATIONS = (
    (PRODUCTS, r"gemm|gemv|mkl_blas|at::_ops::(mm|addmm|addmm_|bmm|baddbmm|linear)(_\w+)?::"),
    ("layer norm", r"at::_ops::native_layer_norm"),
    ("activation", r"at::_ops::gelu"),
    ("rows of tables", r"at::_ops::_?embedding"),
    (ATTENTION, r"ramify::cpu::"),
    (MEMORY, r"WarmMemory|^_int_|malloc|memalign|^(__)?(cfree|free|munmap|madvise)\b"),
    (OTHER, r"at::_ops::|RangeMeans"),
    ("reading and batching", r"ramify::train::(Feeder|to_tensors)|ramify::signal::"),
    ("autograd", r"torch::autograd::"),
)


def sample(command: list[str], after: float, seconds: float, data: Path) -> tuple[float, float]:
    """Samples into data/main and data/all. The parts of the time that the main thread ran, and had to wait for others."""
    with tempfile.TemporaryFile() as log:
        program = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            time.sleep(after)
            if program.poll() is not None:
                log.seek(0)
                sys.exit(f"the command ended before its profile:\n{log.read().decode(errors='replace')}")
            ran, waited, began = *seconds_of_main_thread(program.pid), time.monotonic()
            pid, pause = str(program.pid), ["--", "sleep", str(seconds)]
            stacks_of_main = ["--call-graph", "dwarf,16384", "-F", "197", "-t", pid, "-o", data / "main"]
            others = subprocess.Popen(["perf", "record", "-q", "-F", "499", "-p", pid, "-o", data / "all", *pause])
            subprocess.run(["perf", "record", "-q", *stacks_of_main, *pause], check=True)
            ran, waited = (now - then for now, then in zip(seconds_of_main_thread(program.pid), (ran, waited)))
            wall = time.monotonic() - began
            others.wait()
        finally:
            program.send_signal(signal.SIGINT)
            program.wait()
    return min(ran / wall, 1.0), waited / wall


def seconds_of_main_thread(pid: int) -> tuple[float, float]:
    """How long it ran, and how long it could have but there was no processor."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran) * 1e-9, int(waited) * 1e-9


def stacks(data: Path):
    """Calls ("symbol (library)", innermost first) of each sample."""
    script = ["perf", "script", "-i", data, "-F", "ip,sym,dso", "--no-inline"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as lines:
        frames = []
        for line in lines.stdout:
            words = line.split(maxsplit=1)
            if len(words) > 1:
                frames.append(words[1].strip())
            elif frames:
                yield frames
                frames = []
        if frames:
            yield frames


def leaf_shares(data: Path) -> Counter:
    """Percent of the samples by group, whoever called."""
    report = ["perf", "report", "-i", data, "--no-children", "--sort", "dso,symbol", "--field-separator", "|"]
    lines = subprocess.run(report, check=True, capture_output=True, text=True).stdout.splitlines()
    shares = Counter()
    for line in lines:
        if match := re.match(r"\s*([\d.]+)%?\s*\|(.*)", line):
            shares[group_of(match[2])] += float(match[1])
    return shares


def group_of(frame: str) -> str:
    return next(group for group, pattern in GROUPS if re.search(pattern, frame))


def operation_of(frames: list[str]) -> tuple[str, str]:
    """The group of a stack of calls, and what it is more precisely."""
    for group, pattern in ANYWHERE:
        if any(re.search(pattern, frame) for frame in frames):
            return group, group
    for frame in frames:
        for group, pattern in OPERATIONS:
            if re.search(pattern, frame):
                name = re.search(r"at::_ops::(\w+)::", frame)
                return group, f"{group}: {name[1] if name else frames[0][:70]}"
    return group_of(frames[0]), f"{group_of(frames[0])}: {frames[0][:70]}"


def print_table(title: str, counts: Counter, order: list[str], scale: float) -> None:
    print(title)
    for name in order:
        if counts[name]:
            print(f"  {name:<30}{scale * counts[name]:6.1f}%")
    print(f"  {'products and attention':<30}{scale * (counts[PRODUCTS] + counts[ATTENTION]):6.1f}%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--after", type=float, default=15, help="seconds before the samples begin [15]")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of samples [20]")
    parser.add_argument("--operations", type=int, default=0, help="also the N largest operations of the main thread")
    parser.add_argument("command", nargs="+", help="what is run, after --")
    options = parser.parse_args()
    of_main, operations = Counter(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        running, robbed = sample(options.command, options.after, options.seconds, data)
        for frames in stacks(data / "main"):
            group, name = operation_of(frames)
            of_main[group] += 1
            operations[name] += 1
        everything = leaf_shares(data / "all")
    if not of_main:
        sys.exit("perf found nothing of the main thread")
    awake = min(running / (1 - robbed), 1.0)
    scale = 100 * awake / of_main.total()
    of_main[ASLEEP] = of_main.total() * (1 / awake - 1)
    order = [name for name, _ in GROUPS[:-1]] + ["autograd", OTHER, ASLEEP]
    print_table("main thread, percent of wall time", of_main, order, scale)
    print(f"  ({100 * robbed:.1f}% more: other programs had its processor)")
    for name, count in operations.most_common(options.operations):
        print(f"    {scale * count:6.2f}%  {name}")
    print_table("all threads, percent of samples", everything, order, 100 / everything.total())


if __name__ == "__main__":
    main()
