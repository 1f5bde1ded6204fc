"""ramify.hf: hierarchical attention inside models of transformers, against the models' own and ramify.attention."""

import copy
import gc
import pickle
import warnings

import pytest
import torch

import ramify
from ramify import Forest
from small_transformers import (
    BEFORE_5, FLAT, LENGTHS, TEXT_KINDS, attentions, close, hf, hidden, images, inputs_of, layer_function, make,
    texts, transformers)


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
