"""What the experiments have in common: the runs of a config, each done once, and a line of JSON for each that is done.

A config has factors, such as the task and the attention; a run takes one level of each. What `ramify train` is told is the
config's options with those of its levels laid over, in the order of the factors. experiments/README.md says more.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("RAMIFY", str(ROOT / "build" / "release" / "ramify"))
FILES = ("train", "valid", "test")
SLOTS = "RAMIFY_EXPERIMENT_SLOTS"  # the pipe of experiments/all


def merged(*parts):
    """Objects laid over each other; those inside of them, too. null takes an option away."""
    whole = {}
    for part in parts:
        for name, value in part.items():
            both = isinstance(value, dict) and isinstance(whole.get(name), dict)
            whole[name] = merged(whole[name], value) if both else value
    return {name: value for name, value in whole.items() if value is not None}


def words(options):
    """{"rate": 0.1, "resume": true, "set": {"model.dropout": 0}} as on a command line."""
    for name, value in options.items():
        if name == "set":
            for path, setting in value.items():
                yield from ("--set", f"{path}={setting if isinstance(setting, str) else json.dumps(setting)}")
        elif value is True:
            yield f"--{name}"
        else:
            yield from (f"--{name}", str(value))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@contextlib.contextmanager
def slot():
    """One of the places that `experiments/all` gives out, as bytes in a pipe; without it nobody else asks for one."""
    if SLOTS not in os.environ:
        yield
        return
    taken_from, given_back = map(int, os.environ[SLOTS].split(","))
    token = os.read(taken_from, 1)
    try:
        yield
    finally:
        os.write(given_back, token)


def stored(path):
    """A file of the data folder, or the same unpacked."""
    return path if path.exists() or path.suffix != ".zst" else path.with_suffix("")


def read_records(path):
    """Lines of a .jsonl or .jsonl.zst file."""
    path = stored(path)
    if path.suffix == ".zst":
        text = subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout.decode()
    else:
        text = path.read_text()
    return text.removesuffix("\n").split("\n")  # splitlines would also divide at rarer line ends, inside of texts


def runs_of(config):
    """The levels of each run, as {factor: level}."""
    names, levels = list(config["factors"]), [list(factor) for factor in config["factors"].values()]
    for chosen in itertools.product(*levels):
        run = dict(zip(names, chosen))
        if not any(fits(run, left_out) for left_out in config.get("leave_out", [])):
            yield run


def fits(run, where):
    """Whether a run has one of the levels that `where` names, for each factor in it."""
    return all(run.get(name) in (level if isinstance(level, list) else [level]) for name, level in where.items())


def drawn(space, count):
    """Settings of a random search: the same ones for every model, so that none gets more tries or better ones."""
    pick, settings = random.Random(0), []
    for _ in range(min(count, math.prod(map(len, space.values())))):
        while (setting := {name: pick.choice(values) for name, values in space.items()}) in settings:
            pass
        settings.append(setting)
    return settings


def as_options(setting):
    """Names with a dot are values of the model's config."""
    plain = {name: value for name, value in setting.items() if "." not in name}
    inside = {name: value for name, value in setting.items() if "." in name}
    return {**plain, "set": inside} if inside else plain


class MissingData(Exception):
    pass


class Experiment:
    def __init__(self, script, made, arguments):
        self.folder = pathlib.Path(script).resolve().parent
        self.config = config_of(self.folder)
        self.arguments, self.made = arguments, made
        self.reduced = self.config["reduced"] if arguments.reduced else {}
        work = ROOT / "build" / "experiments" / self.folder.name
        self.work = arguments.runs or (work / "reduced" if arguments.reduced else work)
        self.work.mkdir(parents=True, exist_ok=True)
        results = arguments.results or (self.work if arguments.reduced else self.folder)
        self.results, self.searched = results / "results.jsonl", results / "search.jsonl"
        results.mkdir(parents=True, exist_ok=True)
        self.places = {"data": arguments.data, "models": arguments.models or arguments.data.parent / "models",
                       "here": self.folder, "work": self.work}
        self.lock, self.failed = threading.Lock(), False

    def file(self, name, part, options):
        """A file of records: of the data folder, made by the experiment, or a part of one, written down once."""
        if name in self.made:
            path = self.work / "data" / name
            self.write_once(path, lambda: self.made[name](self.arguments.data, part))
        else:
            path = stored(self.arguments.data / name)
        if not path.exists():
            raise MissingData(f"{path} is not there")
        share, limit = options.get("test_share"), self.reduced.get("records") or options.get("records", {}).get(part)
        if not (share or limit):
            return path

        def chosen():
            records = read_records(path)
            random.Random(0).shuffle(records)
            if share:
                cut = round(share * len(records))
                records = records[:cut] if part == "test" else records[cut:]
            return records[:limit]

        kept = self.work / "data" / f"{part}-{limit or 'all'}-{name.replace('/', '-').removesuffix('.zst')}"
        self.write_once(kept, chosen)
        return kept

    def write_once(self, path, records):
        with self.lock:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_suffix(f".{os.getpid()}.part")
                part.write_text("".join(f"{record}\n" for record in records()))
                part.replace(path)

    def options_of(self, run):
        """Laid over each other; {task} in a value stands for the run's level of that factor."""
        options = merged(self.config.get("options", {}),
                         *(self.config["factors"][name][level] for name, level in run.items()),
                         *(other.get("options", {}) for other in self.overrides(run)),
                         self.reduced.get("options", {}))
        for factor, level in run.items():
            options = {name: value.replace(f"{{{factor}}}", level) if isinstance(value, str) else value
                       for name, value in options.items()}
        return options

    def overrides(self, run):
        return [other for other in self.config.get("overrides", []) if fits(run, other["where"])]

    def wanted(self):
        """The runs that --only and --reduced leave."""
        only = [name for name in (self.arguments.only or "").split(",") if name]
        levels = {level for factor in self.config["factors"].values() for level in factor}
        if unknown := set(only) - levels:
            sys.exit(f"{self.folder.name}: there is no {', '.join(sorted(unknown))}; expected {', '.join(levels)}")
        chosen = {name: [level for level in factor if level in only]
                  for name, factor in self.config["factors"].items() if set(factor) & set(only)}
        return [run for run in runs_of(self.config) if fits(run, chosen) and fits(run, self.reduced.get("levels", {}))]

    def command(self, options, seed, out):
        files = {part: self.file(options[part], part, options) for part in FILES if part in options}
        plain = {name: value for name, value in options.items() if name not in (*FILES, "test_share", "records")}
        placed = {name: value.format(**self.places) if isinstance(value, str) else value
                  for name, value in plain.items()}
        given = {"seed": seed, "device": self.arguments.device, "threads": self.arguments.threads,
                 "workers": self.arguments.threads, "resume": True, "out": out}
        return [PROGRAM, "train", str(files.pop("train")), *words(files), *words(merged({"explain": 0}, placed, given))]

    def shown(self, command):
        """A command as it is given in the results: the program and folders by name."""
        text = shlex.join(["ramify", *command[1:]])
        for name, folder in sorted(self.places.items(), key=lambda place: -len(str(place[1]))):
            text = text.replace(str(folder), name.upper())
        return text

    def train(self, options, seed, name):
        """One run of `ramify train`, and what it found."""
        out = self.work / f"{name.replace('/', '-')}-{seed}"
        command = self.command(options, seed, out)
        with open(f"{out}.log", "a") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
                           if self.arguments.threads == 1 else None)
        return {**found_in(out), "command": self.shown(command)}

    def do(self, name, line, path, perform, options, seed):
        """Performs a run that is not in the results yet, and adds its line to them."""
        line = {"run": name, **line, "seed": seed, "options": options}
        if any(all(done.get(part) == value for part, value in line.items()) for done in read_lines(path)):
            return
        try:
            with slot():
                print(f"{self.folder.name}: {name}, seed {seed}", file=sys.stderr, flush=True)
                began = time.monotonic()
                found = perform(merged(options), seed, name)
        except MissingData as error:
            return print(f"left out: {error}", file=sys.stderr)
        except subprocess.CalledProcessError as error:
            self.failed = True
            return print(f"failed: {shlex.join(map(str, error.cmd))}", file=sys.stderr)
        seconds = max(time.monotonic() - began, found.pop("seconds", 0))  # the latter where it was stopped and went on
        whole = {"seconds": round(seconds, 1), "device": self.arguments.device,
                 "threads": self.arguments.threads}
        with self.lock, open(path, "a") as file:
            file.write(json.dumps({**line, **whole, **found}) + "\n")

    def winner(self, run):
        """What the search found best by validation for a run's model, or nothing if there was none."""
        name = "/".join(level for factor, level in run.items() if factor != "setting")
        tried = [line for line in read_lines(self.searched) if line["run"] == name]
        return max(tried, key=lambda line: line["valid"][self.config.get("score", "accuracy")], default=None)

    def tries(self, run, options, perform):
        """A search for one model: without the test records, seed 0."""
        name = "/".join(level for factor, level in run.items() if factor != "setting")
        space = merged(self.config["search"], *(other.get("search", {}) for other in self.overrides(run)))
        for draw, setting in enumerate(drawn(space, self.arguments.search)):
            tried = merged(options, self.config.get("search_options", {}), {"test": None}, as_options(setting))
            yield (name, {"draw": draw, "setting": setting}, self.searched,
                   lambda o, s, n, d=draw: perform(o, s, f"search/{n}/{d}"), tried, 0)

    def jobs(self, perform):
        """What `do` is called with for each run that is wanted."""
        seeds = self.reduced.get("seeds") or [int(seed) for seed in self.arguments.seeds.split(",")]
        for run in self.wanted():
            name, options, tuned = "/".join(run.values()), self.options_of(run), run.get("setting") == "tuned"
            if self.arguments.search:
                yield from self.tries(run, options, perform) if tuned else ()
                continue
            best = self.winner(run) if tuned else {"setting": {}}
            if not best:
                print(f"{name}: left out, as nothing was searched; see --search", file=sys.stderr)
                continue
            for seed in seeds if self.config.get("seeded", True) else [0]:
                yield name, run, self.results, perform, merged(options, as_options(best["setting"])), seed

    def run_all(self, perform):
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            jobs = [pool.submit(self.do, *job) for job in self.jobs(perform)]
            try:
                for job in jobs:
                    job.result()
            except KeyboardInterrupt:  # what runs has got the signal, too, and saves what it has
                pool.shutdown(cancel_futures=True)
                print(f"{self.folder.name}: interrupted; the same command goes on", file=sys.stderr)
                return 130
        return 1 if self.failed else 0


def found_in(folder):
    """Scores, size and speed of the run in a folder."""
    evaluation = json.loads((folder / "evaluation.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    steps = [line for line in read_lines(folder / "metrics.jsonl") if line["split"] == "train"]
    shown = ("accuracy", "macro_f1", "loss", "records")
    found = {part: {name: evaluation[part][name] for name in shown if name in evaluation[part]}
             for part in ("valid", "test") if part in evaluation}
    found["parameters"], found["seconds"] = config["parameters"], steps[-1]["seconds"]
    found["leaves_per_second"] = round(statistics.median(line["leaves_per_second"] for line in steps))
    found["peak_memory_bytes"] = evaluation["peak_memory_bytes"]
    explained = folder / "explanations.json"
    if explained.exists():
        zeros = [record["zero_weights"] for record in json.loads(explained.read_text())["records"]
                 if "zero_weights" in record]
        if zeros:
            found["zero_weights"] = statistics.fmean(zeros)
    return found


def main(script, description, perform=None, made=None):
    """`perform(experiment, options, seed, name)` gives what a run found, instead of training. `made`: records by name of
    the file, as functions of the data folder and the part."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("data", type=pathlib.Path, help="folder with the data (docs/experiments.md)")
    parser.add_argument("--models", type=pathlib.Path, help="folder with published models [models beside the data]")
    parser.add_argument("--only", help="levels of factors, such as imdb,flat")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of a run [1]")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side [1]")
    parser.add_argument("--reduced", action="store_true", help="few records, one seed, small models: minutes on a CPU")
    parser.add_argument("--search", type=int, metavar="N",
                        help="try N settings for each model with seed 0, on validation only; the best is \"tuned\"")
    parser.add_argument("--runs", type=pathlib.Path, help="folder for the runs [build/experiments/NAME]")
    parser.add_argument("--results", type=pathlib.Path,
                        help="folder for results.jsonl and search.jsonl [the experiment's; with --reduced that of the runs]")
    arguments = parser.parse_args()
    arguments.data = arguments.data.resolve()
    experiment = Experiment(script, made or {}, arguments)
    if perform is None:
        sys.exit(experiment.run_all(experiment.train))
    sys.exit(experiment.run_all(lambda *run: perform(experiment, *run)))
