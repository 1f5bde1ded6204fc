"""Published models in the engine: the same numbers as transformers, swapped layers as ramify.hf has them, and the
commands encode, compare, bench model and train --architecture."""

import json
import os
import random
import signal
import time

import pytest
import torch

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads and our processes do not go together
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")

import cli  # noqa: E402
import ramify  # noqa: E402

WORDS = "good bad film plot actor the a was not very dull great long short scene end of and in it".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48, initializer_range=0.4)


def random_text(rng, words):
    text = " ".join(rng.choice(WORDS) for _ in range(words))
    return text.replace(" end", ".\n\nEnd").replace(" it", ". It")


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(1)
    return [random_text(rng, words) for words in [5, 1, 40, 17, 40, 3, 90, 0, 24, 11]]


def tokenizer_of(words):
    return tokenizers.BertWordPieceTokenizer({word: i for i, word in enumerate(words)}, lowercase=True)


def write_tokenizer(folder):
    tokenizer_of(SPECIAL + WORDS + [".", ","]).save(str(folder / "tokenizer.json"))


def make_model(folder, kind):
    torch.manual_seed(7)
    vocabulary = len(SPECIAL) + len(WORDS) + 2
    if kind == "bert":
        model = transformers.BertModel(transformers.BertConfig(vocab_size=vocabulary, max_position_embeddings=64, **SIZES))
    elif kind == "roberta":
        model = transformers.RobertaModel(transformers.RobertaConfig(
            vocab_size=vocabulary, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, **SIZES))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=vocabulary, max_position_embeddings=64, num_key_value_heads=2, pad_token_id=0, **SIZES))
    model.eval()
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return model.model if kind == "llama" else model


@pytest.fixture(scope="module", params=["bert", "roberta", "llama"])
def published(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, make_model(folder, request.param)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    return folder, make_model(folder, "bert")


def write_texts(path, texts):
    return cli.write_records(path, [{"text": text} for text in texts])


def token_rows(folder, texts, tmp_path, *options):
    """What `ramify encode --pooling none` gives, one tensor a text."""
    out = tmp_path / "rows.safetensors"
    cli.run("encode", folder, write_texts(tmp_path / "texts.jsonl", texts), "--pooling", "none", "--out", out, *options)
    tensors = safetensors_torch.load_file(out)
    return [tensors[f"tokens.{i}"] for i in range(len(texts))]


@torch.no_grad()
def expected_rows(kind, model, text):
    tokenizer = tokenizer_of(SPECIAL + WORDS + [".", ","])
    tokenizer.enable_truncation(64)
    ids = torch.tensor([tokenizer.encode(text).ids])
    if kind == "roberta":  # by itself it takes the padding id, a word of this vocabulary, for no token
        return model(ids, position_ids=torch.arange(2, 2 + ids.shape[1])[None]).last_hidden_state[0]
    return model(ids).last_hidden_state[0]


def test_the_same_numbers_as_transformers(published, texts, tmp_path):
    kind, folder, model = published
    for text, rows in zip(texts, token_rows(folder, texts, tmp_path)):
        torch.testing.assert_close(rows, expected_rows(kind, model, text), rtol=1e-4, atol=1e-4)


def test_attention_is_swapped_in_decoders_too(published, texts, tmp_path):
    _, folder, _ = published
    exact, one_family, other = (token_rows(folder, texts, tmp_path, *options)
                                for options in ([], ["--hierarchy", "100"], ["--hierarchy", "2*"]))
    for rows, same in zip(exact, one_family):
        torch.testing.assert_close(rows, same, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(exact[2], other[2], atol=1e-2)


def test_batches_and_their_size_change_nothing(bert, texts, tmp_path):
    folder, _ = bert
    path = write_texts(tmp_path / "texts.jsonl", texts)
    answers = [[json.loads(line)["embedding"] for line in
                cli.run("encode", folder, path, "--batch-tokens", size).splitlines()] for size in (1, 60, 100000)]
    assert len(answers[0]) == len(texts)
    for answer in answers[1:]:
        torch.testing.assert_close(torch.tensor(answer), torch.tensor(answers[0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_and_normalising(bert, texts, tmp_path, pooling):
    folder, _ = bert
    path = write_texts(tmp_path / "texts.jsonl", texts)
    lines = cli.run("encode", folder, path, "--pooling", pooling, "--normalize").splitlines()
    for rows, line in zip(token_rows(folder, texts, tmp_path), lines):
        vector = rows.mean(0) if pooling == "mean" else rows[0]
        torch.testing.assert_close(torch.tensor(json.loads(line)["embedding"]), vector / vector.norm(),
                                   rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tie", ["block", "none"])
def test_swapped_layers_are_those_of_ramify_hf(bert, texts, tmp_path, tie):
    folder, model = bert
    rows = token_rows(folder, texts, tmp_path, "--hierarchy", "2,4,8", "--layers", "1,3", "--tie", tie)
    ramify.hf.enable(model, hierarchy=(2, 4, 8), layers=[1, 3], tie=tie)
    try:
        for text, ours in zip(texts, rows):
            torch.testing.assert_close(ours, expected_rows("bert", model, text), rtol=1e-4, atol=1e-4)
    finally:
        ramify.hf.disable(model)


def test_sentences_are_a_level(bert, tmp_path):
    folder, _ = bert
    text = "The film was good. It was not very dull. The end"
    one_sentence = token_rows(folder, ["the film was good it was"], tmp_path, "--hierarchy", "sentences")[0]
    exact = token_rows(folder, ["the film was good it was"], tmp_path)[0]
    torch.testing.assert_close(one_sentence, exact, rtol=1e-4, atol=1e-5)
    several = token_rows(folder, [text], tmp_path, "--hierarchy", "sentences", "--layers", "2")[0]
    assert (several - token_rows(folder, [text], tmp_path)[0]).abs().max() > 1e-3


def test_half_precision_and_shards_are_read(bert, texts, tmp_path):
    folder, model = bert
    sharded = tmp_path / "sharded"
    model.half().save_pretrained(sharded, max_shard_size="20KB")
    model.float()
    write_tokenizer(sharded)
    assert (sharded / "model.safetensors.index.json").exists()
    for ours, exact in zip(token_rows(sharded, texts, tmp_path), token_rows(folder, texts, tmp_path)):
        torch.testing.assert_close(ours, exact, rtol=0.02, atol=0.02)


def test_bfloat16_is_near(bert, texts, tmp_path):
    folder, _ = bert
    for ours, exact in zip(token_rows(folder, texts, tmp_path, "--dtype", "bfloat16"), token_rows(folder, texts, tmp_path)):
        assert torch.nn.functional.cosine_similarity(ours, exact).min() > 0.98


def test_plain_lines_and_standard_input(bert, tmp_path):
    folder, _ = bert
    lines = cli.run("encode", folder, "-", "--plain", stdin="the film\n\ngood\n").splitlines()
    assert len(lines) == 3  # a blank line is an empty text
    (tmp_path / "texts.txt").write_text("the film\n\ngood\n")
    assert cli.run("encode", folder, tmp_path / "texts.txt").splitlines() == lines
    assert cli.run("encode", folder, "-", stdin='"the film"\n\n{"text": "good"}\n').splitlines() == [lines[0], lines[2]]


def test_answers_come_before_the_pipe_is_closed(bert):
    process = cli.start("encode", bert[0], "-", "--plain")
    process.stdin.write("the film\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["embedding"]
    process.send_signal(signal.SIGINT)
    process.stdin.close()
    assert process.wait(timeout=60) in (0, 130)


@pytest.mark.parametrize("arguments, message", [
    (["--hierarchy", "2,x"], "is no level"),
    (["--hierarchy", "2", "--layers", "4"], "there is no layer 4"),
    (["--layers", "1"], "--hierarchy"),
    (["--max-tokens", "65"], "the model takes at most 64"),
    (["--max-tokens", "2", "--pooling", "median"], "--pooling"),
])
def test_bad_options_of_encode(bert, tmp_path, arguments, message):
    error = cli.run("encode", bert[0], write_texts(tmp_path / "t.jsonl", ["good"]), *arguments, status=2)
    assert message in error


def test_bad_files_of_encode(bert, tmp_path):
    folder, _ = bert
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "good"}\n{"body": "x"}\n')
    assert f'{path}:2: has no field "text"' in cli.run("encode", folder, path, status=1)
    path.write_text('{"text": 3}\n')
    assert f'{path}:1: the field "text" is no text' in cli.run("encode", folder, path, status=1)
    path.write_text("")
    assert f"{path}: has no texts" in cli.run("encode", folder, path, status=1)
    assert "is no folder" in cli.run("encode", path, path, status=1)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert str(empty) in cli.run("encode", empty, path, status=1)
    assert "cannot" in cli.run("encode", folder, write_texts(path, ["good"]), "--out", "/no/such/folder/x", status=1)


def labelled(rng, count):
    records = []
    for _ in range(count):
        label = rng.choice(["good", "bad"])
        records.append({"text": random_text(rng, 12) + " " + " ".join([label] * 15), "label": label})
    return records


@pytest.fixture(scope="module")
def labelled_file(tmp_path_factory):
    return cli.write_records(tmp_path_factory.mktemp("data") / "texts.jsonl", labelled(random.Random(3), 60))


def test_compare_tells_what_a_swap_costs(bert, labelled_file, tmp_path):
    page, figures = tmp_path / "swap.html", tmp_path / "swap.json"
    table = cli.run("compare", bert[0], labelled_file, "--target", "label", "--variant", "64:all", "--variant",
                    "2,2:1,3:none", "--variant", "sentences:all", "--html", page, "--json", figures)
    assert "64:all:block" in table and "cross-validated in 5 parts" in table
    result = json.loads(figures.read_text())
    exact, same, other, sentences = result["results"]
    assert exact["name"] == "exact" and exact["cosine"] == pytest.approx(1) and exact["agreement"] == 1
    assert exact["accuracy"] > 0.8
    # a single family of all tokens is exact attention
    assert same["cosine"] == pytest.approx(1, abs=1e-5) and same["agreement"] == 1
    assert same["accuracy"] == exact["accuracy"]
    assert all(layer["output_error"] < 1e-4 and abs(layer["divergence"]) < 1e-4 for layer in same["drift"])
    assert other["cosine"] < 0.9999 and other["multiply_adds"] < exact["multiply_adds"]
    assert [layer["divergence"] is None for layer in other["drift"]] == [True, False, True, False]
    assert all(layer["divergence"] > 0 for layer in other["drift"] if layer["divergence"] is not None)
    assert sentences["hierarchy"] == "sentences"
    assert "2,2, tie none" in page.read_text()


def test_compare_is_the_same_each_time(bert, labelled_file):
    def scores():
        result = json.loads(cli.run("compare", bert[0], labelled_file, "--target", "label", "--limit", "40",
                                    "--variant", "2*:all", "--json", "-"))
        return [{key: value for key, value in each.items() if "seconds" not in key} for each in result["results"]]
    assert scores() == scores()


def test_compare_with_a_test_part_and_the_ablation(bert, labelled_file):
    result = json.loads(cli.run("compare", bert[0], labelled_file, "--test", labelled_file, "--limit-test", "10",
                                "--target", "label", "--ablation", "--drift-texts", "2", "--json", "-"))
    assert result["test_texts"] == 10 and "folds" not in result
    assert len(result["results"]) == 1 + 4 * 4
    assert [each["start_layer"] for each in result["results"][1:5]] == [0, 1, 2, 3]


def test_compare_refuses_what_cannot_be_compared(bert, labelled_file, tmp_path):
    same = cli.write_records(tmp_path / "same.jsonl", [{"text": "good", "label": 1}] * 10)
    assert "only one label" in cli.run("compare", bert[0], same, "--target", "label", status=2)
    rare = cli.write_records(tmp_path / "rare.jsonl", [{"text": "good", "label": i == 0} for i in range(10)])
    assert "label 'true' has only 1 texts" in cli.run("compare", bert[0], rare, "--target", "label", status=2)
    assert "has no field" in cli.run("compare", bert[0], labelled_file, "--target", "class", status=1)
    assert "HIERARCHY[:LAYERS[:TIE]]" in cli.run("compare", bert[0], labelled_file, "--target", "label",
                                                 "--variant", "2:1:none:x", status=2)


def test_bench_model(bert):
    result = json.loads(cli.run("bench", "model", bert[0], "--tokens", "8,128", "--json"))
    assert [row["tokens"] for row in result["rows"]] == [8, 128]
    assert all(0 < row["exact_attention_ms"] < row["exact_ms"] for row in result["rows"])
    table = cli.run("bench", "model", bert[0], "--tokens", "128")
    assert "* the model has 64 positions" in table
    assert "no sentences" in cli.run("bench", "model", bert[0], "--hierarchy", "sentences", status=2)


def pairs(count, seed):
    rng = random.Random(seed)
    records = []
    for _ in range(count):
        first = [rng.choice(WORDS) for _ in range(4)]
        same = rng.random() < 0.5
        second = first if same else [rng.choice(WORDS) for _ in range(4)]
        records.append({"sentence1": " ".join(first), "sentence2": " ".join(second), "label": same and first == second})
    return records


@pytest.mark.parametrize("attention", ["exact", "hierarchical"])
def test_a_random_roberta_learns_single_texts(labelled_file, tmp_path, attention):
    out = tmp_path / "run"
    cli.run("train", labelled_file, "--target", "label", "--architecture", "roberta", "--attention", attention,
            "--hierarchy", "4,2", "--set", "architecture.width=32", "--set", "architecture.layers=2",
            "--set", "architecture.inner_width=64", "--epochs", "12", "--rate", "0.003", "--batch-records", "8",
            "--valid", labelled_file, "--out", out, "--threads", "1")
    evaluation = json.loads((out / "evaluation.json").read_text())
    assert evaluation["valid"]["accuracy"] > 0.9
    answer = cli.run("predict", out, "-", stdin=json.dumps({"text": "bad bad bad bad bad bad"}) + "\n")
    assert json.loads(answer)["prediction"] == "bad"


def test_a_published_model_is_the_start_and_a_run_goes_on_bit_for_bit(bert, tmp_path):
    data = cli.write_records(tmp_path / "pairs.jsonl", pairs(48, 5))
    options = ["--target", "label", "--architecture", bert[0], "--hierarchy", "4,2", "--layers", "1,3", "--epochs", "40",
               "--rate", "0.0003", "--batch-records", "8", "--threads", "1", "--explain", "0"]
    cli.run("train", data, *options, "--out", tmp_path / "whole")
    process = cli.start("train", data, *options, "--out", tmp_path / "again")
    while not (tmp_path / "again" / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130 and (tmp_path / "again" / "checkpoint").exists()
    cli.run("train", data, *options, "--out", tmp_path / "again", "--resume")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]
    config = json.loads((tmp_path / "whole" / "config.json").read_text())["architecture"]
    assert config["pair"] and config["before"] == [2] and config["between"] == [3] and config["after"] == [3]
    assert config["second_type"] == 1
    record = pairs(2, 9)[1]
    turned = dict(reversed(record.items()))  # which text is the second is told by its key
    exchanged = {"sentence1": record["sentence2"], "sentence2": record["sentence1"]}
    answers = [cli.run("predict", tmp_path / "whole", "-", stdin=json.dumps(each) + "\n")
               for each in (record, turned, exchanged)]
    assert answers[0] == answers[1] != answers[2]
    assert json.loads(cli.run("predict", tmp_path / "whole", "-", stdin='{"sentence2": "good"}\n'))["prediction"]
    loaded = ramify.load(tmp_path / "whole")
    assert loaded.predict(pairs(2, 9))[0]["prediction"] in ("true", "false", True, False)


@pytest.mark.parametrize("arguments, message", [
    (["--architecture", "roberta", "--attention", "flat"], "expected exact or hierarchical"),
    (["--attention", "exact"], "is for --architecture"),
    (["--architecture", "roberta", "--hierarchy", "sentences"], "expected windows"),
    (["--architecture", "roberta", "--layers", "9"], "there is no layer 9"),
    (["--architecture", "roberta", "--set", "architecture.heads=5"], "does not divide"),
    (["--architecture", "roberta", "--dtype", "bfloat16"], "float32 only"),
    (["--architecture", "/no/such/folder"], "/no/such/folder"),
])
def test_bad_options_of_architectures(labelled_file, tmp_path, arguments, message):
    process = cli.start("train", labelled_file, "--target", "label", "--out", tmp_path / "run", *arguments)
    _, error = process.communicate(timeout=60)
    assert process.returncode in (1, 2) and message in error
    assert not (tmp_path / "run").exists()


def test_architectures_take_texts_only(tmp_path):
    data = cli.write_records(tmp_path / "d.jsonl", [{"text": f"good film {i}", "year": i, "label": i % 2}
                                                     for i in range(20)])
    error = cli.run("train", data, "--target", "label", "--architecture", "bert", "--out", tmp_path / "r", status=2)
    assert "--architecture takes texts; the field year is number" in error
