#!/usr/bin/env python3
"""Where the time of training goes: samples a command with perf and groups what it finds.

usage: experiments/profile.py [--after SECONDS] [--seconds SECONDS] -- build/release/ramify train DATA --target ...

The command is stopped after the sampling. Needs perf (Debian: linux-perf) and the right to use it.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The first that matches "library symbol" counts.
GROUPS = (
    ("matrix products", r"gemm|gemv|dnnl|mkl_blas|sgemm|_scopy_"),
    ("attention op", r"libramify_kernels|libramify_ops"),
    ("layer norm", r"[Ll]ayer_?[Nn]orm|RowwiseMoments|GammaBeta"),
    ("optimizer and clipping", r"[Aa]dam|norm_kernel|clip|lerp|addcdiv|addcmul"),
    ("reading and batching", r"libramify_(signal|text|io|report|train)|libicu|libzstd|nlohmann|libsentencepiece"),
    ("waiting for the other thread", r"libgomp|libpthread|futex|sched"),
    ("memory from the system", r"\[kernel|libc\.so"),
    ("other operations", r""),
)


def group_of(name: str) -> str:
    return next(group for group, pattern in GROUPS if re.search(pattern, name))


def sample(command: list[str], after: float, seconds: float, data: Path) -> None:
    with tempfile.TemporaryFile() as log:
        program = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            time.sleep(after)
            if program.poll() is not None:
                log.seek(0)
                sys.exit(f"the command ended before its profile:\n{log.read().decode(errors='replace')}")
            perf = ["perf", "record", "-q", "-F", "499", "-o", data, "-p", str(program.pid), "--", "sleep", str(seconds)]
            subprocess.run(perf, check=True)
        finally:
            program.send_signal(signal.SIGINT)
            program.wait()


def shares(data: Path) -> dict[str, float]:
    report = ["perf", "report", "-i", data, "--no-children", "--sort", "dso,symbol", "--field-separator", "|"]
    lines = subprocess.run(report, check=True, capture_output=True, text=True).stdout.splitlines()
    result = dict.fromkeys((name for name, _ in GROUPS), 0.0)
    for line in lines:
        if match := re.match(r"\s*([\d.]+)%?\s*\|(.*)", line):
            result[group_of(match[2])] += float(match[1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--after", type=float, default=15, help="seconds before the samples begin [15]")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of samples [20]")
    parser.add_argument("command", nargs="+", help="what is run, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        sample(options.command, options.after, options.seconds, data)
        table = shares(data)
    for name, share in table.items():
        print(f"{name:<30}{share:6.1f}%")
    print(f"{'products and attention':<30}{table['matrix products'] + table['attention op']:6.1f}%")


if __name__ == "__main__":
    main()
