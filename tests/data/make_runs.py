#!/usr/bin/env python3
"""Makes run folders as `ramify train` writes them, with invented numbers: usage: make_runs.py FOLDER

hierarchical, flat, none   three runs of one task with 20 classes; nested records with text, numbers and an image
regression                 a run whose target is a number
stopped                    a run that was killed: no evaluation, the last line of its metrics cut off
many_classes               120 classes
hostile                    labels, texts and classes that try to break out of a page
The same numbers every time.
"""

import json
import math
import pathlib
import random
import sys

CLASSES = """alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware
comp.windows.x misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics
sci.med sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc
talk.religion.misc""".split()
ALIKE = [{1, 2, 3, 4, 5}, {7, 8}, {9, 10}, {0, 15, 19}, {16, 17, 18}, {3, 12}]

RECORD = {
    "title": "A second look at the solar sail: what the first flight left open",
    "year": 1993,
    "organization": "Jet Propulsion Laboratory",
    "sections": [
        {
            "heading": "Why a sail",
            "text": "A rocket carries its fuel; a sail does not. Sunlight pushes on every square metre of the film with "
                    "a force of nine millionths of a newton, all day and for years.\n\n"
                    "The orbit grows a little with each turn around the Earth. After some months the probe escapes, "
                    "and no propellant was spent.",
        },
        {
            "heading": "The second flight",
            "text": "The film is two microns thick. It is folded like a map and opens by its own spin (twelve turns a "
                    "minute). We don't expect the booms to bend. If they do, the attitude control can't hold the probe "
                    "against the wind of the upper atmosphere.",
        },
        {"heading": "Costs", "text": "The launch is shared with a weather satellite."},
    ],
    "keywords": ["orbit", "sail", "launch"],
    "replies": 14,
    "abstract": "",
    "figure": (8, 8),
}
WORTH = {"orbit": 30, "sail": 18, "solar": 14, "launch": 16, "probe": 18, "satellite": 24, "atmosphere": 10, "rocket": 22,
         "propellant": 16, "flight": 6, "propulsion": 14, "earth": 10, "spin": 3, "newton": 4}


def words(text):
    token = ""
    for letter in text.replace("n't", " n\u2019t"):
        if letter.isalnum() or letter == "\u2019":
            token += letter
            continue
        if token:
            yield token.replace("\u2019", "'")
        token = ""
        if not letter.isspace():
            yield letter
    if token:
        yield token


def leaf(label, kind, text, worth):
    return {"label": str(label), "kind": kind, "text": str(text), "worth": worth}


def inner(label, kind, children):
    return {"label": str(label), "kind": kind, "children": children}


def text_tree(label, text):
    if not text:
        return leaf(label, "empty", "", 0.2)
    paragraphs = []
    for p, paragraph in enumerate(text.split("\n\n")):
        sentences = []
        for s, sentence in enumerate(paragraph.replace("; ", ";\0").replace(". ", ".\0").split("\0")):
            tokens = [leaf(i, "token", word.lower(), WORTH.get(word.lower(), 0.4 if len(word) < 4 else 1.2))
                      for i, word in enumerate(words(sentence))]
            sentences.append(inner(s, "sentence", tokens))
        paragraphs.append(inner(p, "paragraph", sentences))
    return inner(label, "text", paragraphs)


def tree_of(label, value):
    if isinstance(value, dict):
        return inner(label, "object", [tree_of(key, each) for key, each in value.items()])
    if isinstance(value, list):
        return inner(label, "array", [tree_of(i, each) for i, each in enumerate(value)])
    if isinstance(value, tuple):
        rows, columns = value
        bright = lambda r, c: 8 * math.exp(-((r - 2.2) ** 2 + (c - 5) ** 2) / 3) + 0.3
        return inner(label, "image", [leaf(f"{r},{c}", "patch", "", bright(r, c))
                                      for r in range(rows) for c in range(columns)])
    if isinstance(value, str):
        return text_tree(label, value)
    return leaf(label, "number", value, 1.5)


def give_masses(node, attention):
    """Each leaf its worth, as shares; without attention none. Returns the leaves below."""
    def total(at):
        return sum(total(child) for child in at["children"]) if "children" in at else weight(at)

    def weight(at):
        return at["worth"] ** {"hierarchical": 1, "flat": 0.6, "none": 0}[attention]

    whole = total(node)

    def visit(at):
        children = at.get("children", [])
        at["leaves"] = sum(visit(child) for child in children) if children else 1
        mass = sum(child["mass"] for child in children) if children else weight(at) / whole
        at["mass"] = round(mass, 6)
        at.pop("worth", None)
        return at["leaves"]

    def without(at):
        at.pop("mass")
        for child in at.get("children", []):
            without(child)

    visit(node)
    if attention == "none":
        without(node)
    return node


def explanation(line, truth, probabilities, attention, record=None):
    prediction = max(probabilities, key=probabilities.get)
    return {"line": line, "truth": truth, "prediction": prediction, "probabilities": probabilities,
            "tree": give_masses(tree_of("", RECORD if record is None else record), attention)}


def confusion_of(random_, classes, accuracy, support):
    """Rows of truth; mistakes fall on classes that are alike."""
    matrix = [[0] * len(classes) for _ in classes]
    for truth in range(len(classes)):
        friends = sorted(set().union(*[group for group in ALIKE if truth in group]) - {truth})
        right = min(0.98, max(0.2, random_.gauss(accuracy - 0.05 * len(friends) + 0.12, 0.03)))
        for _ in range(support + random_.randrange(-support // 8, support // 8 + 1)):
            if random_.random() < right:
                matrix[truth][truth] += 1
            elif friends and random_.random() < 0.75:
                matrix[truth][random_.choice(friends)] += 1
            else:
                matrix[truth][random_.randrange(len(classes))] += 1
    return matrix


def evaluation_of(matrix, classes, loss):
    rows, f1s = [], []
    total = sum(map(sum, matrix))
    for c, name in enumerate(classes):
        hits, support, predicted = matrix[c][c], sum(matrix[c]), sum(row[c] for row in matrix)
        precision, recall = hits / max(predicted, 1), hits / max(support, 1)
        f1s.append(2 * hits / max(support + predicted, 1))
        rows.append({"class": name, "precision": round(precision, 4), "recall": round(recall, 4),
                     "f1": round(f1s[-1], 4), "support": support})
    accuracy = sum(matrix[c][c] for c in range(len(classes))) / total
    return {"records": total, "loss": loss, "accuracy": accuracy, "macro_f1": sum(f1s) / len(f1s), "classes": classes,
            "confusion": matrix, "per_class": rows, "seconds": 2.5, "leaves_per_second": 410000.0}


def metrics_of(random_, attention, epochs, steps_an_epoch, floor, speed):
    lines = []
    for epoch in range(epochs):
        for part in range(1, 6):
            step = epoch * steps_an_epoch + part * steps_an_epoch // 5
            at = step / (epochs * steps_an_epoch)
            loss = 3 * math.exp(-6 * at) + floor * 0.6 + random_.gauss(0, 0.04)
            lines.append({"split": "train", "step": step, "epoch": round(step / steps_an_epoch, 3), "loss": round(loss, 4),
                          "accuracy": round(1 / (1 + loss ** 1.6), 4), "rate": round(1e-3 * min(1, at * 10) * (1 - at), 7),
                          "records_per_second": round(random_.gauss(1400, 40), 1),
                          "leaves_per_second": round(random_.gauss(speed, speed / 30), 1), "seconds": round(step * 11e3 / speed, 2)})
        at = (epoch + 1) / epochs
        loss = 2.6 * math.exp(-6 * at) + floor + 0.06 * at * at
        lines.append({"split": "valid", "step": (epoch + 1) * steps_an_epoch, "epoch": epoch + 1, "loss": round(loss, 4),
                      "accuracy": round(1 / (1 + loss ** 2), 4), "macro_f1": round(1 / (1 + loss ** 2) - 0.012, 4),
                      "seconds": round((epoch + 1) * steps_an_epoch * 11e3 / speed + 1, 2)})
    return lines


def config_of(attention, **more):
    return {"ramify": "0.5.0", "command": ["ramify", "train", "20news/train.jsonl", "--target", "group", "--attention",
                                           attention, "--out", f"runs/{attention}", "--fields", "year=category; x"],
            "attention": attention, "seed": 0, "parameters": {"encoder": 774656, "tables": 3072000, "total": 3846656},
            "model": {"token_width": 300, "layers": [{"heads": 3, "head_dim": 128, "tie": "block", "width": 128}],
                      "pooling": "mean", "dropout": 0.1},
            "training": {"epochs": 6, "batch_records": 32, "rate": 0.001, "warmup": 0.1, "seed": 0},
            "data": {"train": ["20news/train.jsonl"], "valid": [], "valid_fraction": 0.1},
            "records": {"train": 10182, "valid": 1132}, "task": "classification", "target": "group", "classes": CLASSES,
            **more}


def write_run(folder, config, metrics=None, evaluation=None, explanations=None):
    folder.mkdir(parents=True, exist_ok=True)
    write = lambda name, value: (folder / name).write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
    write("config.json", config)
    if metrics is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    if evaluation is not None:
        write("evaluation.json", evaluation)
    if explanations is not None:
        write("explanations.json", {"records": explanations})


def make_three(root):
    for number, (attention, accuracy, floor, speed) in enumerate(
            [("hierarchical", 0.9, 0.44, 182000), ("flat", 0.885, 0.48, 61000), ("none", 0.87, 0.52, 240000)]):
        random_ = random.Random(number)
        evaluation = {
            "valid": evaluation_of(confusion_of(random_, CLASSES, accuracy + 0.01, 56), CLASSES, floor + 0.02),
            "test": evaluation_of(confusion_of(random_, CLASSES, accuracy, 376), CLASSES, floor + 0.04),
            "peak_memory_bytes": 1.1e9 + 2e8 * number}
        records = [
            explanation(127, "sci.space", {"sci.space": 0.913, "sci.electronics": 0.041, "misc.forsale": 0.012,
                                           "comp.graphics": 0.01, "sci.med": 0.006}, attention),
            explanation(4071, "comp.sys.mac.hardware",
                        {"comp.sys.ibm.pc.hardware": 0.52, "comp.sys.mac.hardware": 0.31, "sci.electronics": 0.09},
                        attention, {"title": "Which monitor for my orbit of desks?", "replies": 3,
                                    "text": "The probe of the old card fits. Launch it and look."})]
        write_run(root / attention, config_of(attention), metrics_of(random_, attention, 6, 320, floor, speed), evaluation,
                  records)


def make_regression(root):
    random_ = random.Random(11)
    pairs = []
    for _ in range(300):
        truth = random_.uniform(0, 40)
        pairs.append([round(truth, 2), round(truth * 0.93 + 1.4 + random_.gauss(0, 2.5), 2)])
    errors = [b - a for a, b in pairs]
    mean = sum(a for a, _ in pairs) / len(pairs)
    mse = sum(e * e for e in errors) / len(errors)
    evaluation = {"valid": {"records": 2400, "loss": 0.061, "rmse": math.sqrt(mse),
                            "mae": sum(map(abs, errors)) / len(errors),
                            "r2": 1 - mse / (sum((a - mean) ** 2 for a, _ in pairs) / len(pairs)), "pairs": pairs}}
    metrics = [{"split": "train" if step % 100 else "valid", "step": step, "epoch": step / 100,
                "loss": 0.06 + math.exp(-step / 80), "rmse": 2.5 + 9 * math.exp(-step / 80), "seconds": step / 10,
                **({"leaves_per_second": 9e4} if step % 100 else {})} for step in range(20, 520, 20)]
    record = {"line": 5, "truth": 12.5, "prediction": 13.0625001,
              "tree": give_masses(tree_of("", {"area": 71.5, "text": "Two rooms, a balcony."}), "hierarchical")}
    config = config_of("hierarchical", task="regression", target="rent")
    config.pop("classes")
    write_run(root / "regression", config, metrics, evaluation, [record])


def make_stopped(root):
    folder = root / "stopped"
    write_run(folder, config_of("hierarchical"), metrics_of(random.Random(5), "hierarchical", 2, 320, 0.4, 1e5)[:8])
    with open(folder / "metrics.jsonl", "a") as metrics:
        metrics.write('{"split": "train", "step": 400, "lo')


def make_many_classes(root, count=120):
    random_ = random.Random(3)
    classes = [f"topic {chr(97 + c % 26)}{c:03}" for c in range(count)]
    matrix = [[0] * count for _ in classes]
    for truth in range(count):
        matrix[truth][truth] = random_.randrange(20, 40)
        for _ in range(random_.randrange(12)):
            matrix[truth][min(count - 1, max(0, truth + random_.choice([-2, -1, 1, 2, random_.randrange(-60, 60)])))] += 1
    write_run(root / "many_classes", config_of("flat", classes=classes),
              metrics_of(random_, "flat", 3, 100, 0.7, 3e4), {"valid": evaluation_of(matrix, classes, 0.71)})


HOSTILE = ["</script><script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "--><svg onload=alert(1)>",
           "\u202eesrever \u2067isolate", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd (abc)", "tab\tnew\nline\u0007\u0000bell",
           "x" * 3000, "Z\u0335\u0321" * 40, "&amp; &lt;b&gt; {{7*7}} ${x} `y`", ""]


def make_hostile(root):
    matrix = [[5 if r == c else (r + c) % 3 for c in range(len(HOSTILE))] for r in range(len(HOSTILE))]
    tree = inner("\"><b>root", "object",
                 [leaf(text, "number", text, 1) for text in HOSTILE] +
                 [inner("text", "text", [leaf(i, "token", text, 2) for i, text in enumerate(HOSTILE)]),
                  inner("</div></details>", "</div>", [leaf("0,0", "patch", "", 1), leaf("9999999999,3", "patch", "", 1)]),
                  inner("grid", "image", [leaf(text, "patch", "", 1) for text in HOSTILE])])
    deep = {"label": "end", "kind": "token", "text": "deep", "mass": 0.5}
    for level in range(900):
        side = {"label": "1", "kind": "number", "text": str(level), "mass": 0.001}
        deep = {**inner(level, "array", [deep, side]), "mass": 0.5, "leaves": level + 2}
    explanations = [{"line": 1, "truth": HOSTILE[0], "prediction": HOSTILE[1],
                     "probabilities": {text: 0.1 for text in HOSTILE}, "tree": give_masses(tree, "hierarchical")},
                    {"line": 2, "prediction": "deep", "tree": deep}]
    config = config_of("hierarchical", target=HOSTILE[1], classes=HOSTILE, command=["ramify", *HOSTILE],
                       model={HOSTILE[0]: HOSTILE[1]})
    metrics = [{"split": "train", "step": step, "epoch": step / 10, "loss": None if step == 3 else 1e300 if step == 4 else 1 / step,
                "note": HOSTILE[0]} for step in range(1, 9)]
    write_run(root / "hostile", config, metrics, {"valid": evaluation_of(matrix, HOSTILE, 1.0), HOSTILE[0]: {"records": 1}},
              explanations)


def make_all(root):
    sys.setrecursionlimit(10000)
    for make in (make_three, make_regression, make_stopped, make_many_classes, make_hostile):
        make(root)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make_all(pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
