"""Training where something is odd: data that changed, a signal at a bad moment, numbers out of range."""

import json
import os
import signal
import subprocess
import time

import pytest

import ramify
from cli import PROGRAM, run, start, write_records
from test_training import SMALL, topic_records

NO_THREADS = SMALL[:SMALL.index("--threads")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_records(folder / "train.jsonl", topic_records(200))
    return folder


@pytest.fixture(scope="module")
def trained(data):
    run("train", data / "train.jsonl", "--target", "label", "--out", data / "run", "--epochs", 4, "--rate", 0.005, *SMALL)
    return data / "run"


def train(data, out, *options, **how):
    return run("train", data, "--target", "label", "--out", out, "--epochs", 1, *SMALL, *options, **how)


def interrupted_run(data, out, *options):
    process = start("train", data, "--target", "label", "--out", out, "--epochs", 500, "--checkpoint-every", 5,
                    *NO_THREADS, "--workers", 1, *options)
    while not (out / "checkpoint").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    return out


def test_a_run_goes_on_with_its_own_threads_and_from_any_folder(data, tmp_path, monkeypatch):
    monkeypatch.chdir(data)
    whole = run("train", "train.jsonl", "--target", "label", "--out", tmp_path / "whole", "--epochs", 3, "--threads", 1,
                "--set", "training.checkpoint_every=3", *NO_THREADS)
    assert "valid" in whole
    begun = tmp_path / "begun"
    process = start("train", "train.jsonl", "--target", "label", "--out", begun, "--epochs", 3, "--threads", 1,
                    "--set", "training.checkpoint_every=3", *NO_THREADS)
    while not (begun / "checkpoint").exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([PROGRAM, "train", "--resume", "--out", begun], check=True, capture_output=True, env=environment)
    name = "model/model.safetensors"
    assert (begun / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_data_that_changed_is_not_gone_on_with(data, tmp_path):
    records = write_records(tmp_path / "records.jsonl", topic_records(100))
    out = interrupted_run(records, tmp_path / "run")
    write_records(records, topic_records(100, seed=5))
    assert f"{records}: has changed since the run began" in run("train", "--resume", "--out", out, status=1)


def test_other_settings_are_an_error_with_and_without_data(trained, data):
    for arguments in (["--epochs", 50], ["--target", "title"], ["--set", "model.dropout=0.5"], ["--config", "paper-language"]):
        error = run("train", "--resume", "--out", trained, *arguments, status=2)
        assert "a resumed run must have the same settings" in error
    error = run("train", data / "train.jsonl", "--resume", "--out", trained, "--rate", 5, status=2)
    assert "training.rate was 0.005, not 5.0" in error


def test_word_vectors_are_there_when_a_run_goes_on_before_its_first_checkpoint(data, tmp_path):
    words = ["apple", "river", "stone", "cloud", "horse", "candle", "wave", "wing", "hill"]
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {i} {i * i % 7} {-i}\n" for i, word in enumerate(words)))
    train(data / "train.jsonl", tmp_path / "whole", "--word-vectors", vectors)
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("config.json", "schema.json"):
        (begun / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    run("train", "--resume", "--out", begun)
    name = "model/model.safetensors"
    assert (begun / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("arguments, words, status", [
    (["--target", "label"], "no DATA", 2),
    (["--resume"], "there is no run to go on with", 2),
    (["--target", "nothing", "train.jsonl"], "nothing", 1),
    (["--valid", "-", "train.jsonl", "--target", "label"], "only DATA can come from standard input", 2),
    (["train.jsonl", "--target", "label", "--set", "model.layers.7.heads=3"], "there is no such place", 2),
    (["train.jsonl", "--target", "label", "--set", "attention=5"], "attention is 5", 2),
])
def test_what_fails_leaves_nothing_behind(data, tmp_path, monkeypatch, arguments, words, status):
    monkeypatch.chdir(data)
    assert words in run("train", "--out", tmp_path / "run", *arguments, status=status)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_files_is_refused(data, tmp_path):
    (tmp_path / "picture.png").write_bytes(b"mine")
    assert "there are other files" in train(data / "train.jsonl", tmp_path, status=1)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_a_signal_while_standard_input_is_read_keeps_no_half_of_it(tmp_path):
    lines = [json.dumps(record) + "\n" for record in topic_records(100)]
    process = start("train", "-", "--target", "label", "--out", tmp_path / "run", *SMALL)
    process.stdin.write("".join(lines[:60]))
    process.stdin.flush()
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate("".join(lines[60:]), timeout=60)
    except BrokenPipeError:
        process.wait()
    assert process.returncode == 143
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("spoil", [lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 2), lambda: os.close(2)],
                         ids=["full", "closed"])
def test_a_run_needs_no_standard_error(data, tmp_path, spoil):
    """Nor does a file get its number, and what is said."""
    process = start("train", data / "train.jsonl", "--target", "label", "--out", tmp_path / "run", "--epochs", 2, *SMALL,
                    stderr=None, preexec_fn=spoil)
    assert process.communicate(timeout=100)[0].startswith("valid") and process.returncode == 0
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files and not [path for path in files if b"180 records to learn from" in path.read_bytes()]


def test_predictions_come_as_soon_as_records_do(trained):
    process = start("predict", trained, "-")
    for number, record in enumerate(topic_records(3), start=1):
        process.stdin.write(json.dumps(record) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["line"] == number
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_several_files_are_told_apart(trained, tmp_path):
    files = [write_records(tmp_path / name, topic_records(2)) for name in ("a.jsonl", "b.jsonl")]
    lines = [json.loads(line) for line in run("predict", trained, *files).splitlines()]
    assert [(line["file"], line["line"]) for line in lines] == [(str(file), n) for file in files for n in (1, 2)]


def test_classes_that_training_did_not_have_count_as_wrong(data, tmp_path, trained):
    records = topic_records(20, seed=3)
    for record in records[:5]:
        record["label"] = "space"
    file = write_records(tmp_path / "test.jsonl", records)
    scores = json.loads(run("eval", trained, file, "--json"))
    assert scores["records"] == 20 and scores["unseen_classes"] == 5
    assert scores["accuracy"] <= 0.75
    assert "5 of a class that training did not have" in run("eval", trained, file)


def test_targets_far_from_zero_are_learned(tmp_path):
    records = [{"x": x / 3, "t": 1_700_000_000 + x / 3} for x in range(300)]
    file = write_records(tmp_path / "times.jsonl", records)
    run("train", file, "--target", "t", "--out", tmp_path / "run", "--epochs", 20, "--rate", 0.01, *SMALL)
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["valid"]["r2"] > 0.95


def test_letters_are_not_cut_in_two(tmp_path):
    file = write_records(tmp_path / "long.jsonl", [{"text": "a" + "é" * 8000, "label": str(i % 2)} for i in range(20)])
    train(file, tmp_path / "run", "--max-leaves", 4)
    assert json.loads((tmp_path / "run" / "explanations.json").read_text())["records"]


def test_outputs_that_are_not_finite_are_an_error(tmp_path):
    records = [{"v": {"$vector": [i % 2, 1.5, i / 40]}, "label": "ab"[i % 2]} for i in range(40)]
    train(write_records(tmp_path / "vectors.jsonl", records), tmp_path / "run")
    huge = {"v": {"$vector": [3e38, -3e38, 3e38]}}
    file = write_records(tmp_path / "huge.jsonl", [records[0], huge])
    assert f"{file}:2: the model's outputs are not finite" in run("predict", tmp_path / "run", file, status=1)
    lines = [json.loads(line) for line in run("predict", tmp_path / "run", file, "--on-bad", "skip").splitlines()]
    assert "prediction" in lines[0] and "not finite" in lines[1]["error"]
    with pytest.raises(ValueError, match="record 1: the model's outputs"):
        ramify.load(tmp_path / "run").predict([records[0], huge])


def test_all_records_can_be_learned_from(data, tmp_path):
    train(data / "train.jsonl", tmp_path / "run", "--valid-fraction", 0)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["records"] == {"train": 200, "valid": 0}
    assert "prediction" in run("predict", tmp_path / "run", data / "train.jsonl")


def test_a_run_without_a_model_yet_says_so(data, trained, tmp_path):
    for name in ("config.json", "schema.json"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    assert "no model yet" in run("predict", tmp_path, data / "train.jsonl", status=1)


def test_python_names_what_is_wrong(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ramify.load(tmp_path / "nothing")
    model = ramify.load(trained)
    assert "label" in repr(model)
    with pytest.raises(TypeError, match="expected a list of records"):
        model.predict({"title": "one"})
    with pytest.raises(ValueError, match="record 70: "):
        model.predict([topic_records(1)[0]] * 70 + ["no object"])


def test_labels_of_items_are_counted_as_items(tmp_path):
    records = [{"words": [str(i % 3), "x", str(i % 2)], "tags": ["n", "x", "n"]} for i in range(30)]
    file = write_records(tmp_path / "tags.jsonl", records)
    run("train", file, "--target", "tags", "--target-of", "words", "--out", tmp_path / "run", "--epochs", 1, *SMALL)
    scores = json.loads(run("eval", tmp_path / "run", file, "--json"))
    assert scores["records"] == 30 and scores["items"] == 90
    assert "30 records, 90 items" in run("eval", tmp_path / "run", file)
