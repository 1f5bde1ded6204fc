#!/usr/bin/env python3
"""Where the time of training goes: samples a command with perf and groups what it finds, in two ways.

usage: experiments/profile.py [--after SECONDS] [--seconds SECONDS] [--operations N] -- build/release/ramify train ...

main thread: percent of the wall time of the thread that trains. What it waits for at the end of a parallel part belongs
to the operation that waits; time in which it does not run at all is "asleep". A call of the attention op counts with all
that it calls; of everything else the innermost torch operation counts, so that the bias that is copied before a product
is no product.

all samples: percent of the samples of all threads, by the function that was running. Threads that have nothing to do
spin for a while, and are counted as waiting.

The command is stopped after the sampling. Needs perf (Debian: linux-perf) and the right to use it.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

PRODUCTS, ATTENTION, WAITING = "matrix products", "attention op", "waiting for the other thread"
ASLEEP, OTHER = "asleep", "other operations"

# The first that matches "symbol (library)" counts.
GROUPS = (
    (PRODUCTS, r"gemm|gemv|dnnl_|mkl_blas|_scopy_"),
    ("layer norm", r"[Ll]ayer_?[Nn]orm|RowwiseMoments|GammaBeta|norm_(forward|backward)|centre_row|HeadNorm"),
    ("activation", r"[Gg]elu|bias_gelu"),
    ("optimizer and clipping", r"[Aa]dam|norm_kernel|clip|lerp|addcdiv|addcmul"),
    ("rows of tables", r"sum_rows|sum_taken|taken_rows|TakeRows|[Ee]mbedding"),
    (ATTENTION, r"libramify_kernels|libramify_ops"),
    ("reading and batching", r"libramify_(signal|text|io|report|train)|libicu|libzstd|nlohmann|libsentencepiece"),
    (WAITING, r"libgomp|libpthread|futex|sched"),
    ("memory from the system", r"\[kernel|libc\.so"),
    (OTHER, r""),
)

# Of the main thread: the op wherever it is in the stack; else the innermost frame that one of these matches.
IN_ATTENTION = re.compile(r"ramify::(fused_op|run_forward|run_backward|call_attention)")
OPERATIONS = (
    (PRODUCTS, r"gemm|gemv|mkl_blas|at::_ops::(mm|addmm|addmm_|bmm|baddbmm|linear)(_\w+)?::"),
    ("layer norm", r"norm_(forward|backward)|HeadNorm|at::_ops::native_layer_norm"),
    ("activation", r"BiasGelu|at::_ops::gelu"),
    ("optimizer and clipping", r"AdamW::|adamw"),
    ("rows of tables", r"TakeRows|at::_ops::_?embedding"),
    (ATTENTION, r"ramify::cpu::"),
    (OTHER, r"at::_ops::"),
    ("reading and batching", r"ramify::train::(Feeder|to_tensors)|ramify::signal::"),
    ("autograd", r"torch::autograd::"),
)


def sample(command: list[str], after: float, seconds: float, data: Path) -> tuple[int, float]:
    """The process, and the part of the time that its main thread ran."""
    with tempfile.TemporaryFile() as log:
        program = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            time.sleep(after)
            if program.poll() is not None:
                log.seek(0)
                sys.exit(f"the command ended before its profile:\n{log.read().decode(errors='replace')}")
            ran, began = seconds_of_main_thread(program.pid), time.monotonic()
            perf = ["perf", "record", "-q", "-F", "199", "--call-graph", "dwarf,16384", "-o", data, "-p", str(program.pid)]
            subprocess.run([*perf, "--", "sleep", str(seconds)], check=True)
            ran, wall = seconds_of_main_thread(program.pid) - ran, time.monotonic() - began
        finally:
            program.send_signal(signal.SIGINT)
            program.wait()
    return program.pid, min(ran / wall, 1.0)


def seconds_of_main_thread(pid: int) -> float:
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stacks(data: Path):
    """Thread and frames ("symbol (library)", innermost first) of each sample."""
    script = ["perf", "script", "-i", data, "-F", "tid,ip,sym,dso", "--no-inline"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as lines:
        thread, frames = 0, []
        for line in lines.stdout:
            words = line.split(maxsplit=1)
            if not words:
                if frames:
                    yield thread, frames
                frames = []
            elif len(words) == 1:
                thread = int(words[0])
            else:
                frames.append(words[1].strip())
        if frames:
            yield thread, frames


def group_of(frame: str) -> str:
    return next(group for group, pattern in GROUPS if re.search(pattern, frame))


def operation_of(frames: list[str]) -> tuple[str, str]:
    """The group of a stack, and a name of what it is more precisely."""
    if any(IN_ATTENTION.search(frame) for frame in frames):
        return ATTENTION, "attention"
    for frame in frames:
        for group, pattern in OPERATIONS:
            if re.search(pattern, frame):
                name = re.search(r"at::_ops::(\w+)::", frame) or re.search(r"((?:\w+::)*\w+)\(?", frame)
                return group, name[1] if group != PRODUCTS else "product"
    return (group_of(frames[0]), frames[0][:60])


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
    everything, of_main, operations = Counter(), Counter(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        main_thread, running = sample(options.command, options.after, options.seconds, data)
        for thread, frames in stacks(data):
            everything[group_of(frames[0])] += 1
            if thread == main_thread:
                group, name = operation_of(frames)
                of_main[group] += 1
                operations[name] += 1
    if not of_main:
        sys.exit("perf found nothing of the main thread")
    scale = 100 * running / of_main.total()
    of_main[ASLEEP] = of_main.total() * (1 / running - 1)
    order = [name for name, _ in GROUPS[:-1]] + ["autograd", OTHER, ASLEEP]
    print_table("main thread, percent of wall time", of_main, order, scale)
    for name, count in operations.most_common(options.operations):
        print(f"    {scale * count:6.2f}%  {name}")
    print_table("all threads, percent of samples", everything, order, 100 / everything.total())


if __name__ == "__main__":
    main()
