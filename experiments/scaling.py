#!/usr/bin/env python3
"""How much faster N processes with one thread each train than one: leaves a second, a JSON object a run and one for all.

usage: experiments/scaling.py [--processes 2] [--steps 60] [--repeats 2] [--data FILE --target FIELD] [-- OPTION …]

Without --data the records are made up: 200 words in sentences and paragraphs on average, some with much less and some
with much more, 20,000 different words. OPTIONs go to `ramify train`, such as --config paper-language. The first steps
of a run do not count, runs take turns, and the middle one of each kind is taken.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

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


def run(processes, arguments, options, out):
    """Steps a second and leaves a second of a run, from the middle of its lines of metrics."""
    command = [*arguments, "--batch-records", "32", "--threads", "1", "--epochs", "1", "--valid-fraction", "0",
               "--explain", "0", "--log-every", str(max(1, int(options.steps * SKIPPED))), "--out", str(out),
               *options.more]
    program = [sys.executable, "-m"]
    if processes > 1:
        program += ["torch.distributed.run", f"--nproc-per-node={processes}", "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([*program, "ramify", *command], check=True, env=environment, stdout=subprocess.DEVNULL,
                   stderr=None if options.verbose else subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["split"] == "train"]
    first, last = lines[0], lines[-1]
    leaves = last["leaves_per_second"] * last["seconds"] / last["step"]  # a step
    rate = (last["step"] - first["step"]) / (last["seconds"] - first["seconds"])
    return {"processes": processes, "steps": last["step"], "steps_per_second": rate, "leaves_per_second": rate * leaves}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--data")
    parser.add_argument("--target", default="label")
    parser.add_argument("--verbose", action="store_true", help="show what the runs say")
    parser.add_argument("more", nargs="*", metavar="OPTION")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rates = {1: [], options.processes: []}
        for processes in rates:
            if not options.data:
                write_records(f"{folder}/{processes}.jsonl", 32 * processes * options.steps)
        for repeat in range(options.repeats):
            for processes in rates:
                data = options.data or f"{folder}/{processes}.jsonl"
                result = run(processes, ["train", data, "--target", options.target], options,
                             pathlib.Path(folder) / f"{processes}-{repeat}")
                print(json.dumps(result), flush=True)
                rates[processes].append(result["leaves_per_second"])
        one, several = (statistics.median(rates[count]) for count in rates)
        print(json.dumps({"processes": options.processes, "times_as_fast": several / one}))


if __name__ == "__main__":
    main()
