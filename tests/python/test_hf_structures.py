"""ramify.hf: structures that functions give, grids of patches, causal models."""

import pytest
import torch

import ramify
from ramify import Forest
from small_transformers import FLAT, LENGTHS, SIZE, attentions, close, hf, hidden, images, make, texts, transformers


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
