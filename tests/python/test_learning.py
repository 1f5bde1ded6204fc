"""Every domain and every kind of leaf, end to end: a tiny task that only it can solve is learned."""

import itertools
import json
import random
import struct
import zlib

import pytest

from cli import run, write_records

SETTINGS = ["--set", "model.layers=[{\"heads\": 2, \"head_dim\": 16, \"width\": 64, \"include_self\": true}]",
            "--set", "model.token_width=32", "--set", "model.mlp_width=64", "--set", "model.dropout=0",
            "--epochs", "30", "--rate", "0.01", "--explain", "0", "--threads", "1", "--workers", "1", "--patience", "8"]


def accuracy(tmp_path, make, *options):
    """Of a model that was trained on `make(random)` for some hundred records, on others."""
    pick = random.Random(5)
    train = write_records(tmp_path / "train.jsonl", [make(pick) for _ in range(600)])
    test = write_records(tmp_path / "test.jsonl", [make(pick) for _ in range(300)])
    result = json.loads(run("train", train, "--test", test, "--target", "label", "--out", tmp_path / "run", "--json",
                            *SETTINGS, *options))
    return result["test"]["accuracy"]


def png(pixels):
    """A PNG of rows of grey values."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(row) for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# --- kinds of leaves: the label is the leaf ---

LEAVES = {
    "token": lambda pick, label: {"text": f"the {['cat', 'dog'][label]} sat there", "more": "words here"},
    "category": lambda pick, label: {"kind": ["red", "blue"][label], "more": pick.choice(["x", "y"])},
    "boolean": lambda pick, label: {"flag": bool(label), "more": pick.random()},
    "null": lambda pick, label: {"value": [None, 1.5][label], "more": pick.random()},
    "number": lambda pick, label: {"value": pick.gauss(-1 if label else 1, 0.2), "more": pick.random()},
    "vector": lambda pick, label: {"value": {"$vector": [pick.gauss(1 if i % 2 == label else -1, 0.5)
                                                         for i in range(6)]}},
    "empty": lambda pick, label: {"items": ["a"] * label, "more": pick.random()},
}


@pytest.mark.parametrize("kind", LEAVES)
def test_learns_from_a_leaf(tmp_path, kind):
    def make(pick):
        label = pick.randrange(2)
        return {**LEAVES[kind](pick, label), "label": "ab"[label]}

    assert accuracy(tmp_path, make, "--epochs", 8) > 0.95


def test_learns_from_an_image(tmp_path):
    def make(pick):
        label = pick.randrange(2)
        name = f"{pick.getrandbits(60):x}.png"
        bright = 200 if label else 60
        (tmp_path / name).write_bytes(png([[min(255, bright + pick.randrange(40)) for _ in range(16)]
                                           for _ in range(16)]))
        return {"picture": {"$image": name}, "label": "ab"[label]}

    assert accuracy(tmp_path, make, "--patch", 8, "--epochs", 8) > 0.95


def test_learns_a_number(tmp_path):
    pick = random.Random(1)
    records = [{"a": a, "b": b, "label": 3 * a + 2 * b + 10} for a, b in
               ((pick.uniform(-1, 1), pick.uniform(-1, 1)) for _ in range(600))]
    data = write_records(tmp_path / "data.jsonl", records)
    result = json.loads(run("train", data, "--target", "label", "--out", tmp_path / "run", "--json", *SETTINGS))
    assert result["valid"]["r2"] > 0.95


def test_learns_several_labels(tmp_path):
    pick = random.Random(1)
    names = {"sun": "light", "sea": "waves", "ice": "cold"}

    def record():
        labels = [label for label in names if pick.random() < 0.5]
        return {"text": " ".join(["some", "words", *(names[label] for label in labels)]), "label": labels}

    data = write_records(tmp_path / "data.jsonl", [record() for _ in range(600)])
    result = json.loads(run("train", data, "--target", "label", "--out", tmp_path / "run", "--json", *SETTINGS))
    assert result["valid"]["micro_f1"] > 0.95


def test_learns_labels_of_items(tmp_path):
    pick = random.Random(1)

    def record():
        words = pick.choices(["a", "b", "c"], k=5)
        return {"words": words, "label": ["vowel" if word == "a" else "consonant" for word in words]}

    data = write_records(tmp_path / "data.jsonl", [record() for _ in range(300)])
    run("train", data, "--target", "label", "--target-of", "words", "--out", tmp_path / "run", *SETTINGS)
    out = run("predict", tmp_path / "run", "-", stdin=json.dumps({"words": ["c", "a", "b"]}) + "\n")
    assert [item["prediction"] for item in json.loads(out)["predictions"]] == ["consonant", "vowel", "consonant"]


# --- domains: the same leaves in two arrangements, which only positions can tell apart ---

def sequence_items(pick, label):
    return ["first", "second", "third"] if label else ["second", "third", "first"]


def arranged_keys(pick, label):
    values = sequence_items(pick, label)
    return dict(zip(["left", "middle", "right"], values))


def write_corner_images(folder):
    """A bright patch in one of two corners of a grid of nine."""
    for label, place in enumerate([(0, 0), (2, 2)]):
        pixels = [[220 if (row // 4, column // 4) == place else 40 for column in range(12)] for row in range(12)]
        (folder / f"corner-{label}.png").write_bytes(png(pixels))


def path_of_four(pick, label):
    """Four nodes in a path: a at its end, or inside."""
    order = list("abcd") if label else list("bacd")
    nodes = list("abcd")
    pick.shuffle(nodes)
    edges = [[nodes.index(x), nodes.index(y)] for x, y in itertools.pairwise(order)]
    return {"$graph": {"nodes": nodes, "edges": edges}}


DOMAINS = {
    "sequence": lambda pick, label: {"items": sequence_items(pick, label)},
    "key": arranged_keys,
    "grid": lambda pick, label: {"picture": {"$image": f"corner-{label}.png"}},
    "graph": lambda pick, label: {"net": path_of_four(pick, label)},
}


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("positions", ["with positions", "without"])
def test_only_positions_tell_arrangements_apart(tmp_path, domain, positions):
    def make(pick):
        label = pick.randrange(2)
        return {**DOMAINS[domain](pick, label), "label": "ab"[label]}

    write_corner_images(tmp_path)
    # few different values would be categories of their fields: then the leaf itself says which field it is of
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"fields": {key: "text" for key in ("left", "middle", "right")}}))
    options = ["--patch", 4, "--schema", schema] if domain == "key" else ["--patch", 4]
    if positions == "without":
        assert accuracy(tmp_path, make, *options, "--set", "model.positions=false", "--epochs", 4) < 0.65
    else:
        assert accuracy(tmp_path, make, *options) > 0.95


def test_a_set_has_no_order(tmp_path):
    def make(pick):
        label = pick.randrange(2)
        return {"items": {"$set": sequence_items(pick, label)}, "label": "ab"[label]}

    assert accuracy(tmp_path, make, "--epochs", 4) < 0.65
