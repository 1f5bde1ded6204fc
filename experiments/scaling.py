#!/usr/bin/env python3
"""How much faster N processes with one thread each train than one: leaves a second, a JSON object a turn, one for all.

usage: experiments/scaling.py [--processes 2] [--steps 60] [--repeats 3] [--data FILE --target FIELD] [-- OPTION …]

Without --data the records are made up: 200 words in sentences and paragraphs on average, some with much less and some
with much more, 20,000 different words. OPTIONs go to `ramify train`, such as --config paper-language. A turn is a run
of one process, one of N together, and N runs of one process at the same time that have nothing to do with each other:
what the machine has to give. The first steps of a run do not count. Machines vary: a run is compared with that of its
turn, and the middle turn is taken. `others` is how many processors other programs had during a turn; only turns with
next to none say something.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SKIPPED = 0.25  # of the steps


def write_records(path, count):
    pick = random.Random(0)

    def sentence():
        return " ".join(f"w{int(20000 * pick.random() ** 3)}" for _ in range(pick.randrange(5, 25))).capitalize() + "."

    def paragraph():
        return " ".join(sentence() for _ in range(pick.randrange(1, 6)))

    with open(path, "w") as file:
        for _ in range(count):
            label = pick.choice(["a", "b", "c"])
            body = "\n\n".join(paragraph() for _ in range(int(pick.lognormvariate(1.2, 0.6)) + 1))
            file.write(json.dumps({"title": f"about {label}", "body": body, "label": label}) + "\n")


def start(processes, data, options, out):
    command = ["train", data, "--target", options.target, "--batch-records", "32", "--threads", "1", "--epochs", "1",
               "--valid-fraction", "0", "--explain", "0", "--log-every", str(max(1, int(options.steps * SKIPPED))),
               "--out", str(out), *options.more]
    program = [sys.executable, "-m"]
    if processes > 1:
        program += ["torch.distributed.run", f"--nproc-per-node={processes}", "--local-addr=localhost", "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([*program, "ramify", *command], env=environment, stdout=subprocess.DEVNULL,
                            stderr=None if options.verbose else subprocess.DEVNULL)


def speed(out):
    """Leaves a second of a run, from the middle of its lines of metrics."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["split"] == "train"]
    first, last = lines[0], lines[-1]
    leaves = last["leaves_per_second"] * last["seconds"] / last["step"]  # a step
    return leaves * (last["step"] - first["step"]) / (last["seconds"] - first["seconds"])


def busy_seconds():
    """Of all processors for all programs, and of them for those that this one has started and that have ended."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, interrupts, soft, stolen = map(int, file.readline().split()[1:9])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = user + nice + system + interrupts + soft + stolen
    return ticks / os.sysconf("SC_CLK_TCK"), used.ru_utime + used.ru_stime


def run(runs, processes, options, folder, name):
    """Leaves a second of so many runs at the same time, together."""
    data = options.data or f"{folder}/{processes}.jsonl"
    outs = [pathlib.Path(folder) / f"{name}-{i}" for i in range(runs)]
    started = [start(processes, data, options, out) for out in outs]
    if any([program.wait() for program in started]):  # of all, before one may end
        sys.exit(f"{name}: a run failed; --verbose shows what it says")
    return sum(speed(out) for out in outs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data")
    parser.add_argument("--target", default="label")
    parser.add_argument("--verbose", action="store_true", help="show what the runs say")
    parser.add_argument("more", nargs="*", metavar="OPTION")
    options = parser.parse_args()
    several = options.processes
    kinds = {"one": (1, 1), "together": (1, several), "apart": (several, 1)}  # runs, processes of each
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        for processes in {1, several}:
            if not options.data:
                write_records(f"{folder}/{processes}.jsonl", 32 * processes * options.steps)
        for turn in range(options.repeats):
            began, busy, own = time.monotonic(), *busy_seconds()
            turns.append({kind: run(*how, options, folder, f"{kind}-{turn}") for kind, how in kinds.items()})
            busy_later, own_later = busy_seconds()
            others = (busy_later - busy - (own_later - own)) / (time.monotonic() - began)
            print(json.dumps({"leaves_per_second": turns[-1], "others": others}), flush=True)
    times = {kind: [turn[kind] / turn["one"] for turn in turns] for kind in ("together", "apart")}
    print(json.dumps({"processes": several, "times_as_fast": statistics.median(times["together"]),
                      "from": min(times["together"]), "to": max(times["together"]),
                      "apart_times_as_fast": statistics.median(times["apart"])}))


if __name__ == "__main__":
    main()
