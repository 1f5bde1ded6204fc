"""Training from the command line: it learns, can be stopped anywhere, and says what is wrong."""

import json
import os
import pathlib
import random
import shutil
import signal
import time

import pytest

import ramify
from cli import run, start, write_records

WORDS = ["apple", "river", "stone", "cloud", "horse", "candle"]
# Small enough for a second or two of training.
SMALL = ["--set", "model.layers=[{\"heads\": 2, \"head_dim\": 16, \"width\": 32, \"include_self\": true}]",
         "--set", "model.token_width=32", "--set", "model.mlp_width=32", "--set", "model.dropout=0",
         "--threads", "1", "--workers", "1"]


def topic_records(count, seed=0):
    """Nested records whose label is told by one word somewhere inside."""
    pick = random.Random(seed)
    topics = {"sea": "wave", "sky": "wing", "land": "hill"}

    def record():
        label, word = pick.choice(list(topics.items()))
        words = pick.choices(WORDS, k=6)
        words.insert(pick.randrange(6), word)
        return {"title": " ".join(pick.choices(WORDS, k=3)), "body": [" ".join(words[:4]), " ".join(words[4:])],
                "size": pick.random(), "label": label}

    return [record() for _ in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_records(folder / "train.jsonl", topic_records(400))
    write_records(folder / "test.jsonl", topic_records(100, seed=1))
    return folder


@pytest.fixture(scope="module")
def trained(data):
    """A finished run on the topics, shared by the tests that only look at it."""
    folder = data / "run"
    run("train", data / "train.jsonl", "--test", data / "test.jsonl", "--target", "label", "--out", folder,
        "--epochs", 8, "--rate", 0.005, *SMALL)
    return folder


def test_learns_and_leaves_everything_behind(trained):
    evaluation = json.loads((trained / "evaluation.json").read_text())
    assert evaluation["test"]["accuracy"] > 0.95
    assert evaluation["test"]["records"] == 100
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["split"] == "valid"] == list(range(1, 9))
    assert len((trained / "metrics.csv").read_text().splitlines()) == len(lines) + 1
    config = json.loads((trained / "config.json").read_text())
    assert config["classes"] == ["land", "sea", "sky"] and config["task"] == "classification"
    trees = json.loads((trained / "explanations.json").read_text())["records"]
    assert len(trees) == 6
    assert all(abs(tree["tree"]["mass"] - 1) < 1e-3 for tree in trees)


def test_eval_gives_the_scores_of_training(data, trained):
    scores = json.loads(run("eval", trained, data / "test.jsonl", "--json"))
    stored = json.loads((trained / "evaluation.json").read_text())["test"]
    assert scores["confusion"] == stored["confusion"]
    assert scores["loss"] == pytest.approx(stored["loss"], rel=1e-5)
    assert "precision" in run("eval", trained, data / "test.jsonl")


def test_predict_streams_in_order(data, trained):
    lines = [json.loads(line) for line in run("predict", trained, data / "test.jsonl").splitlines()]
    assert [line["line"] for line in lines] == list(range(1, 101))
    truth = [record["label"] for record in topic_records(100, seed=1)]
    assert sum(line["prediction"] == label for line, label in zip(lines, truth)) > 95
    assert all(abs(sum(line["probabilities"].values()) - 1) < 1e-5 for line in lines)


def test_predict_does_not_need_the_target_and_takes_standard_input(trained):
    record = {"title": "stone horse", "body": ["cloud wave river"], "size": 0.5}
    line = json.loads(run("predict", trained, "-", stdin=json.dumps(record) + "\n"))
    assert line["prediction"] == "sea"


def test_a_record_gives_the_same_alone_and_in_a_batch(data, trained):
    model = ramify.load(trained)
    records = topic_records(40, seed=2)
    together = model.predict(records)
    alone = model.predict(records, batch_records=1)
    for a, b in zip(together, alone):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)


def test_python_predicts_as_the_program(data, trained):
    model = ramify.load(trained)
    assert model.classes == ["land", "sea", "sky"]
    lines = [json.loads(line) for line in run("predict", trained, data / "test.jsonl").splitlines()]
    for line, result in zip(lines, model.predict(topic_records(100, seed=1))):
        assert result["prediction"] == line["prediction"]
        assert result["probabilities"] == pytest.approx(line["probabilities"], abs=1e-5)
    assert model.explain(topic_records(1)[0])["tree"]["children"]


def test_predictions_are_those_of_the_golden_file():
    """A stored model gives the stored predictions: formats and numbers have not changed."""
    golden = pathlib.Path(__file__).resolve().parents[1] / "data" / "trained"
    wanted = [json.loads(line) for line in (golden / "predictions.jsonl").read_text().splitlines()]
    got = [json.loads(line) for line in run("predict", golden / "run", golden / "records.jsonl").splitlines()]
    for w, g in zip(wanted, got, strict=True):
        assert w["prediction"] == g["prediction"]
        assert w["probabilities"] == pytest.approx(g["probabilities"], abs=1e-4)


def model_bytes(folder):
    return (folder / "model" / "model.safetensors").read_bytes(), \
        (folder / "checkpoint" / "model.safetensors").read_bytes(), \
        (folder / "checkpoint" / "optimizer.safetensors").read_bytes()


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["split"], line["step"], line["loss"], line.get("accuracy")) for line in lines]


RUN = ["--target", "label", "--epochs", "3", "--log-every", "3", "--checkpoint-every", "2", "--batch-records", "16",
       *SMALL, "--set", "model.dropout=0.2"]


def test_sparse_attention_says_how_sparse_it_is(data, trained, tmp_path):
    run("train", data / "train.jsonl", "--target", "label", "--out", tmp_path / "run", "--epochs", 1, *SMALL, "--set",
        "model.layers.0.alpha=2", "--explain", 4)
    records = json.loads((tmp_path / "run" / "explanations.json").read_text())["records"]
    assert len(records) == 4 and all(0 <= record["zero_weights"] < 1 for record in records)
    assert any(record["zero_weights"] > 0 for record in records)
    softmax = json.loads((trained / "explanations.json").read_text())["records"]
    assert not any("zero_weights" in record for record in softmax)


@pytest.fixture(scope="module")
def uninterrupted(data):
    folder = data / "whole"
    run("train", data / "train.jsonl", "--out", folder, *RUN)
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resume_gives_the_same_bits(data, uninterrupted, tmp_path, number):
    folder = tmp_path / "run"
    process = start("train", data / "train.jsonl", "--out", folder, *RUN)
    while not (folder / "checkpoint").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if process.returncode != 0:  # else it was done already
        assert process.returncode == 128 + number and "interrupted; saved" in err
        assert "--resume" in err
    run("train", "--resume", "--out", folder)
    assert model_bytes(folder) == model_bytes(uninterrupted)
    assert losses(folder) == losses(uninterrupted)


@pytest.mark.slow
def test_fifty_kills_leave_a_run_that_goes_on_bit_for_bit(data, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    pick = random.Random(3)
    for _ in range(50):
        process = start("train", data / "train.jsonl", "--out", folder, "--resume", *RUN)
        deadline = time.monotonic() + pick.uniform(0.2, 1.5)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        checkpoint = json.loads((folder / "checkpoint" / "state.json").read_text()) \
            if (folder / "checkpoint").exists() else {}
        if checkpoint.get("finished"):
            # begin again: every one of the fifty is to hit a run that is at work
            assert model_bytes(folder)[1:] == model_bytes(uninterrupted)[1:]
            shutil.rmtree(folder)
    run("train", data / "train.jsonl", "--out", folder, "--resume", *RUN)
    assert model_bytes(folder) == model_bytes(uninterrupted)
    assert losses(folder) == losses(uninterrupted)
    assert not list(folder.glob("*.tmp*"))


def test_resume_with_other_settings_is_an_error(data, trained):
    err = run("train", data / "train.jsonl", "--test", data / "test.jsonl", "--target", "label", "--out", trained,
              "--epochs", 8, "--resume", "--rate", 0.5, *SMALL, status=2)
    assert "training.rate was 0.005, not 0.5" in err


def test_a_second_run_in_the_same_folder_is_an_error(data, trained):
    err = run("train", data / "train.jsonl", "--target", "label", "--out", trained, status=1)
    assert "--resume" in err


def test_a_broken_checkpoint_is_named(data, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    (folder / "checkpoint" / "optimizer.safetensors").write_bytes(b"broken")
    assert "optimizer.safetensors" in run("train", "--resume", "--out", folder, status=1)
    (folder / "model" / "model.safetensors").unlink()
    assert "model.safetensors" in run("predict", folder, data / "test.jsonl", status=1)


@pytest.mark.parametrize("arguments, words", [
    (["train", "{train}", "--out", "{out}"], "--target"),
    (["train", "{train}", "--target", "nothing", "--out", "{out}"], "nothing"),
    (["train", "missing.jsonl", "--target", "label", "--out", "{out}"], "missing.jsonl"),
    (["train", "{empty}", "--target", "label", "--out", "{out}"], "empty.jsonl"),
    (["train", "{train}", "--target", "label", "--out", "{train}/x"], "train.jsonl/x"),
    (["train", "{train}", "--target", "label", "--out", "{out}", "--config", "huge"], "default"),
    (["train", "{train}", "--target", "label", "--out", "{out}", "--set", "model.depth=3"], "depth"),
    (["train", "{train}", "--target", "label", "--out", "{out}", "--device", "cuda:99"], "cuda:99"),
    (["train", "{train}", "--target", "label", "--out", "{out}", "--device", "toaster"], "toaster"),
    (["eval", "{empty}", "{train}"], "config.json"),
    (["predict", "{out}", "{train}"], "config.json"),
    (["train", "{train}", "--out", "{out}", "--frobnicate"], "frobnicate"),
])
def test_bad_usage_and_bad_files_are_named(data, tmp_path, arguments, words):
    (data / "empty.jsonl").write_text("")
    places = {"train": data / "train.jsonl", "empty": data / "empty.jsonl", "out": tmp_path / "out"}
    process = start(*[argument.format(**places) for argument in arguments])
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2) and words in err, err
    assert "Traceback" not in err and "terminate" not in err


def test_bad_records_are_skipped_on_request(tmp_path):
    records = [json.dumps(record) for record in topic_records(60)]
    records[7] = "{\"title\": "
    records[11] = json.dumps({"title": "no label"})
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(records))
    assert "bad.jsonl:8:" in run("train", path, "--target", "label", "--out", tmp_path / "a", status=1)
    process = start("train", path, "--target", "label", "--out", tmp_path / "b", "--on-bad", "skip", "--epochs", 1,
                    *SMALL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "2 bad records" in err, err


def test_a_full_disk_is_an_error_and_the_checkpoint_survives(data, uninterrupted, tmp_path):
    """Files cannot grow beyond a few blocks: what a full disk looks like to a program."""
    import resource
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    before = model_bytes(folder)
    state = json.loads((folder / "checkpoint" / "state.json").read_text())
    assert state["finished"]
    out = tmp_path / "full"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    process = start("train", data / "train.jsonl", "--out", out, *RUN, preexec_fn=limit)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "File too large" in err, err
    assert model_bytes(folder) == before
