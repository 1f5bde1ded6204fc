"""Leaves of texts from a pretrained encoder: a small random BERT that transformers makes, from training to prediction."""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import time

import pytest
import torch
from safetensors.torch import load_file

import ramify
from cli import run, start, write_records

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

WORDS = ["apple", "river", "stone", "cloud", "horse", "candle", "wave", "wing", "hill", "title", "body", "label"]
LEVELS = ["table", "token", "sentence", "paragraph"]
MAX_TOKENS = 12
SMALL = ["--target", "label", "--set", "model.layers=[{\"heads\": 2, \"head_dim\": 16, \"width\": 32}]",
         "--set", "model.mlp_width=32", "--rate", "0.01"]


def save_bert(folder, seed=0):
    torch.manual_seed(seed)
    config = transformers.BertConfig(vocab_size=5 + len(WORDS) + 1, hidden_size=16, num_hidden_layers=2,
                                     num_attention_heads=2, intermediate_size=24, max_position_embeddings=MAX_TOKENS,
                                     initializer_range=0.05)
    transformers.BertModel(config).eval().save_pretrained(folder)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "."]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer",
                                                              "do_lower_case": True}))
    return folder


def records(count, seed=0):
    """The label is told by one word; some texts are longer than the model takes."""
    pick = random.Random(seed)
    topics = {"sea": "wave", "sky": "wing", "land": "hill"}

    def record():
        label, word = pick.choice(list(topics.items()))
        words = pick.choices(WORDS[:6], k=pick.choice([4, 6, 16]))
        words.insert(pick.randrange(len(words)), word)
        middle = len(words) // 2
        sentences = [" ".join(part).capitalize() + "." for part in (words[:middle], words[middle:], words[:1])]
        body = f"{sentences[0]} {sentences[1]}\n\n{sentences[2]}"
        return {"title": " ".join(pick.choices(WORDS[:6], k=3)), "body": body, "label": label}

    return [record() for _ in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaves")
    (folder / "bert").mkdir()
    save_bert(folder / "bert")
    write_records(folder / "train.jsonl", records(160))
    write_records(folder / "test.jsonl", records(40, seed=1))
    return folder


def train(data, out, level, *more, epochs=1, threads=1, workers=2, status=0):
    """What the program says on standard error."""
    process = start("train", data / "train.jsonl", "--test", data / "test.jsonl", "--out", out, "--leaf-encoder",
                    data / "bert", "--leaf-level", level, "--epochs", epochs, "--threads", threads, "--workers", workers,
                    *SMALL, *more)
    _, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    return err


@pytest.fixture(scope="module", params=LEVELS)
def trained(request, data):
    folder = data / request.param
    cache = [] if request.param == "table" else ["--leaf-cache", data / f"{request.param}.safetensors"]
    return request.param, folder, train(data, folder, request.param, *cache, epochs=8)


def evaluation(folder):
    return json.loads((folder / "evaluation.json").read_text())["test"]


def learned(folder):
    return [(folder / part / "model.safetensors").read_bytes() for part in ("model", "checkpoint")]


def test_every_level_trains_and_is_used_as_it_was_trained(data, trained):
    level, folder, err = trained
    stored = evaluation(folder)
    assert stored["accuracy"] > 0.5  # of three classes; the model is a random one
    scores = json.loads(run("eval", folder, data / "test.jsonl", "--json"))
    assert scores["confusion"] == stored["confusion"] and scores["loss"] == pytest.approx(stored["loss"], rel=1e-5)
    lines = [json.loads(line) for line in run("predict", folder, data / "test.jsonl").splitlines()]
    truth = [record["label"] for record in records(40, seed=1)]
    assert sum(line["prediction"] == label for line, label in zip(lines, truth)) == round(40 * stored["accuracy"])
    model = ramify.load(folder)
    for line, result in zip(lines, model.predict(records(40, seed=1)), strict=True):
        assert result["probabilities"] == pytest.approx(line["probabilities"], abs=1e-5)
    schema = json.loads((folder / "schema.json").read_text())["leaf_encoding"]
    assert schema["level"] == level and schema["width"] == 16 and schema["model"] == str(data / "bert")
    assert ("computed" in err) == (level != "table")


def leaves(tree):
    return [leaf for child in tree["children"] for leaf in leaves(child)] if tree.get("children") else [tree]


def test_explanations_say_what_a_leaf_stands_for(data, trained):
    level, folder, _ = trained
    tree = ramify.load(folder).explain({"title": "stone", "body": "Apple wave. River.\n\nHill."})["tree"]
    wanted = {"sentence": ["stone", "Apple wave.", "River.", "Hill."],
              "paragraph": ["stone", "Apple wave. River.", "Hill."]}
    words = ["stone", "Apple", "wave", ".", "River", ".", "Hill", "."]
    assert sorted(leaf["text"] for leaf in leaves(tree)) == sorted(wanted.get(level, words))
    assert {leaf["kind"] for leaf in leaves(tree)} == {"token" if level == "table" else level}
    body = next(child for child in tree["children"] if child["label"] == "body")
    assert len(body["children"]) == 2
    sizes = {"sentence": [2, 1], "paragraph": [0, 0]}.get(level, [2, 1])
    assert [len(child.get("children", [])) for child in body["children"]] == sizes


def wanted_rows(data, text, level):
    """transformers' rows of a text: of its tokens, or their mean with that of the special ones."""
    model = transformers.BertModel.from_pretrained(data / "bert").eval()
    vocabulary = (data / "bert" / "vocab.txt").read_text().split("\n")
    ids = [vocabulary.index(word) for word in text.lower().replace(".", " .").split()]
    chunks = []
    for begin in range(0, len(ids), MAX_TOKENS - 2):
        chunk = torch.tensor([[2, *ids[begin:begin + MAX_TOKENS - 2], 3]])
        with torch.no_grad():
            rows = model(chunk).last_hidden_state[0]
        chunks.append(rows[1:-1] if level == "token" else rows)
    rows = torch.cat(chunks)
    return ids, rows if level == "token" else rows.mean(0, keepdim=True)


def cached_rows(file, ids):
    cache = load_file(file)
    keys = [bytes(key).decode() for key in cache["keys"].numpy()]
    assert keys == sorted(keys)
    at = keys.index(hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest())
    return cache["rows.000000"][cache["begin"][at]:cache["begin"][at + 1]]


@pytest.mark.parametrize("level", ["token", "sentence", "paragraph"])
def test_vectors_are_those_of_transformers(data, level, tmp_path):
    cache = data / f"{level}.safetensors"
    if not cache.exists():
        train(data, tmp_path / "run", level, "--leaf-cache", cache)
    longest = max(records(160), key=lambda record: len(record["body"]))
    pieces = {"token": [longest["title"], longest["body"]],
              "paragraph": [longest["title"], *longest["body"].split("\n\n")]}
    pieces["sentence"] = [piece.strip(".") + "." for piece in longest["body"].replace("\n\n", " ").split(". ")]
    lengths = []
    for piece in pieces[level]:
        ids, rows = wanted_rows(data, piece, level)
        lengths.append(len(ids))
        assert torch.allclose(cached_rows(cache, ids), rows, atol=1e-4)
    assert level == "sentence" or max(lengths) > MAX_TOKENS


def test_a_cache_is_used_and_changes_nothing(data, tmp_path):
    cache = tmp_path / "cache.safetensors"
    run_of = {}
    for name, more in {"first": ["--leaf-cache", cache], "second": ["--leaf-cache", cache], "without": []}.items():
        err = train(data, tmp_path / name, "sentence", *more)
        run_of[name] = learned(tmp_path / name)
        note = next(line for line in err.splitlines() if "computed" in line).split()
        computed, asked = int(note[note.index("computed") + 1]), int(note[note.index("of") + 1])
        pieces = {piece.strip(".").lower() + "." * (text == record["body"])
                  for record in records(160) + records(40, seed=1) for text in (record["title"], record["body"])
                  for piece in text.replace("\n\n", " ").split(". ")}
        assert computed == (0 if name == "second" else len(pieces)) and asked == 4 * 200
    assert run_of["first"] == run_of["second"] == run_of["without"]
    before = cache.read_bytes()
    train(data, tmp_path / "again", "sentence", "--leaf-cache", cache)
    assert cache.read_bytes() == before


@pytest.mark.parametrize("level", ["token", "paragraph"])
def test_vectors_do_not_depend_on_threads(data, level, tmp_path):
    files = []
    for workers, threads in ((1, 1), (3, 2)):
        files.append(tmp_path / f"{workers}.safetensors")
        train(data, tmp_path / str(workers), level, "--leaf-cache", files[-1], workers=workers, threads=threads)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("trained", ["table", "sentence"], indirect=True)
def test_an_interrupted_run_goes_on_bit_for_bit(data, trained, tmp_path):
    level, whole, _ = trained
    folder = tmp_path / "run"
    process = start("train", data / "train.jsonl", "--test", data / "test.jsonl", "--out", folder, "--leaf-encoder",
                    data / "bert", "--leaf-level", level, "--epochs", 8, "--threads", 1, *SMALL)
    while not (folder / "checkpoint").exists() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    run("train", "--resume", "--out", folder)
    assert learned(folder) == learned(whole)


def test_the_table_stays_or_learns(data, tmp_path):
    words = load_file(data / "bert" / "model.safetensors")["embeddings.word_embeddings.weight"]

    def table(folder):
        tensors = load_file(folder / "model" / "model.safetensors")
        return next(tensor for tensor in tensors.values() if tensor.shape == words.shape)

    train(data, tmp_path / "fixed", "table")
    assert torch.equal(table(tmp_path / "fixed"), words)
    train(data, tmp_path / "learning", "table", "--train-vectors")
    assert not torch.equal(table(tmp_path / "learning"), words)


def test_a_changed_or_missing_model_is_refused(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data / "bert", copy / "bert")
    for name in ("train.jsonl", "test.jsonl"):
        shutil.copy(data / name, copy / name)
    cache = tmp_path / "cache.safetensors"
    folder = tmp_path / "run"
    train(copy, folder, "sentence", "--leaf-cache", cache)
    save_bert(copy / "bert", seed=1)
    for command in (["eval", folder, copy / "test.jsonl"], ["predict", folder, copy / "test.jsonl"],
                    ["train", "--resume", "--out", folder]):
        assert "has changed" in run(*command, status=1)
    with pytest.raises(RuntimeError, match="has changed"):
        ramify.load(folder)
    assert "another model" in (err := train(copy, tmp_path / "b", "sentence", "--leaf-cache", cache, status=1))
    assert f"{cache}" in err and "remove this file" in err
    shutil.rmtree(copy / "bert")
    assert "is not there" in run("predict", folder, copy / "test.jsonl", status=1)


def test_a_cache_that_is_none_or_broken_is_named(data, tmp_path):
    good = tmp_path / "good.safetensors"
    train(data, tmp_path / "run", "sentence", "--leaf-cache", good)
    whole = good.read_bytes()
    cases = {"half": whole[:len(whole) // 2], "bit": whole[:-3000] + bytes([whole[-3000] ^ 1]) + whole[-2999:],
             "model": (data / "bert" / "model.safetensors").read_bytes()}
    for name, content in cases.items():
        file = tmp_path / name
        file.write_bytes(content)
        err = train(data, tmp_path / f"run-{name}", "sentence", "--leaf-cache", file, status=1)
        assert str(file) in err and "remove this file" in err, err
        assert file.read_bytes() == content and not (tmp_path / f"run-{name}").exists()
    err = train(data, tmp_path / "level", "paragraph", "--leaf-cache", good, status=1)
    assert "--leaf-level \"sentence\", not paragraph" in err and str(good) in err


def test_a_full_disk_is_an_error_that_names_the_cache(data, tmp_path):
    process = start("train", data / "train.jsonl", "--out", tmp_path / "run", "--leaf-encoder", data / "bert",
                    "--leaf-cache", tmp_path / "cache.safetensors", *SMALL,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "cache.safetensors: " in err and "File too large" in err, err
    assert not list(tmp_path.glob("cache*"))


def test_a_signal_while_encoding_ends_in_order_and_keeps_what_was_computed(data, tmp_path):
    pick = random.Random(5)
    many = [{"text": " ".join(pick.choices(WORDS, k=3000)), "label": pick.choice("ab")} for _ in range(400)]
    write_records(tmp_path / "long.jsonl", many)
    cache = tmp_path / "cache.safetensors"
    screen, terminal = os.openpty()  # to a terminal, progress is told at once
    process = start("train", tmp_path / "long.jsonl", "--out", tmp_path / "run", "--leaf-encoder", data / "bert",
                    "--leaf-cache", cache, "--leaf-level", "paragraph", "--workers", 2, *SMALL, stderr=terminal)
    os.close(terminal)
    shown = b""
    while b"reading training" not in shown:
        shown += os.read(screen, 1000)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    while b"interrupted" not in shown:
        shown += os.read(screen, 1000)
    os.close(screen)
    assert process.returncode == 128 + signal.SIGINT
    assert not (tmp_path / "run").exists()
    assert 0 < len(load_file(cache)["keys"]) < 400


def llama(folder):
    folder.mkdir()
    config = transformers.LlamaConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                      intermediate_size=24)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


@pytest.mark.parametrize("arguments, words", [
    (["--leaf-encoder", "{data}/nothing"], "nothing: is no folder"),
    (["--leaf-encoder", "{data}/train.jsonl"], "is no folder"),
    (["--leaf-encoder", "{data}"], "config.json"),
    (["--leaf-encoder", "{llama}"], "is a decoder"),
    (["--leaf-level", "token"], "without --leaf-encoder"),
    (["--leaf-cache", "{data}/x"], "without --leaf-encoder"),
    (["--leaf-encoder", "{data}/bert", "--leaf-level", "word"], "word"),
    (["--leaf-encoder", "{data}/bert", "--leaf-cache", "{data}/nowhere/x"], "nowhere/x: cannot be written"),
    (["--leaf-encoder", "{data}/bert", "--leaf-level", "table", "--leaf-cache", "{data}/x"], "--leaf-cache"),
    (["--leaf-encoder", "{data}/bert", "--word-vectors", "{data}/train.jsonl"], "--word-vectors"),
    (["--leaf-encoder", "{data}/bert", "--tokenizer", "{data}/bert/vocab.txt"], "--tokenizer"),
    (["--leaf-encoder", "{data}/bert", "--train-vectors"], "--train-vectors"),
])
def test_what_cannot_be_is_said(data, tmp_path, arguments, words):
    places = {"data": data, "llama": llama(tmp_path / "llama")}
    process = start("train", data / "train.jsonl", "--out", tmp_path / "out", *SMALL,
                    *[argument.format(**places) for argument in arguments])
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2) and words in err, err
    assert "terminate" not in err and not (tmp_path / "out").exists()
