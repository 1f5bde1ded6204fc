"""Training by several processes: it is the training of one with all their batches, ends as a whole, and goes on."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch.distributed

import ramify
from cli import run, write_records

pytestmark = [
    pytest.mark.slow,  # starting Python and torch several times is most of it
    pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
                       reason="this torch has no Gloo")]

WORDS = [f"word{i}" for i in range(40)]
SMALL = ["--set", "model.layers=[{\"heads\": 2, \"head_dim\": 8, \"width\": 16, \"include_self\": true}]",
         "--set", "model.token_width=16", "--set", "model.mlp_width=16", "--set", "model.dropout=0",
         "--set", "model.token_dropout=0", "--threads", "1", "--workers", "1", "--log-every", "1", "--explain", "2"]
NUMBERS_OF_TIME = ("seconds", "records_per_second", "leaves_per_second", "sequences_per_second", "tokens_per_second")


def environment(**more):
    package = str(pathlib.Path(ramify.__file__).resolve().parent.parent)
    path = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def start_together(count, *arguments, folders=None):
    """What torchrun starts, without torchrun, which takes its time; each in one of the folders."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [subprocess.Popen([sys.executable, "-m", "ramify", *map(str, arguments)], text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             cwd=folders[rank] if folders else None,
                             env=environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=str(count),
                                             RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count)))
            for rank in range(count)]


def finish(processes):
    """Status, standard output and standard error of each."""
    results = []
    for process in processes:
        out, err = process.communicate(timeout=300)
        results.append((process.returncode, out, err))
    return results


def run_together(count, *arguments):
    results = finish(start_together(count, *arguments))
    assert [status for status, _, _ in results] == [0] * count, results
    return results


def torchrun(*arguments):
    return subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                             "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--local-addr=localhost",
                             "-m", "ramify", *map(str, arguments)],
                            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment())


def metrics(folder):
    """The lines of a run, without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in NUMBERS_OF_TIME} for line in lines]


def scores(folder):
    evaluation = json.loads((folder / "evaluation.json").read_text())
    return {split: {key: value for key, value in evaluation[split].items() if key not in NUMBERS_OF_TIME}
            for split in evaluation if split != "peak_memory_bytes"}


def assert_same_curves(folder, other, tolerance):
    ours, theirs = metrics(folder), metrics(other)
    assert [(line["split"], line["step"]) for line in ours] == [(line["split"], line["step"]) for line in theirs]
    for line, wanted in zip(ours, theirs):
        assert line["loss"] == pytest.approx(wanted["loss"], abs=tolerance), (line, wanted)
    return ours


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Of different sizes, some with fields that others lack, one of them broken."""
    pick = random.Random(3)

    def record(i):
        label = pick.choice(["sea", "sky"])
        text = " ".join([*pick.choices(WORDS, k=pick.randrange(1, 25)), label[1:], *pick.choices(WORDS, k=2)])
        rare = {"rare": [pick.random()]} if i % 50 == 0 else {}
        return {"text": text, "size": pick.random(), "label": label, **rare}

    folder = tmp_path_factory.mktemp("records")
    # the last batch of an epoch has one record: one of two processes has no part in it
    write_records(folder / "train.jsonl", [record(i) for i in range(401)])
    write_records(folder / "valid.jsonl", [record(i) for i in range(37)])
    with open(folder / "train.jsonl", "a") as file:
        file.write("{broken\n")
    return folder


def record_options(records, out, *more):
    return ["train", records / "train.jsonl", "--valid", records / "valid.jsonl", "--target", "label",
            "--on-bad", "skip", "--out", out, "--epochs", 2, "--rate", 0.005, "--checkpoint-every", 15, *SMALL, *more]


@pytest.fixture(scope="module")
def by_two(records):
    """A run of two processes in float64."""
    folder = records / "two"
    results = run_together(2, *record_options(records, folder, "--dtype", "float64", "--batch-records", 4, "--json"))
    return folder, results


def test_two_processes_learn_as_one_with_the_double_batch(records, by_two):
    folder, results = by_two
    run(*record_options(records, records / "one", "--dtype", "float64", "--batch-records", 8))
    lines = assert_same_curves(folder, records / "one", 1e-6)
    assert sum(line["split"] == "train" for line in lines) == 102
    assert lines[-1]["loss"] < 0.6 < lines[0]["loss"]
    ours, theirs = scores(folder), scores(records / "one")
    assert ours["valid"].pop("loss") == pytest.approx(theirs["valid"].pop("loss"), abs=1e-6)
    assert ours == theirs
    # one writes and speaks
    assert json.loads(results[0][1])["valid"]["records"] == 37
    assert "1 bad record was skipped" in results[0][2]
    assert results[1][1:] == ("", "")


def test_gradients_of_rows_are_exchanged_as_well(records):
    """In float32 tables have gradients of some rows."""
    run_together(2, *record_options(records, records / "rows2", "--epochs", 1, "--batch-records", 6))
    run(*record_options(records, records / "rows1", "--epochs", 1, "--batch-records", 12))
    assert_same_curves(records / "rows2", records / "rows1", 1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_process_of_its_own_group_learns_on_a_gpu_as_without_one(records):
    """Through NCCL."""
    options = ["--device", "cuda", "--deterministic", "--dtype", "float64", "--epochs", 1]
    run_together(1, *record_options(records, records / "grouped", *options))
    run(*record_options(records, records / "alone", *options))
    assert_same_curves(records / "grouped", records / "alone", 1e-6)


def test_a_killed_process_ends_the_others_and_the_run_goes_on(records, by_two):
    folder = records / "killed"
    options = record_options(records, folder, "--dtype", "float64", "--batch-records", 4)
    process = torchrun(*options)
    try:
        deadline = time.monotonic() + 200
        while not (folder / "checkpoint").exists():
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.005)
        os.kill(worker(process.pid, rank=1), signal.SIGKILL)
        killed = time.monotonic()
        _, err = process.communicate(timeout=100)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode != 0
    assert time.monotonic() - killed < 30
    assert err.count("ramify: ") == 1 and "ramify: process 0 of 2: another process of the run has ended" in err, err
    assert "go on from the last checkpoint with --resume" in err
    assert not (folder / "evaluation.json").exists()

    run("train", "--resume", "--out", folder, status=2)  # by one: no
    process = torchrun("train", "--resume", "--out", folder)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "going on behind step" in err
    assert metrics(folder) == metrics(by_two[0])  # bit for bit
    assert scores(folder) == scores(by_two[0])


def worker(agent, rank):
    """The process of a rank that torchrun has started."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"\nPPid:\t{agent}\n" in (entry / "status").read_text():
                if f"RANK={rank}" in (entry / "environ").read_text().split("\0"):
                    return int(entry.name)
        except OSError:
            pass  # it has ended
    raise AssertionError("there is no such process")


def test_a_signal_to_one_process_stops_all_in_order(records, by_two):
    folder = records / "stopped"
    processes = start_together(2, *record_options(records, folder, "--dtype", "float64", "--batch-records", 4))
    while not (folder / "checkpoint").exists():
        assert processes[0].poll() is None, finish(processes)
        time.sleep(0.005)
    processes[1].send_signal(signal.SIGTERM)
    (first, _, err), (second, _, silence) = finish(processes)
    assert second == 128 + signal.SIGTERM and first != 0, err
    assert "interrupted; saved. Go on with: ramify train --resume" in err and silence == ""
    state = json.loads((folder / "checkpoint" / "state.json").read_text())
    assert 15 <= state["step"] < 102 and not state["finished"]


def test_what_is_wrong_is_said_once(records):
    results = finish(start_together(2, *record_options(records, records / "bad", "--on-bad", "fail")))
    assert [status for status, _, _ in results] == [1, 1], results
    said = [err for _, _, err in results if err]
    assert len(said) == 1 and "train.jsonl:402: " in said[0] and said[0].count("ramify: ") == 1, results
    assert not (records / "bad").exists()

    results = finish(start_together(2, "train", "--no-such-option"))
    assert [status for status, _, _ in results] == [2, 2], results
    assert [bool(err) for _, _, err in results] == [True, False]


def test_a_failure_of_one_process_ends_the_others(records, tmp_path):
    """A path that means another file in each process: the second one has none."""
    for rank in "01":
        (tmp_path / rank).mkdir()
    shutil.copy(records / "valid.jsonl", tmp_path / "0" / "own.jsonl")
    results = finish(start_together(2, "train", "/proc/self/cwd/own.jsonl", "--target", "label", "--out",
                                    tmp_path / "run", *SMALL, folders=[tmp_path / "0", tmp_path / "1"]))
    assert [status for status, _, _ in results] == [1, 1], results
    said = [err for _, _, err in results if err]
    assert len(said) == 1 and "/proc/self/cwd/own.jsonl: " in said[0] and said[0].count("ramify: ") == 1, results


def test_language_models_learn_as_by_one_process(tmp_path):
    pick = random.Random(1)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (tmp_path / "text.txt").write_text("\n".join(" ".join(pick.choices(WORDS[:4], k=9)) for _ in range(331)))
    options = ["train-lm", tmp_path / "text.txt", "--tokenizer", tmp_path / "tokenizer", "--layers", 1, "--width", 16,
               "--heads", 2, "--context", 32, "--dtype", "float64", "--epochs", 3, "--rate", 0.02, "--log-every", 1,
               "--threads", 1, "--workers", 1, "--test", tmp_path / "text.txt"]
    run_together(2, *options, "--batch-tokens", 96, "--out", tmp_path / "two")
    run(*options, "--batch-tokens", 192, "--out", tmp_path / "one")
    lines = assert_same_curves(tmp_path / "two", tmp_path / "one", 1e-6)
    assert lines[-1]["loss"] < lines[0]["loss"] - 1.5
    ours, theirs = scores(tmp_path / "two")["test"], scores(tmp_path / "one")["test"]
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_python_has_the_commands_of_the_program():
    def python(*arguments, **more):
        return subprocess.run([sys.executable, "-m", "ramify", *arguments], capture_output=True, text=True,
                              env=environment(**more))

    assert python("--version").stdout == run("--version")
    refused = python("report", "somewhere", RANK="0", WORLD_SIZE="2")
    assert refused.returncode == 2 and "only train and train-lm are for several processes" in refused.stderr
    closed = subprocess.run([sys.executable, "-m", "ramify", "report", "somewhere"], stdout=subprocess.PIPE,
                            env=environment(RANK="0", WORLD_SIZE="2"), preexec_fn=lambda: os.close(2))
    assert closed.returncode == 2
