"""experiments/: runs are done once and written down, searches choose by validation, the report says what the lines say."""

import importlib.machinery
import importlib.util
import json
import os
import random
import subprocess
import sys

import pytest

from cli import PROGRAM, ROOT, write_records

EXPERIMENTS = ROOT / "experiments"


def module(path):
    """A script as a module; the report has no suffix."""
    sys.path.insert(0, str(path.parent))
    try:
        loader = importlib.machinery.SourceFileLoader(path.stem + "_under_test", str(path))
        loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(loaded)
        return loaded
    finally:
        sys.path.remove(str(path.parent))


@pytest.fixture
def data(tmp_path):
    """Pairs that are the same or not, as if they were MRPC; SST-2 is not there."""
    pick = random.Random(0)

    def pair():
        first, second = (" ".join(pick.choices("abcdefgh", k=5)) for _ in range(2))
        same = pick.random() < 0.5
        return {"label": str(int(same)), "sentence1": first, "sentence2": first if same else second}

    (tmp_path / "data" / "glue").mkdir(parents=True)
    for part, count in (("train", 80), ("dev", 20)):
        write_records(tmp_path / "data" / "glue" / f"mrpc.{part}.jsonl", [pair() for _ in range(count)])
    return tmp_path / "data"


def run(name, data, results, *options):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    command = [sys.executable, EXPERIMENTS / name / "run", data, "--reduced", "--runs", results / "runs", "--results",
               results / name, *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "RAMIFY": str(PROGRAM)})
    assert done.returncode == 0, done.stderr
    return done.stderr


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_an_experiment_runs_once_and_is_reported(data, tmp_path):
    results = tmp_path / "results"
    said = run("from-scratch", data, results)
    assert "left out: " in said and "sst2.train" in said
    assert "mrpc/exact/tuned: left out, as nothing was searched" in said
    lines = lines_of(results / "from-scratch" / "results.jsonl")
    assert {line["run"] for line in lines} == {"mrpc/exact/fixed", "mrpc/hierarchical/fixed"}
    for line in lines:
        evaluation = json.loads(
            (results / "runs" / f"{line['run'].replace('/', '-')}-0" / "evaluation.json").read_text())
        assert line["test"]["accuracy"] == evaluation["test"]["accuracy"] and line["test"]["records"] == 20
        assert line["seconds"] > 0 and line["device"] == "cpu" and line["parameters"]["total"] > 0
        assert line["command"].startswith("ramify train WORK/data/train-") and str(tmp_path) not in line["command"]

    run("from-scratch", data, results, "--search", "2", "--only", "mrpc")
    tried = lines_of(results / "from-scratch" / "search.jsonl")
    assert [line["draw"] for line in tried] == [0, 1, 0, 1] and all("test" not in line for line in tried)
    of_exact, of_hierarchical = tried[:2], tried[2:]
    assert [line["setting"] for line in of_exact] == [line["setting"] for line in of_hierarchical]

    before = (results / "from-scratch" / "results.jsonl").read_text()
    run("from-scratch", data, results, "--only", "mrpc")
    after = (results / "from-scratch" / "results.jsonl").read_text()
    assert after.startswith(before) and len(after.splitlines()) == 4  # only what the search made possible
    best = max(of_exact, key=lambda line: line["valid"]["accuracy"])["setting"]
    tuned = next(line for line in lines_of(results / "from-scratch" / "results.jsonl")
                 if line["run"] == "mrpc/exact/tuned")
    assert tuned["options"]["rate"] == best["rate"]

    page = tmp_path / "docs" / "page.md"
    command = [sys.executable, EXPERIMENTS / "report", "--results", results, "--output", page]
    subprocess.run([str(word) for word in command], check=True)
    text = page.read_text()
    row = next(row for row in text.splitlines() if row.startswith("| mrpc | exact | fixed | 1 |"))
    assert f"{lines[0]['test']['accuracy']:.4f}" in row and row.rstrip(" |").endswith("0.8608 / 0.8964")
    assert any("sst2/exact/fixed" in part.split(".")[0] for part in text.split("Not run: ")[1:])
    assert (page.parent / "images" / "experiments" / "from-scratch.svg").read_text().startswith("<svg")


def test_intervals_are_paired_by_seed():
    report = module(EXPERIMENTS / "report")
    mean, half = report.interval([1.0, 2.0, 3.0])
    assert mean == 2 and half == pytest.approx(4.303 / 3**0.5)  # t of 2 degrees of freedom, deviation 1
    config = {"factors": {"attention": {"ours": {}, "flat": {}}},
              "hypotheses": [{"claim": str(bound), "where": {"attention": "ours"}, "against": {"attention": "flat"},
                              "at_least": bound} for bound in (0.005, 0.01, 0.02)]}
    # seeds differ by far more than models do: only pairs tell
    lines = [{"run": kind, "attention": kind, "seed": seed, "test": {"accuracy": 0.1 * seed + gain}}
             for kind, gains in (("ours", (0.010, 0.011, 0.009)), ("flat", (0, 0, 0))) for seed, gain in enumerate(gains)]
    said = [row.rsplit("|", 2)[1].strip() for row in report.verdicts(report.Results(config, lines))][1:]
    assert said == ["holds", "open", "fails"]


def test_listops_values_and_shapes():
    listops = module(EXPERIMENTS / "structure" / "listops.py")
    tree = ["MAX", 2, ["MED", 9, 4, 7, 1], ["SM", 8, 5, ["MIN", 6, 3]]]
    assert listops.value(tree) == 6  # MED: (4 + 7) // 2 = 5, SM: 8 + 5 + 3 = 16
    assert listops.sequence(tree) == "[MAX 2 [MED 9 4 7 1 ] [SM 8 5 [MIN 6 3 ] ] ]".split()
    assert listops.value(["FIRST", ["LAST", 3, 8], 1]) == 8
    unwanted = {json.dumps(value) for value in range(10)}
    records = listops.training_records("d20s", unwanted, distinct=3000)
    assert len({json.dumps(record["expr"]) for record in records}) == len(records) > 2980


@pytest.mark.slow
def test_listops_expressions_are_as_deep_as_those_of_the_test_file():
    listops = module(EXPERIMENTS / "structure" / "listops.py")

    def depth(part):
        return 1 + max(map(depth, part)) if isinstance(part, list) else 0

    records = listops.training_records("d8", unwanted=set())
    depths = [depth(record["expr"]) for record in records]
    of_the_test_file = [447, 4084, 2257, 1344, 718, 440, 710]  # of 10,000, by depth from 1 on
    for i, expected in enumerate(of_the_test_file):
        assert depths.count(i + 1) / len(depths) == pytest.approx(expected / 10_000, abs=0.01)
    assert len({json.dumps(record["expr"]) for record in records}) == len(records)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXPERIMENTS.glob("*/config.json")))
def test_configs_name_files_and_levels_that_exist(name):
    experiment = module(EXPERIMENTS / "experiment.py")
    folder = EXPERIMENTS / name
    config = json.loads((folder / "config.json").read_text())
    runs = list(experiment.runs_of(config))
    assert runs and os.access(folder / "run", os.X_OK) and name in module(EXPERIMENTS / "report").ORDER
    assert f"| `{name}` |" in (EXPERIMENTS / "README.md").read_text()
    reduced = config["reduced"].get("levels", {})
    assert any(experiment.fits(run, reduced) for run in runs)
    named = [part["where"] for kind in ("hypotheses", "overrides") for part in config.get(kind, [])]
    for where in [*named, *config.get("leave_out", [])]:
        assert any(experiment.fits(run, {factor: level for factor, level in where.items() if factor in run})
                   for run in experiment.runs_of({**config, "leave_out": []}))
    for text in json.dumps(config).split('"'):
        if text.startswith("{here}/"):
            assert (folder / text.removeprefix("{here}/")).exists()


def test_the_page_is_what_the_report_makes(tmp_path):
    page = tmp_path / "docs" / "experiments.md"
    subprocess.run([sys.executable, str(EXPERIMENTS / "report"), "--output", str(page)], check=True)
    assert page.read_text() == (ROOT / "docs" / "experiments.md").read_text()
    for plot in (page.parent / "images" / "experiments").iterdir():
        assert plot.read_text() == (ROOT / "docs" / "images" / "experiments" / plot.name).read_text()


def run_all(*words):
    return subprocess.run([sys.executable, EXPERIMENTS / "all", *map(str, words)], capture_output=True, text=True,
                          timeout=600, env={**os.environ, "RAMIFY": str(PROGRAM)})


def test_all_searches_before_it_tunes_and_takes_several_experiments(data, tmp_path):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    done = run_all(data, "from-scratch", "flops", "--reduced", "--search", 1, "--jobs", 2, "--runs", tmp_path / "runs",
                   "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert len(lines_of(tmp_path / "results" / "flops" / "results.jsonl")) == 14
    runs = [line["run"] for line in lines_of(tmp_path / "results" / "from-scratch" / "results.jsonl")]
    assert sorted(runs) == [f"mrpc/{kind}/{setting}" for kind in ("exact", "hierarchical") for setting in ("fixed", "tuned")]


@pytest.mark.parametrize("words, said", [(["flopps"], "there is no experiment flopps"), (["--jobs", "0"], "at least 1")])
def test_all_refuses(words, said, tmp_path):
    done = run_all(tmp_path, *words)
    assert done.returncode == 2 and said in done.stderr


def test_a_place_is_given_back_when_a_run_fails(monkeypatch):
    experiment = module(EXPERIMENTS / "experiment.py")
    taken_from, given_back = os.pipe()
    os.write(given_back, b"x")
    monkeypatch.setenv(experiment.SLOTS, f"{taken_from},{given_back}")
    for _ in range(3):
        with pytest.raises(ValueError), experiment.slot():
            raise ValueError
    os.close(given_back)
    assert os.read(taken_from, 9) == b"x"
