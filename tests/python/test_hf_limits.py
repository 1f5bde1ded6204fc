"""ramify.hf: the models, parts of models, options and masks that it takes, and the messages about all others."""

import warnings

import pytest
import torch

import fresh_process
import ramify
from small_transformers import (
    BEFORE_5, FLAT, SIZE, TEXT, VERSION, attentions, close, hf, hidden, images, layer_function, make, sharpened,
    texts, transformers)


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
