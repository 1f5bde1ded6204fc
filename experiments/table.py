"""Prints the results of experiments/text.sh as a Markdown table: mean and deviation over the seeds of each kind."""

import json
import pathlib
import statistics
import sys


def rounded(values, digits):
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def read(folder):
    """(attention, seed, config, evaluation, leaves/s while training) of one run."""
    config = json.loads((folder / "config.json").read_text())
    evaluation = json.loads((folder / "evaluation.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    speeds = [line["leaves_per_second"] for line in lines if line["split"] == "train"]
    return config["attention"], config["seed"], config, evaluation, statistics.median(speeds)


def main(results):
    print("| task | attention | seeds | test accuracy | macro F1 | against flat | parameters | leaves/s | peak memory |")
    print("|---|---|---|---|---|---|---|---|---|")
    for task in sorted(path for path in results.iterdir() if path.is_dir()):
        runs = [read(path.parent) for path in sorted(task.glob("*/evaluation.json"))]
        flat = {seed: evaluation["test"]["accuracy"] for kind, seed, _, evaluation, _ in runs if kind == "flat"}
        for attention in ("hierarchical", "flat", "none"):
            mine = [run for run in runs if run[0] == attention]
            if not mine:
                continue
            scores = [evaluation["test"] for _, _, _, evaluation, _ in mine]
            against = [100 * (evaluation["test"]["accuracy"] - flat[seed]) for kind, seed, _, evaluation, _ in mine
                       if seed in flat and kind != "flat"]
            memory = max(evaluation["peak_memory_bytes"] for _, _, _, evaluation, _ in mine)
            print(f"| {task.name} | {attention} | {len(mine)} | {rounded([s['accuracy'] for s in scores], 4)} "
                  f"| {rounded([s['macro_f1'] for s in scores], 4)} "
                  f"| {rounded(against, 2) + ' points' if against else ''} "
                  f"| {mine[0][2]['parameters']['encoder'] / 1000:.0f} k "
                  f"| {statistics.median(speed for *_, speed in mine) / 1000:.0f} k | {memory / 2**20:.0f} MiB |")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
