"""ramify.hf: hierarchical attention inside models of transformers, against the models' own and ramify.attention."""

import copy
import gc
import pickle
import warnings

import pytest
import torch

import fresh_process
import ramify
from ramify import Forest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
hf = pytest.importorskip("ramify.hf")

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
BEFORE_5 = VERSION < (5, 0)
FLAT = (1024,)  # one family over all tokens: softmax attention
SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {**SIZE, "vocab_size": 60, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def sharpened(model):
    """The model with larger weights: as they are made, attention is nearly uniform, and any attention would do."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4)
    return model.eval()


def make(kind, implementation="sdpa", **changes):
    """A small model with random weights."""
    if kind == "bert":
        config = transformers.BertConfig(**{**TEXT, **changes})
    elif kind == "roberta":
        config = transformers.RobertaConfig(**{**TEXT, "max_position_embeddings": 80, **changes})
    elif kind == "distilbert":
        config = transformers.DistilBertConfig(**{
            "vocab_size": 60, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "dropout": 0.0,
            "attention_dropout": 0.0, **changes})
    elif kind == "vit":
        config = transformers.ViTConfig(**{**SIZE, "image_size": 48, "patch_size": 8, "hidden_dropout_prob": 0.0,
                                           "attention_probs_dropout_prob": 0.0, **changes})
    elif kind == "llama":
        config = transformers.LlamaConfig(**{**SIZE, "vocab_size": 60, "num_key_value_heads": 2, "pad_token_id": 0,
                                             **changes})
    torch.manual_seed(0)
    return sharpened(transformers.AutoModel.from_config(config, attn_implementation=implementation))


TEXT_KINDS = ["bert", "roberta", "distilbert", "llama"]
LENGTHS = [21, 30, 1, 13]
ROWS = 30


def texts(kind, side="right"):
    """A padded batch, and its texts one by one."""
    tokens = torch.randint(2, 60, (len(LENGTHS), ROWS), generator=torch.Generator().manual_seed(1))
    batch = {"input_ids": torch.full_like(tokens, 0), "attention_mask": torch.zeros_like(tokens),
             "position_ids": torch.zeros_like(tokens)}
    alone = []
    first = 2 if kind == "roberta" else 0  # RoBERTa counts positions from behind that of padding
    for b, length in enumerate(LENGTHS):
        where = slice(0, length) if side == "right" else slice(ROWS - length, ROWS)
        if side == "anywhere":
            where = torch.randperm(ROWS, generator=torch.Generator().manual_seed(b))[:length].sort().values
        batch["input_ids"][b, where] = tokens[b, :length]
        batch["attention_mask"][b, where] = 1
        batch["position_ids"][b, where] = torch.arange(length) + first
        alone.append({"input_ids": tokens[b:b + 1, :length], "position_ids": torch.arange(length)[None] + first})
    if kind == "distilbert":
        for inputs in (batch, *alone):
            del inputs["position_ids"]
    return batch, alone


def images():
    return {"pixel_values": torch.randn(2, 3, 48, 48, generator=torch.Generator().manual_seed(2))}


def inputs_of(kind):
    return images() if kind == "vit" else texts(kind)[0]


def hidden(model, inputs):
    out = model(**inputs).last_hidden_state
    return out[inputs["attention_mask"] == 1] if "attention_mask" in inputs else out


def attentions(model):
    """The attention modules, layer by layer."""
    return list(hf._modules.find(model).layers.values())


def close(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("tie", ["block", "none"])
@pytest.mark.parametrize("kind", [*TEXT_KINDS, "vit"])
def test_one_family_over_everything_is_the_exact_model(kind, tie):
    model = make(kind)
    inputs = inputs_of(kind)
    exact = hidden(model, inputs)
    for layers in ([1], "all"):
        for grid in ([None, True] if kind == "vit" else [None]):
            hf.enable(model, FLAT, layers, tie=tie, grid=grid)
            close(hidden(model, inputs), exact)
    assert not torch.equal(hidden(model, inputs), exact)  # other sums: it did run


@pytest.mark.parametrize("kind", ["vit", "llama", *([] if BEFORE_5 else ["bert", "roberta", "distilbert"])])
def test_layers_may_be_eager(kind):
    model, eager = make(kind), make(kind, "eager")
    inputs = inputs_of(kind)
    for layers in ([0, 2], "all"):
        hf.enable(model, (2, 4), layers)
        hf.enable(eager, (2, 4), layers)
        close(hidden(eager, inputs), hidden(model, inputs))
    assert hf.disable(eager).config._attn_implementation == "eager"


@pytest.mark.parametrize("tie", ["block", "none"])
@pytest.mark.parametrize("kind, side", [(kind, side) for kind in TEXT_KINDS for side in ("right", "left", "anywhere")
                                        if kind != "distilbert" or side == "right"])  # it takes no position_ids
def test_a_padded_batch_equals_its_texts_alone(kind, side, tie):
    batch, alone = texts(kind, side)
    model = make(kind)
    exact = hidden(model, batch)
    for layers in ([0, 2], "all"):  # a full mask, and one of the padding alone
        hf.enable(model, (2, 3, 2), layers, tie=tie)
        out = hidden(model, batch)
        close(out, torch.cat([hidden(model, inputs).flatten(0, 1) for inputs in alone]))
        assert (out - exact).abs().max() > 1e-2


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("tie", ["block", "none"])
def test_a_layer_computes_ramify_attention(tie, include_self):
    model = make("bert")
    batch, _ = texts("bert")
    for layers in ([1], "all"):
        hf.enable(model, "2,4*", layers, tie=tie, include_self=include_self)
        module = attentions(model)[1]
        seen = {}
        handles = [part.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
                   for name, part in [*module.named_children(), ("out", module)] if name != "dropout"]
        model(**batch)
        for handle in handles:
            handle.remove()
        q, k, v = (seen[name].unflatten(-1, (4, 8)).transpose(1, 2) for name in ("query", "key", "value"))
        expected = ramify.attention_padded(q, k, v, LENGTHS, "2,4*", tie=tie, include_self=include_self)
        close(seen["out"][0], expected.transpose(1, 2).flatten(2), 1e-6)


def test_only_the_chosen_layers_change():
    model = make("bert", num_hidden_layers=5)
    batch, _ = texts("bert")
    exact = copy.deepcopy(model)
    hf.enable(model, (2, 4), [1, 3])
    calls = []
    for module in attentions(model):
        module.register_forward_hook(lambda _, args, kwargs, out: calls.append((args, kwargs, out[0])),
                                     with_kwargs=True)
    model(**batch)
    assert len(calls) == 5
    changed = [not torch.equal(module(*args, **kwargs)[0], out) for module, (args, kwargs, out)
               in zip(attentions(exact), calls)]
    assert changed == [False, True, False, True, False]


def state(model):
    return [{name: value for name, value in module.__dict__.items() if not name.startswith("_")}
            for module in model.modules()]


@pytest.mark.parametrize("layers", [[0, 2], "all"], ids=str)
@pytest.mark.parametrize("kind", ["bert", "vit", "llama"])
def test_disable_restores_everything(kind, layers):
    model = make(kind)
    inputs = inputs_of(kind)
    exact, before, config = hidden(model, inputs), state(model), model.config.to_dict()
    hf.enable(model, (2, 4), layers)
    assert model.config.to_dict() == config
    assert not torch.equal(hidden(model, inputs), exact)
    assert hf.disable(model) is model
    assert state(model) == before and model.config._attn_implementation == "sdpa"
    assert not any(hasattr(module, "_ramify") for module in model.modules())
    assert torch.equal(hidden(model, inputs), exact)
    hf.disable(model)  # nothing to do


def test_enabling_again_replaces_and_a_failure_changes_nothing():
    model, other = make("bert"), make("bert")
    batch, _ = texts("bert")
    hf.enable(model, (2, 4), "all")
    first = hidden(model, batch)
    for bad in ({"layers": [3]}, {"tie": "rows"}, {"hierarchy": (0,)}):
        with pytest.raises(ValueError):
            hf.enable(model, **{"hierarchy": (5,), "layers": [0], **bad})
    assert torch.equal(hidden(model, batch), first)
    hf.enable(model, (5,), [0], tie="none")
    assert torch.equal(hidden(model, batch), hidden(hf.enable(other, (5,), [0], tie="none"), batch))
    assert model.config._attn_implementation == "sdpa"


def test_saved_files_are_those_of_the_model_as_it_was(tmp_path):
    model = make("bert")
    model.save_pretrained(tmp_path / "before")
    for layers in ([1], "all"):
        hf.enable(model, (2, 4), layers)
        model.save_pretrained(tmp_path / "after")
        names = sorted(path.name for path in (tmp_path / "before").iterdir())
        assert names == sorted(path.name for path in (tmp_path / "after").iterdir()) and len(names) == 2
        for name in names:
            assert (tmp_path / "before" / name).read_bytes() == (tmp_path / "after" / name).read_bytes()
    again = transformers.AutoModel.from_pretrained(tmp_path / "after")
    assert again.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("layers", [[0, 2], "all"], ids=str)
def test_copies_and_pickles_are_enabled_too_and_apart(layers):
    model = make("bert")
    batch, _ = texts("bert")
    exact = hidden(model, batch)
    hf.enable(model, (2, 4), layers)
    expected = hidden(model, batch)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(hidden(other, batch), expected)
        assert torch.equal(hidden(hf.disable(other), batch), exact)
    assert torch.equal(hidden(model, batch), expected)


def test_a_model_that_shares_the_config_stays_exact():
    model = make("llama")
    batch, _ = texts("llama", "left")
    other = type(model)(model.config).eval()
    exact = hidden(other, batch)
    hf.enable(model, (2, 4), "all")
    close(hidden(other, batch), exact)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_gradients_are_those_of_the_exact_model_where_attention_is(kind):
    model = make(kind).train()
    batch, _ = texts(kind)
    weights = torch.randn(sum(LENGTHS), 32, generator=torch.Generator().manual_seed(3))

    def gradients():
        model.zero_grad()
        (hidden(model, batch) * weights).sum().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}

    exact = gradients()
    hf.enable(model, FLAT, [0, 2])
    for name, gradient in gradients().items():
        close(gradient, exact[name], 1e-4 * (1 + exact[name].abs().max()))
    hf.enable(model, (2, 4))
    plain = gradients()
    assert set(plain) == set(exact) and all(gradient.isfinite().all() for gradient in plain.values())
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        if reentrant:
            model.enable_input_require_grads()
        for name, gradient in gradients().items():
            close(gradient, plain[name], 1e-5 * (1 + plain[name].abs().max()))


def test_training_learns():
    torch.manual_seed(0)
    model = hf.enable(make("bert").train(), (2, 4, 8))
    head = torch.nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 1e-3)
    batch, _ = texts("bert")
    labels = torch.tensor([0, 1, 1, 0])
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(head(model(**batch).last_hidden_state[:, 0]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def layer_function(**options):
    """The attention of one enabled layer, as its module calls it, with queries, keys and values for 8 tokens."""
    module = attentions(hf.enable(make("llama"), layers=[1], **options))[1]
    q, k, v = torch.randn(3, 2, 4, 8, 8, generator=torch.Generator().manual_seed(7)).unbind()
    function = transformers.AttentionInterface()["ramify"]
    return lambda mask, **more: function(module, q, k, v, mask, **more)[0], (q, k, v)


def test_training_after_inference_mode_with_the_same_mask_and_forest():
    attend, tensors = layer_function(hierarchy=(3, 5))
    mask = torch.ones(2, 8, dtype=torch.bool)
    mask[1, :2] = False
    with torch.inference_mode():
        expected = attend(mask).clone()
    for tensor in tensors:
        tensor.requires_grad_()
    out = attend(mask)
    close(out, expected)
    out.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in tensors)
    model = hf.enable(make("vit"), (3,), grid=True)
    with torch.inference_mode():
        hidden(model, images())
    hidden(model, images()).sum().backward()


def test_a_mask_that_is_changed_in_place_is_read_again():
    attend, _ = layer_function(hierarchy=(2, 4))
    mask = torch.ones(2, 8, dtype=torch.bool)
    mask[1, 6:] = False
    before = attend(mask)
    mask[1, 5] = False
    assert torch.equal(attend(mask), attend(mask.clone())) and not torch.equal(attend(mask), before)


def test_the_scale_is_that_of_the_model():
    attend, (q, k, v) = layer_function(hierarchy=(2, 4))
    expected = ramify.attention_padded(q, k, v, None, (2, 4), scale=0.7, causal="prefix")
    close(attend(None, scaling=0.7), expected.transpose(1, 2), 1e-6)


def test_dropout_of_attention_is_warned_of_once():
    model = hf.enable(make("bert", attention_probs_dropout_prob=0.1), (2, 4), [0, 2])
    batch, _ = texts("bert")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(**batch)  # not in training
    with pytest.warns(UserWarning, match="without the dropout of attention weights") as caught:
        model.train()
        model(**batch)
        model(**batch)
    assert len([each for each in caught if "ramify" in str(each.message)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind, layers", [("bert", [1]), ("llama", "all")])
def test_a_compiled_model_computes_the_same(kind, layers):
    model = hf.enable(make(kind, num_hidden_layers=2), (2, 4), layers)
    batch, _ = texts(kind)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    close(hidden(compiled, batch), hidden(model, batch))
    batch["attention_mask"][1, 20:] = 0
    close(hidden(compiled, batch), hidden(model, batch))


def test_forests_are_made_once_for_all_layers_and_few_are_kept(monkeypatch):
    made = []
    windows = Forest.windows
    monkeypatch.setattr(Forest, "windows", lambda *given: made.append(given) or windows(*given))
    model = hf.enable(make("bert"), (3, 7))
    batch, _ = texts("bert")
    made.clear()
    hidden(model, batch)
    hidden(model, batch)
    assert len(made) == 1
    for length in range(1, 41):
        model(input_ids=torch.ones(1, length, dtype=torch.int64))
    assert len(made) == 41 and hf._hierarchy._forest.cache_info().currsize <= 32


def test_masks_are_not_kept_alive():
    gc.collect()
    before = len(hf._masks._read)
    model = hf.enable(make("bert"), (3, 7), [1])
    hidden(model, texts("bert")[0])
    gc.collect()
    assert len(hf._masks._read) == before


@pytest.mark.parametrize("kind", ["llama", *([] if BEFORE_5 else ["bert"])])  # BERT made its own masks before 5
def test_with_all_layers_chosen_no_full_mask_is_made(kind):
    model = make(kind)
    batch, _ = texts(kind)
    shapes = []
    attentions(model)[0].register_forward_hook(
        lambda _, args, kwargs, __: shapes.append(kwargs.get("attention_mask", args[1] if args[1:] else None).dim()),
        with_kwargs=True)
    model(**batch)
    hf.enable(model, (2, 4))(**batch)
    hf.disable(model)(**batch)
    assert shapes == [4, 2, 4]


# Structures


def test_a_function_gives_the_structure():
    model = make("bert")
    batch, alone = texts("bert")
    asked = []
    sentences = Forest.from_segments([[4, 17, 10, 10, 10, 1, 6, 7], [2, 3, 1, 2]])

    def structure(lengths):
        asked.append(lengths)
        return sentences

    out = hidden(hf.enable(model, structure, [0, 2]), batch)
    assert asked == [LENGTHS, LENGTHS]
    single = Forest.from_segments([[4, 17], [2]])
    close(out[:21], hidden(hf.enable(model, lambda lengths: single, [0, 2]), alone[0])[0])
    assert (out - hidden(hf.enable(model, FLAT, [0, 2]), batch)).abs().max() > 1e-2
    for wrong, message in ((single, r"trees of \[21\] leaves; the sequences have"), ([3], "returned list; expected a")):
        with pytest.raises(ValueError, match=message):
            hf.enable(model, lambda lengths, wrong=wrong: wrong)(**batch)


@pytest.mark.parametrize("grid", [True, (6, 6)], ids=str)
@pytest.mark.parametrize("windows", ["2x2", [(2, 2)], (2,), 2], ids=str)
def test_patches_of_an_image_form_windows_of_a_grid(windows, grid, monkeypatch):
    model = hf.enable(make("vit"), windows, [1], grid=grid)
    module = attentions(model)[1]
    # Token 0 is [CLS]; patch (r, c) is token 1 + 6 r + c. Nine windows of 2 x 2 patches beside [CLS], under one root.
    groups = [[1 + 6 * r + c for r in (top, top + 1) for c in (left, left + 1)]
              for top in (0, 2, 4) for left in (0, 2, 4)]
    forest = Forest.from_nested([[0, *groups]])
    order = torch.tensor([0, *sum(groups, [])])
    seen = {}
    parts = [part for part in module.modules() if isinstance(part, torch.nn.Linear)][:3]
    for name, part in zip("qkv", parts):
        part.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
    captured = []
    attend = hf._attention.hierarchical_attention
    monkeypatch.setattr(hf._attention, "hierarchical_attention",
                        lambda *given: captured.append(attend(*given)) or captured[-1])
    model(**images())
    for b in range(2):
        q, k, v = (seen[name][b].unflatten(-1, (4, 8))[order] for name in "qkv")
        expected = torch.empty(37, 4, 8)
        expected[order] = ramify.attention(q, k, v, forest, include_self=True)
        close(captured[0][b].transpose(0, 1), expected, 1e-6)


def test_grids_with_several_tokens_before_the_patches_or_none():
    for leading in (0, 2, 5):
        forest, order = hf._hierarchy._forest((12 + leading,) * 2, "2x2", (3, 4), torch.device("cpu"))
        assert forest.num_trees == 2 and forest.num_leaves == 2 * (12 + leading)
        assert sorted(order.tolist()) == list(range(2 * (12 + leading)))
        assert order[:leading].tolist() == list(range(leading))
        families = forest.first_child.diff()
        assert families[0] == 4 + leading  # windows of 2 x 2, 2 x 2, 1 x 2 and 1 x 2
    forest, order = hf._hierarchy._forest((2,), "2x2", (1, 1), torch.device("cpu"))
    assert forest.num_leaves == 2 and forest.depth == 1 and order.tolist() == [0, 1]


# Causal models


@pytest.mark.parametrize("tie", ["block", "none"])
def test_a_causal_model_stays_causal(tie):
    model = hf.enable(make("llama"), (2, 3, 2), tie=tie)
    tokens = torch.randint(2, 60, (1, 25), generator=torch.Generator().manual_seed(5))
    whole = model(input_ids=tokens).last_hidden_state
    for length in (1, 7, 12, 24):
        close(model(input_ids=tokens[:, :length]).last_hidden_state, whole[:, :length])
    changed = tokens.clone()
    changed[0, 13] = (changed[0, 13] + 1) % 60
    out = model(input_ids=changed).last_hidden_state
    close(out[:, :13], whole[:, :13])
    assert ((out - whole)[0, 13:].abs().amax(-1) > 1e-4).all()


def test_generation_without_a_cache_works_and_with_one_it_is_refused():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZE, vocab_size=60, num_key_value_heads=2, pad_token_id=0, eos_token_id=None)
    model = hf.enable(transformers.LlamaForCausalLM(config).eval(), (2, 3), tie="none")
    batch, alone = texts("llama", "left")
    for inputs in (batch, *alone):
        del inputs["position_ids"]
    options = {"max_new_tokens": 4, "do_sample": False}
    together = model.generate(**batch, use_cache=False, **options)
    for b, inputs in enumerate(alone):
        assert torch.equal(together[b, -4:], model.generate(**inputs, use_cache=False, **options)[0, -4:])
    with pytest.raises(ValueError, match="1 queries and 31 keys.*use_cache=False"):
        model.generate(**batch, **options)


def test_a_causal_model_needs_the_self_term():
    with pytest.raises(ValueError, match="include_self is off"):
        hf.enable(make("llama"), (2, 4), include_self=False)(input_ids=torch.ones(1, 9, dtype=torch.int64))


# What is refused


def bart():
    torch.manual_seed(0)
    return sharpened(transformers.BartModel(transformers.BartConfig(
        vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, dropout=0.0)))


def clip():
    return transformers.CLIPModel(transformers.CLIPConfig(
        text_config={**SIZE, "vocab_size": 60}, vision_config={**SIZE, "image_size": 48, "patch_size": 8})).eval()


def mpnet():
    return transformers.MPNetModel(transformers.MPNetConfig(**TEXT))


@pytest.mark.parametrize("model, options, message", [
    (bart, {}, "BartModel has cross attention .*encoder_attn.*get_encoder"),
    (clip, {}, "CLIPModel has several stacks of layers, text_model.encoder.layers and vision_model.encoder.layers"),
    (mpnet, {}, "MPNetModel has no attention that can be replaced"),
    (lambda: torch.nn.Linear(3, 3), {}, "Linear has no attention that can be replaced"),
    (lambda: "bert", {}, "model is str; expected a model of transformers"),
    ("bert", {"layers": [0, 3]}, "there is no layer 3; the model has attention in layers 0 to 2"),
    ("bert", {"layers": [-1]}, "there is no layer -1"),
    ("bert", {"layers": []}, "layers is empty"),
    ("bert", {"layers": "7,9"}, "layers is '7,9'; expected numbers from 0, such as"),
    ("bert", {"layers": 1}, "layers is 1; expected"),
    ("bert", {"tie": "rows"}, "tie is 'rows'; expected 'block' or 'none'"),
    ("bert", {"hierarchy": (2, 0)}, "holds 0; every size must be at least 1"),
    ("bert", {"hierarchy": None}, "branching is None; expected window sizes"),
    ("bert", {"grid": True}, "BertConfig has no image_size and patch_size"),
    ("vit", {"grid": 6}, "grid is 6; expected .rows, columns., or True"),
    ("vit", {"grid": (6, 0)}, r"grid is \(6, 0\)"),
    ("vit", {"grid": (6, 6), "hierarchy": len}, "grid goes with windows"),
])
def test_enable_refuses(model, options, message):
    model = make(model) if isinstance(model, str) else model()
    with pytest.raises(ValueError, match="^(enable|hierarchy|windows): .*" + message):
        hf.enable(model, **{"hierarchy": (2, 4), **options})


@pytest.mark.skipif(not BEFORE_5, reason="transformers 5 has one class for all implementations")
def test_eager_modules_of_old_versions_are_refused():
    with pytest.raises(ValueError, match="load it with attn_implementation='sdpa'"):
        hf.enable(make("bert", "eager"), (2, 4))


def test_parts_of_larger_models():
    model = bart()
    batch = {"input_ids": texts("bert")[0]["input_ids"], "attention_mask": texts("bert")[0]["attention_mask"]}
    exact = model(**batch).last_hidden_state
    for layers in ([1], "all"):
        hf.enable(model.get_encoder(), FLAT, layers)
        close(model(**batch).last_hidden_state, exact)
        hf.enable(model.get_encoder(), (2, 4), layers)
        assert model.config._attn_implementation == "sdpa"  # which the decoder reads
        assert (model(**batch).last_hidden_state - exact).abs().max() > 1e-4
    hf.disable(model)
    assert torch.equal(model(**batch).last_hidden_state, exact)
    images_only = clip()
    hf.enable(images_only.vision_model, (2,), [1], grid=True)
    assert len([module for module in images_only.modules() if hasattr(module, "_ramify")]) == 1


def test_layers_are_numbered_inside_containers():
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ModuleDict({"1": make("bert")}))
    hf.enable(model, (2, 4), [2])
    assert [hasattr(module, "_ramify") for module in attentions(model)] == [False, False, True]


class OwnAttention(torch.nn.Module):
    """A module of somebody's own, which has no config."""

    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def test_modules_of_your_own_that_call_torch():
    model = torch.nn.ModuleDict({"cross_encoder": torch.nn.Sequential(OwnAttention(), OwnAttention())})
    x = torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(8))
    hf.enable(model, (2, 3), [1], tie="none")
    first = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    expected = ramify.attention_padded(first, first, first, None, (2, 3), tie="none", causal="prefix")
    close(model["cross_encoder"](x), expected)
    assert all("forward" not in module.__dict__ for module in hf.disable(model).modules())


def full_mask(pattern, dtype):
    """The mask of two sequences of 8 tokens; the second has 5."""
    keep = torch.ones(2, 1, 8, 8, dtype=torch.bool)
    keep[1, :, :, 5:] = False
    if pattern == "one pair":
        keep[0, 0, 2, 4] = False
    if pattern == "open row":
        keep[1, 0, 2] = True
    if pattern == "sliding window":
        keep = keep.tril() & keep.triu(-2)
    if pattern == "two documents":
        keep[:, :, :4, 4:] = keep[:, :, 4:, :4] = False
    if dtype == torch.bool:
        return keep
    mask = torch.zeros(keep.shape, dtype=dtype).masked_fill(~keep, torch.finfo(dtype).min)
    return mask + 0.5 if pattern == "bias" else mask


@pytest.mark.parametrize("pattern, dtype", [
    (pattern, dtype) for pattern in ("padding", "one pair", "open row", "sliding window", "two documents", "bias")
    for dtype in (torch.bool, torch.float32) if pattern != "bias" or dtype != torch.bool])
@pytest.mark.parametrize("layers", [[1], "all"], ids=str)
def test_full_masks_may_hold_padding_alone(pattern, dtype, layers):
    model = hf.enable(make("bert"), (2, 3), layers)
    ids = torch.randint(2, 60, (2, 8), generator=torch.Generator().manual_seed(6))
    mask = full_mask(pattern, dtype)
    if BEFORE_5:
        if dtype != torch.bool:
            pytest.skip("BERT takes no masks to add before transformers 5")
        mask = mask[:, 0]  # the form that it takes there
    if pattern == "padding":
        padding = torch.ones(2, 8, dtype=torch.int64)
        padding[1, 5:] = 0
        out = model(input_ids=ids, attention_mask=mask).last_hidden_state
        close(out[padding == 1], hidden(model, {"input_ids": ids, "attention_mask": padding}))
        return
    with pytest.raises(ValueError, match="attention: the mask is not just padding"):
        model(input_ids=ids, attention_mask=mask)


def test_rows_of_padding_may_be_open():
    attend, _ = layer_function(hierarchy=(2, 4))
    padding = torch.ones(2, 8, dtype=torch.bool)
    padding[1, :3] = False
    keep = padding[:, None, None, :].expand(2, 1, 8, 8).tril()
    expected = attend(padding)
    close(attend(keep), expected, 0)
    keep[1, :, :3] = True  # as torch's softmax needed it
    close(attend(keep), expected, 0)


@pytest.mark.parametrize("layers", [[1], "all"], ids=str)
def test_sliding_windows_and_packed_sequences_are_refused(layers):
    config = transformers.MistralConfig(**SIZE, vocab_size=60, num_key_value_heads=2, sliding_window=6)
    model = hf.enable(transformers.MistralModel(config).eval(), (2, 4), layers)
    ids = torch.arange(9)[None]
    assert model(input_ids=ids[:, :5]).last_hidden_state.shape == (1, 5, 32)
    with pytest.raises(ValueError, match="sliding window"):
        model(input_ids=ids)
    model = hf.enable(make("llama"), (2, 4), layers)
    with pytest.raises(ValueError, match="packed sequences"):
        model(input_ids=ids, position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]]), use_cache=False)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_attention_weights_are_refused(kind):
    model = hf.enable(make(kind), (2, 4), [1])
    batch, _ = texts(kind)
    with pytest.raises(ValueError, match="attention: .* is asked for its attention weights"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(**batch, output_attentions=True)
    assert len(model(**batch, output_hidden_states=True).hidden_states) == 4


def test_what_attention_functions_may_be_given_is_refused():
    attend, _ = layer_function(hierarchy=(2, 4))
    for option in ("position_bias", "softcap", "s_aux", "head_mask", "cu_seq_lens_q"):
        with pytest.raises(ValueError, match=f"attention: LlamaAttention has .*{option}"):
            attend(None, **{option: torch.ones(2)})
    with pytest.raises(ValueError, match=r"the mask has shape \[1, 2, 1, 1\]"):
        attend(torch.ones(1, 2, 1, 1))
    with pytest.raises(ValueError, match="the mask is a list"):
        attend([1])


@pytest.mark.skipif(VERSION < (5, 10), reason="T5 uses the attention interface in later versions")
def test_position_biases_are_refused():
    model = transformers.T5EncoderModel(transformers.T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2,
                                                              num_heads=4)).eval()
    hf.enable(model, (2, 4))
    with pytest.raises(ValueError, match="has a bias of positions"):
        model(input_ids=torch.arange(9)[None])


def test_images_of_another_size_are_refused():
    model = hf.enable(make("vit"), (2,), grid=(4, 4))
    with pytest.raises(ValueError, match="37 tokens are no grid of 4 x 4 patches behind at most 8 other tokens"):
        model(**images())


def test_transformers_is_asked_for_only_when_used():
    program = """
    import sys
    sys.modules["transformers"] = None
    import ramify
    assert "ramify.hf" not in sys.modules
    try:
        ramify.hf
    except ImportError as error:
        print(error)
    """
    assert fresh_process.run(program).stdout.strip() == (
        "ramify.hf: transformers is not installed: pip install 'transformers>=4.57'")
