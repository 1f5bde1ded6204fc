"""`ramify generate` and `ramify perplexity`: as transformers does it where attention is exact, and what only they do."""

import json
import math
import os
import random
import signal
import time

import pytest
import torch

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

import cli  # noqa: E402
from test_models import SIZES, SPECIAL, WORDS, make_model, random_text, tokenizer_of, write_tokenizer  # noqa: E402

VOCABULARY = SPECIAL + WORDS + [".", ","]
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(VOCABULARY), max_position_embeddings=128, num_key_value_heads=2, pad_token_id=0, bos_token_id=CLS,
        eos_token_id=SEP, **SIZES)).eval()
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder, model


def ids_of(text):
    return tokenizer_of(VOCABULARY).encode(text).ids


def generated(folder, *options):
    return [json.loads(line) for line in cli.run("generate", folder, "--json", *options).split("\n") if line]


def greedy(model, ids, tokens):
    """Without a cache and without an end."""
    ids = list(ids)
    for _ in range(tokens):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids


def test_greedy_is_that_of_transformers(llama):
    folder, model = llama
    prompt = "the plot was very good"
    ids = greedy(model, ids_of(prompt)[:-1], 30)
    [line] = generated(folder, "--prompt", prompt, "--max-tokens", 30, "--ignore-end", "--cache", "kv")
    assert line["tokens"] == 30 and line["end"] == "length" and line["prompt_tokens"] == 6
    whole = tokenizer_of(VOCABULARY).decode(ids)
    assert whole.replace(" ", "").endswith(line["text"].replace(" ", ""))
    assert line["cache"] == "kv" and line["cache_bytes"] == 4 * 2 * 2 * 8 * 4 * (6 + 29)  # layers, k and v, heads, dim, float


def test_a_window_of_the_whole_context_is_exact(llama):
    folder, _ = llama
    options = ["--prompt", "a film", "--max-tokens", 60, "--ignore-end"]
    [exact] = generated(folder, *options)
    [window] = generated(folder, *options, "--cache", "hierarchical", "--window", 100)
    [one_family] = generated(folder, *options, "--hierarchy", 1000)
    assert exact["text"] == window["text"] == one_family["text"] != ""
    [other] = generated(folder, *options, "--hierarchy", "2*", "--tie", "block")
    assert other["text"] != exact["text"] and other["cache_bytes"] < exact["cache_bytes"]


def test_text_comes_with_its_prompt_and_what_it_took(llama):
    folder, _ = llama
    process = cli.start("generate", folder, "--prompt", "good", "--max-tokens", 5, "--ignore-end")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out.startswith("good") and out.endswith("\n")
    assert "5 tokens" in err and "tokens/s" in err and "cache" in err


def test_seeds_and_samples(llama):
    folder, _ = llama
    options = ["--prompt", "the", "--max-tokens", 20, "--temperature", 1.2, "--ignore-end"]
    three = generated(folder, *options, "--seed", 5, "--samples", 3)
    assert [line["seed"] for line in three] == [5, 6, 7]
    assert len({line["text"] for line in three}) == 3
    assert generated(folder, *options, "--seed", 6)[0]["text"] == three[1]["text"]
    assert generated(folder, *options, "--seed", 6, "--cache", "hierarchical", "--window", 100)[0]["text"] == three[1]["text"]
    assert len({line["text"] for line in generated(folder, *options, "--top-p", 0, "--samples", 2)}) == 1


def test_without_a_prompt_it_begins_a_text(llama):
    folder, model = llama
    [line] = generated(folder, "--max-tokens", 4, "--ignore-end")
    assert line["prompt_tokens"] == 1
    assert tokenizer_of(VOCABULARY).decode(greedy(model, [CLS], 4)).strip() == line["text"].strip()


def test_a_prompt_with_a_tree_of_its_own(llama, tmp_path):
    folder, _ = llama
    (tmp_path / "prompt.txt").write_text("the film was long. it was dull. " * 6)
    options = ["--prompt-file", tmp_path / "prompt.txt", "--max-tokens", 20, "--ignore-end"]
    [exact] = generated(folder, *options)
    [flat] = generated(folder, *options, "--prompt-hierarchy", 1000)
    [tree] = generated(folder, *options, "--prompt-hierarchy", "sentences")
    assert flat["text"] == exact["text"]
    assert tree["cache_bytes"] == exact["cache_bytes"]


@pytest.mark.parametrize("options, message", [
    (["--prompt", ""], "the prompt is empty"),
    (["--prompt", "good", "--max-tokens", 200], "the model has 128 positions; ask for fewer, or add --allow-extrapolation"),
    (["--prompt", "good " * 200], "the model has 128 positions"),
    (["--prompt", "good", "--cache", "kv", "--hierarchy", "16*"], "--hierarchy needs --cache hierarchical"),
    (["--prompt", "good", "--cache", "hierarchical", "--hierarchy", "sentences"], "generation takes windows"),
    (["--prompt", "good", "--hierarchy", "1*"], "1*"),
    (["--prompt", "good", "--hierarchy", "4*", "--tie", "block", "--window", 3], "--window needs --tie none"),
    (["--prompt", "good", "--hierarchy", "4*", "--layers", "9"], "layer"),
    (["--prompt", "good", "--prompt-hierarchy", "4*", "--hierarchy", "4*"], "--prompt-hierarchy is for --cache kv"),
    (["--prompt", "good", "--prompt-hierarchy", "4*", "--cache", "hierarchical"], "--prompt-hierarchy is for --cache kv"),
    (["--prompt", "good", "--tie", "block"], "give one with --hierarchy"),
    (["--prompt", "good", "--layers", "1"], "give one with --hierarchy"),
    (["--prompt", "good", "--temperature", "nan"], "expected numbers"),
    (["--prompt", "good", "--temperature", "-1"], "--temperature"),
    (["--prompt", "good", "--prompt-file", "x"], "--prompt"),
])
def test_what_cannot_be_asked_for(llama, options, message):
    assert message in cli.run("generate", llama[0], *options, status=2)


def test_a_prompt_that_is_not_utf8(llama, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"good \xff film")
    assert "the prompt is not UTF-8" in cli.run("generate", llama[0], "--prompt-file", tmp_path / "bad.txt", status=2)
    (tmp_path / "empty.txt").write_bytes(b"")
    assert "the prompt is empty" in cli.run("generate", llama[0], "--prompt-file", tmp_path / "empty.txt", status=2)
    assert "missing.txt" in cli.run("generate", llama[0], "--prompt-file", tmp_path / "missing.txt", status=1)


def test_an_encoder_writes_nothing(tmp_path):
    make_model(tmp_path, "bert")
    for command in (["generate", tmp_path], ["perplexity", tmp_path, tmp_path / "t.txt"]):
        assert "is an encoder; expected a decoder" in cli.run(*command, status=2)


def test_behind_the_positions(llama):
    [line] = generated(llama[0], "--prompt", "good", "--max-tokens", 300, "--allow-extrapolation", "--ignore-end",
                       "--cache", "hierarchical")
    assert line["tokens"] == 300


def test_the_attention_it_was_trained_with(llama, tmp_path):
    folder = tmp_path / "trained"
    folder.mkdir()
    for file in llama[0].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    note = {"attention": "hierarchical", "hierarchy": "4*", "tie": "block", "window": 0}
    (folder / "config.json").write_text(json.dumps({**config, "ramify": note}))
    options = ["--prompt", "good", "--max-tokens", 3, "--ignore-end"]
    for more, cache in [([], "hierarchical 4*, tie block"), (["--cache", "hierarchical"], "hierarchical 4*, tie block"),
                        (["--cache", "kv"], "kv"), (["--hierarchy", "2*"], "hierarchical 2*, tie none"),
                        (["--cache", "hierarchical", "--window", 2], "hierarchical 16*, tie none, window 2")]:
        assert generated(folder, *options, *more)[0]["cache"] == cache
    assert "was trained with hierarchical 4*" in cli.run("generate", folder, *options, "--window", 2, status=2)


def test_an_interrupt_ends_it_in_order(llama):
    process = cli.start("generate", llama[0], "--prompt", "good", "--max-tokens", 100_000_000, "--allow-extrapolation",
                        "--ignore-end", "--cache", "hierarchical")
    first = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and first.startswith("good") and out.endswith("\n")
    assert "interrupted" in err and "tokens/s" in err


def write_lines(path, texts):
    path.write_text("".join(text + "\n" for text in texts))
    return path


def perplexity(folder, *options):
    return json.loads(cli.run("perplexity", folder, *options, "--json"))


@torch.no_grad()
def expected_perplexity(model, sequences):
    total, tokens = 0.0, 0
    for ids in sequences:
        logits = model(torch.tensor([ids])).logits[0, :-1].double()
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()
        tokens += len(ids) - 1
    return math.exp(total / tokens), tokens


def test_perplexity_is_that_of_transformers(llama, tmp_path):
    folder, model = llama
    rng = random.Random(2)
    texts = [random_text(rng, words).replace("\n", " ") for words in (3, 40, 1, 70, 18)]
    path = write_lines(tmp_path / "texts.txt", texts)
    expected, tokens = expected_perplexity(model, [ids_of(text) for text in texts])
    got = perplexity(folder, path, "--separate")
    assert got["tokens"] == tokens and got["sequences"] == 5 and got["attention"] == "exact"
    assert got["perplexity"] == pytest.approx(expected, rel=1e-4)
    # batches change nothing
    assert perplexity(folder, path, "--separate", "--batch-tokens", 1)["perplexity"] == pytest.approx(expected, rel=1e-4)

    running = [i for text in texts for i in ids_of(text + "\n")[1:-1]]
    sequences = [[CLS] + running[i:i + 31] for i in range(0, len(running), 31)]
    expected, tokens = expected_perplexity(model, [ids for ids in sequences if len(ids) > 1])
    got = perplexity(folder, path, "--context", 32)
    assert got["tokens"] == tokens and got["context"] == 32
    assert got["perplexity"] == pytest.approx(expected, rel=1e-4)


def test_perplexity_of_other_attention(llama, tmp_path):
    folder, _ = llama
    rng = random.Random(3)
    path = cli.write_records(tmp_path / "t.jsonl", [{"text": random_text(rng, 100)} for _ in range(3)])
    exact = perplexity(folder, path, "--separate")["perplexity"]
    for options in (["--window", 200], ["--hierarchy", "4*", "--window", 200], ["--hierarchy", 1000]):
        assert perplexity(folder, path, "--separate", *options)["perplexity"] == pytest.approx(exact, rel=1e-4)
    others = {perplexity(folder, path, "--separate", *options)["perplexity"]
              for options in (["--window", 3], ["--hierarchy", "2*"], ["--hierarchy", "2*", "--tie", "block"],
                              ["--hierarchy", "2*", "--window", 3], ["--hierarchy", "sentences"])}
    assert len(others) == 5 and exact not in others
    assert "hierarchical 2*, tie none, window 3" in cli.run("perplexity", folder, path, "--hierarchy", "2*", "--window", 3)


@pytest.mark.parametrize("options, status, message", [
    (["--context", 500], 2, "the model has 128 positions"),
    (["--context", 1], 2, "at least 2 tokens"),
    (["--exact", "--hierarchy", "4*"], 2, "exclude each other"),
    (["--hierarchy", "sentences"], 2, "add --separate"),
    (["--field", "x"], 1, "x"),
])
def test_perplexity_of_bad_calls(llama, tmp_path, options, status, message):
    path = cli.write_records(tmp_path / "t.jsonl", [{"text": "good film"}])
    assert message in cli.run("perplexity", llama[0], path, *options, status=status)


def test_perplexity_of_nothing(llama, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert "empty.txt" in cli.run("perplexity", llama[0], tmp_path / "empty.txt", status=1)


def test_the_real_one():
    """With stories15m, where it is given: RAMIFY_STORIES15M=FOLDER."""
    folder = os.environ.get("RAMIFY_STORIES15M")
    if not folder:
        pytest.skip("RAMIFY_STORIES15M does not name the folder of stories15m")
    [line] = generated(folder, "--prompt", "Once upon a time", "--max-tokens", 60, "--cache", "kv")
    assert line["text"].startswith(", there was a little girl named Lily. She loved to play outside in the sunshine.")
