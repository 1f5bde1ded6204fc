"""Our tokenizers and those of Hugging Face give the same ids, and the same texts of ids: a small run of
scripts/check-tokenizers."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads and our processes do not go together
pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

import tokenizer_references  # noqa: E402
import tokenizer_strings  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("RAMIFY_TOKENIZE_LINES", ROOT / "build" / "release" / "tests" / "tokenize_lines"))
NAMES = ["wordpiece", "cased", "bpe", "prefix", "sentencepiece"]


def load_script():
    loader = importlib.machinery.SourceFileLoader("check_tokenizers", str(ROOT / "scripts" / "check-tokenizers"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def strings():
    return tokenizer_strings.strings(2000)


@pytest.fixture(scope="module")
def references(strings, tmp_path_factory):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    return tokenizer_references.trained(tmp_path_factory.mktemp("tokenizers"), strings)


@pytest.fixture(scope="module")
def check(strings):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    return load_script().Check(PROGRAM, strings)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_the_same(check, references, name):
    chosen = [each for each in references if each.name.startswith(name + "/")]
    assert chosen
    before = check.mismatches
    for reference in chosen:
        check.compare(reference)
    assert check.mismatches == before, "see the standard output"


def test_a_difference_is_found(check, references):
    """The comparison can fail: here the other side has a rule of its own."""
    from tokenizers import pre_tokenizers

    script = load_script()
    reference = next(each for each in references if each.name.startswith("bpe/"))
    other = script.Check(PROGRAM, check.strings[:200], out=lambda line: None)
    kept = reference.tokenizer.pre_tokenizer
    reference.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    try:
        other.compare_ids(reference)
    finally:
        reference.tokenizer.pre_tokenizer = kept
    assert other.mismatches > 50


def test_a_difference_of_texts_is_found(check, references):
    from tokenizers import decoders

    script = load_script()
    reference = next(each for each in references if each.name.startswith("sentencepiece/"))
    other = script.Check(PROGRAM, check.strings[:200], out=lambda line: None)
    ids = other.compare_ids(reference)
    kept = reference.decoder.decoder
    reference.decoder.decoder = decoders.Metaspace()
    try:
        other.compare_decoded(reference, ids)
    finally:
        reference.decoder.decoder = kept
    assert other.mismatches > 50


def test_texts_are_those_of_transformers_llama(check, references):
    """A folder with a tokenizer.model alone: what the class for it makes of the same pieces."""
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    script = load_script()
    reference = next(each for each in references if each.name.startswith("sentencepiece/"))
    tokenizer = transformers.LlamaTokenizer(vocab=reference.decoder.get_vocab(with_added_tokens=False), merges=[])
    found = [reference.tokenizer.encode(string[:200]).ids for string in check.strings[:300]]
    inputs = found + list(script.random_ids(found, len(tokenizer), 300, seed=1))
    ours = script.run_lines([PROGRAM, "--decode", reference.path], inputs)
    for ids, mine in zip(inputs, ours, strict=True):
        for how in ("skipped", "shown"):
            theirs = tokenizer.decode(ids, skip_special_tokens=how == "skipped", clean_up_tokenization_spaces=False)
            assert mine[how]["text"] == theirs, ids


MODELS = {"wordpiece": "bert", "cased": "bert", "bpe": "roberta"}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("max_length", [4, 16, 512])
def test_a_models_folder_gives_what_transformers_gives(check, references, name, max_length, tmp_path):
    """What a program calls that has the folder of a model, texts and pairs: AutoTokenizer with truncation=True."""
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    script = load_script()
    reference = next(each for each in references if each.name == f"{name}/tokenizer.json")
    shutil.copy(reference.path / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": MODELS[name]}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": name == "wordpiece"}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [text[:200] for text in check.strings_for(reference.rule)[:300]]
    inputs = [[text] for text in texts[::2]] + [list(pair) for pair in zip(texts[::2], texts[1::2])]
    theirs = [tokenizer(*each, truncation=True, max_length=max_length, return_token_type_ids=True) for each in inputs]
    ours = script.run_lines([PROGRAM, "--encode", max_length, tmp_path], inputs)
    for texts, mine, other in zip(inputs, ours, theirs, strict=True):
        assert (mine["ids"], mine["types"]) == (other["input_ids"], other["token_type_ids"]), ascii(texts)
    if name == "cased":
        return  # its file says that spaces are not cleaned up, which BERT's class there does not read
    texts = script.run_lines([PROGRAM, "--decode", tmp_path], [each["ids"] for each in ours])
    for mine, decoded in zip(ours, texts, strict=True):
        for how in ("skipped", "shown"):
            assert decoded[how]["text"] == tokenizer.decode(mine["ids"], skip_special_tokens=how == "skipped",
                                                            clean_up_tokenization_spaces=False), mine["ids"]


def test_few_code_points_are_left_out(check):
    """The rule for other versions of Unicode must not hide what all versions agree on."""
    for rule in ("bert", "gpt2"):
        before, after = sum(map(len, check.strings)), sum(map(len, check.strings_for(rule)))
        assert after > 0.8 * before
        assert all(each in "".join(check.usable[rule]) for each in "aé漢한 ا1½😀")
