"""Language models from the command line: each kind of attention learns, runs can be stopped anywhere, and the folder is
one that others open."""

import json
import random
import shutil
import signal
import time

import pytest
import torch

from cli import run, start

WORDS = "red orange yellow green blue violet black white grey brown pink gold".split()
KINDS = {"exact": ["--attention", "exact"],
         "untied": ["--attention", "hierarchical", "--hierarchy", "4*", "--tie", "none"],
         "prefix block": ["--attention", "hierarchical", "--hierarchy", "4*", "--tie", "block"],
         "window": ["--attention", "hierarchical", "--hierarchy", "4*", "--tie", "none", "--window", "6"]}
SMALL = ["--layers", "2", "--width", "32", "--heads", "2", "--context", "48", "--batch-tokens", "480", "--rate", "0.01",
         "--threads", "1", "--workers", "1"]


def colours(count, seed=0):
    """Text in which most words follow from the one before, and each line from the line before."""
    pick = random.Random(seed)
    words, place = [], 0
    for _ in range(count):
        words.append(WORDS[place])
        place = (place + (1 if pick.random() < 0.95 else 5)) % len(WORDS)
    return "\n".join(" ".join(words[i:i + 10]) for i in range(0, count, 10)) + "\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (folder / "train.txt").write_text(colours(6000))
    (folder / "test.txt").write_text(colours(1000, seed=1))
    return folder


def train(data, out, *arguments, **options):
    return run("train-lm", data / "train.txt", "--tokenizer", data / "tokenizer", "--out", out, *SMALL, *arguments,
               **options)


@pytest.fixture(scope="module")
def trained(data):
    """A finished run of each kind of attention."""
    folders = {}
    for kind, options in KINDS.items():
        folders[kind] = data / kind.replace(" ", "-")
        train(data, folders[kind], "--test", data / "test.txt", "--epochs", 4, "--log-every", 4, *options)
    return folders


@pytest.mark.parametrize("kind", KINDS)
def test_learns_what_there_is_to_learn(trained, kind):
    """A word is foretold by the one before: the best perplexity is exp(entropy(0.95)) = 1.22."""
    evaluation = json.loads((trained[kind] / "evaluation.json").read_text())
    assert 1.15 < evaluation["test"]["perplexity"] < 1.5
    assert evaluation["test"]["tokens"] == 1000  # behind [CLS], every token of the text is foretold


def test_leaves_everything_behind(trained):
    folder = trained["untied"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["split"] == "valid"] == [1, 2, 3, 4]
    assert all(line["tokens_per_second"] > 0 for line in lines if line["split"] == "train")
    assert (folder / "metrics.csv").read_text().startswith("split,step,epoch,loss,perplexity,")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["ramify"] == {"attention": "hierarchical", "hierarchy": "4*", "tie": "none", "window": 0}
    assert not list(folder.glob("*.tmp*"))


def test_parameters_are_the_same_for_all_kinds(trained):
    counts = [json.loads((folder / "run.json").read_text())["parameters"] for folder in trained.values()]
    assert all(count == counts[0] for count in counts)


def test_transformers_gives_the_same_loss_for_exact_attention(data, trained, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = trained["exact"]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert sum(p.numel() for p in model.parameters()) == \
        json.loads((folder / "run.json").read_text())["parameters"]["total"]
    vocabulary = (folder / "vocab.txt").read_text().split()
    ids = [vocabulary.index(word) for word in (data / "test.txt").read_text().split()]
    total = 0.0
    with torch.no_grad():
        for begin in range(0, len(ids), 47):
            row = torch.tensor([[vocabulary.index("[CLS]"), *ids[begin:begin + 47]]])
            logits = model(row).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="sum").item()
    stored = json.loads((folder / "evaluation.json").read_text())["test"]
    assert total / len(ids) == pytest.approx(stored["loss"], abs=1e-4)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)("red orange blue", add_special_tokens=False)
    assert tokens["input_ids"] == [vocabulary.index(word) for word in ["red", "orange", "blue"]]


def test_the_folder_opens_as_a_model(trained, tmp_path):
    """`ramify encode` reads the weights as transformers gives them, token by token."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "texts.txt").write_text("red orange yellow\nblue\n")
    lines = [json.loads(line) for line in
             run("encode", trained["exact"], tmp_path / "texts.txt", "--pooling", "mean").splitlines()]
    model = transformers.AutoModel.from_pretrained(trained["exact"])
    vocabulary = (trained["exact"] / "vocab.txt").read_text().split()
    for line, text in zip(lines, ["red orange yellow", "blue"], strict=True):
        ids = torch.tensor([[vocabulary.index(word) for word in ["[CLS]", *text.split()]]])
        with torch.no_grad():
            wanted = model(ids).last_hidden_state[0].mean(0)
        vector = torch.tensor(next(value for value in line.values() if isinstance(value, list)))
        assert torch.allclose(vector, wanted, atol=1e-4)


RUN = ["--epochs", "3", "--log-every", "3", "--checkpoint-every", "2", *KINDS["untied"]]


def bits(folder):
    return [(folder / name).read_bytes() for name in
            ("model.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors")]


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["split"], line["step"], line["loss"]) for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(data):
    train(data, data / "whole", *RUN)
    return data / "whole"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resume_gives_the_same_bits(data, uninterrupted, tmp_path, number):
    folder = tmp_path / "run"
    process = start("train-lm", data / "train.txt", "--tokenizer", data / "tokenizer", "--out", folder, *SMALL, *RUN)
    while not (folder / "checkpoint").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if process.returncode != 0:  # else it was done already
        assert process.returncode == 128 + number and "interrupted; saved" in err
    run("train-lm", "--resume", "--out", folder)
    assert bits(folder) == bits(uninterrupted)
    assert losses(folder) == losses(uninterrupted)


def test_kills_leave_a_run_that_goes_on_bit_for_bit(data, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    pick = random.Random(3)
    for _ in range(8):
        process = start("train-lm", data / "train.txt", "--tokenizer", data / "tokenizer", "--out", folder, "--resume",
                        *SMALL, *RUN)
        deadline = time.monotonic() + pick.uniform(0.2, 1.5)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        process.communicate()
    run("train-lm", data / "train.txt", "--tokenizer", data / "tokenizer", "--out", folder, "--resume", *SMALL, *RUN)
    assert bits(folder) == bits(uninterrupted)
    assert losses(folder) == losses(uninterrupted)
    assert not list(folder.glob("*.tmp*"))


def test_what_a_kill_left_behind_goes_even_if_there_is_nothing_more_to_write(data, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    process = start("--version")
    process.communicate()
    left = folder / f"checkpoint.tmp-{process.pid}"
    shutil.copytree(folder / "checkpoint", left)
    (folder / "notes.tmp-mine").write_text("not of a process")
    run("train-lm", "--resume", "--out", folder)
    assert bits(folder) == bits(uninterrupted)
    assert not left.exists() and (folder / "notes.tmp-mine").exists()


def test_resume_does_not_need_the_tokenizer_but_the_same_text_and_settings(data, uninterrupted, tmp_path):
    text, tokenizer, folder = tmp_path / "text.txt", tmp_path / "tokenizer", tmp_path / "run"
    shutil.copy(data / "train.txt", text)
    shutil.copytree(data / "tokenizer", tokenizer)
    run("train-lm", text, "--tokenizer", tokenizer, "--out", folder, *SMALL, *RUN)
    shutil.rmtree(tokenizer)
    run("train-lm", "--resume", "--out", folder)
    assert "training.rate was 0.01, not 0.5" in run("train-lm", "--resume", "--out", folder, "--rate", 0.5, status=2)
    assert "--resume" in run("train-lm", text, "--tokenizer", data / "tokenizer", "--out", folder, status=1)
    text.write_text(colours(100))
    assert "has changed" in run("train-lm", "--resume", "--out", folder, status=1)


def test_bfloat16_and_grouped_heads_learn(data, tmp_path):
    train(data, tmp_path / "run", "--dtype", "bfloat16", "--key-heads", 1, "--epochs", 3, *KINDS["untied"])
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["valid"]["perplexity"] < 1.6


def test_texts_come_from_standard_input_and_records_too(data, tmp_path):
    lines = (data / "train.txt").read_text().splitlines()
    (tmp_path / "records.jsonl").write_text("".join(json.dumps({"body": line}) + "\n" for line in lines))
    options = ["--tokenizer", data / "tokenizer" / "vocab.txt", *SMALL, "--epochs", 1, "--json"]
    a = json.loads(run("train-lm", "-", "--out", tmp_path / "a", *options, stdin=(data / "train.txt").read_text()))
    b = json.loads(run("train-lm", tmp_path / "records.jsonl", "--field", "body", "--out", tmp_path / "b", *options))
    assert a["valid"]["loss"] == b["valid"]["loss"]
    run("train-lm", "--resume", "--out", tmp_path / "a")


@pytest.mark.parametrize("arguments, words", [
    (["{train}", "--out", "{out}"], "--tokenizer"),
    (["--tokenizer", "{tokenizer}", "--out", "{out}"], "no TEXT"),
    (["--resume", "--out", "{out}"], "there is no run"),
    (["{train}", "--tokenizer", "missing", "--out", "{out}"], "missing"),
    (["{train}", "--tokenizer", "{empty}", "--out", "{out}"], "empty.txt"),
    (["missing.txt", "--tokenizer", "{tokenizer}", "--out", "{out}"], "missing.txt"),
    (["{empty}", "--tokenizer", "{tokenizer}", "--out", "{out}"], "empty.txt: has no text"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{out}", "--context", "6000"], "fewer than one sequence"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{out}", "--test", "{empty}"], "empty.txt: has no text"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{out}", "--width", "30", "--heads", "2"], "even number"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{out}", "--heads", "3"], "--heads 3 does not divide"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{out}", "--hierarchy", "many"], "many"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{out}", "--tie", "block", "--window", "8"], "--window"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{train}/x"], "train.txt/x"),
    (["{train}", "--tokenizer", "{tokenizer}", "--out", "{out}", "--device", "toaster"], "toaster"),
])
def test_what_is_wrong_is_named_and_nothing_is_left(data, tmp_path, arguments, words):
    (data / "empty.txt").write_text("")
    places = {"train": data / "train.txt", "empty": data / "empty.txt", "tokenizer": data / "tokenizer",
              "out": tmp_path / "out"}
    process = start("train-lm", *[argument.format(**places) for argument in arguments])
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2) and words in err, err
    assert "terminate" not in err and not (tmp_path / "out").exists()


def test_a_full_disk_is_an_error(data, tmp_path):
    """Files cannot grow beyond a few blocks: what a full disk looks like to a program."""
    import resource
    process = start("train-lm", data / "train.txt", "--tokenizer", data / "tokenizer", "--out", tmp_path / "run", *SMALL,
                    *RUN, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "File too large" in err, err
