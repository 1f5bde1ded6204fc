"""Small models of transformers with random weights, and inputs for them."""

import pytest
import torch

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


def layer_function(**options):
    """The attention of one enabled layer, as its module calls it, with queries, keys and values for 8 tokens."""
    module = attentions(hf.enable(make("llama"), layers=[1], **options))[1]
    q, k, v = torch.randn(3, 2, 4, 8, 8, generator=torch.Generator().manual_seed(7)).unbind()
    function = transformers.AttentionInterface()["ramify"]
    return lambda mask, **more: function(module, q, k, v, mask, **more)[0], (q, k, v)
