"""The encoder from Python: ordinary torch modules over the library's computation."""

import copy
import doctest
import importlib
import io
import json
import pathlib
import pickle

import pytest
import torch

import fresh_process
from ramify import Forest
from ramify.nn import Encoder, Layer, Leaves, Modality, Model

SMALL = {"token_width": 12, "position_width": 16, "mlp_width": 8, "dropout": 0.0,
         "layers": [{"heads": 2, "head_dim": 8, "width": 16}, {"heads": 3, "head_dim": 4, "width": 10}]}
FOREST = Forest.from_segments([[3, 2, 4], [2, 1]])  # two texts, of two sentences and of one
LEAVES = {"token": torch.arange(9) % 5}
PLACES = {"places": torch.arange(4), "index": FOREST.sibling_index.masked_fill(FOREST.parents < 0, -1)}


def make_model(config=SMALL, seed=0, **options):
    torch.manual_seed(seed)
    return Model(config, {"token": ("ids", 30)}, domains=["sequence"], outputs=3, **options).eval()


def outputs(model):
    return model(FOREST, LEAVES, PLACES)


def test_examples_of_docstrings():
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module("ramify.nn"))
    assert result.attempted > 5 and result.failed == 0


def test_parameters_are_those_of_the_library():
    model = make_model()
    assert all(isinstance(p, torch.nn.Parameter) and p.is_leaf and p.requires_grad for p in model.parameters())
    names = list(dict(model.named_parameters()))
    assert "encoder.layers.0.leaves.token.query" in names and "output.bias" in names
    assert list(dict(model.named_buffers())) == ["encoder.positions.sequence.frequencies"]
    # what is done to a parameter in Python is what the library computes with
    before = outputs(model)
    with torch.no_grad():
        model.output.bias += 1
    torch.testing.assert_close(outputs(model), before + 1)
    model.output.bias = torch.nn.Parameter(torch.zeros(3))
    model.output.weight = torch.nn.Parameter(torch.zeros(3, 8))
    assert outputs(model).abs().max() == 0


def test_gradients_reach_every_parameter():
    model = make_model()
    outputs(model).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_optimisers_train_it():
    model = make_model()
    target = torch.tensor([0, 2])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(outputs(model), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_state_dict_makes_the_model():
    model, other = make_model(seed=1), make_model(seed=2)
    assert not torch.allclose(outputs(model), outputs(other), atol=1e-3)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(outputs(model), outputs(other))
    third = make_model(seed=3)
    third.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(outputs(model), outputs(third))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_their_own(duplicate):
    model = make_model()
    before = outputs(model)
    generator = torch.get_rng_state()
    other = duplicate(model)
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(outputs(other), before)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    assert torch.equal(outputs(model), before)
    assert not torch.allclose(outputs(other), before)
    outputs(other).sum().backward()
    assert all(p.grad is None for p in model.parameters()) and all(p.grad is not None for p in other.parameters())


def test_dtypes():
    model = make_model()
    exact = outputs(model)
    parameters = list(model.parameters())
    model.double()
    assert all(a is b for a, b in zip(model.parameters(), parameters))
    torch.testing.assert_close(outputs(model), exact.double(), atol=1e-5, rtol=1e-5)
    outputs(model).sum().backward()
    assert all(p.grad.dtype == torch.float64 for p in parameters)
    model.to(torch.bfloat16)
    rough = outputs(model)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)


def test_autocast():
    model = make_model()
    exact = outputs(model)
    with torch.autocast("cpu", torch.bfloat16):
        rough = outputs(model)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)


def test_devices(device):
    model = make_model()
    exact = outputs(model)
    model.to(device)
    moved = {name: tensor.to(device) for name, tensor in PLACES.items()}
    result = model(FOREST.to(device), {"token": LEAVES["token"].to(device)}, moved)
    assert result.device.type == device
    torch.testing.assert_close(result.cpu(), exact, atol=1e-4, rtol=1e-4)


def test_functional_call():
    model = make_model()
    zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    assert torch.func.functional_call(model, zeros, (FOREST, LEAVES, PLACES)).abs().max() == 0
    assert outputs(model).abs().max() > 0


def test_train_and_eval():
    model = make_model({**SMALL, "dropout": 0.5})
    assert torch.equal(outputs(model), outputs(model))
    model.train()
    assert not torch.equal(outputs(model), outputs(model))


def test_mixed_modalities_and_ranges():
    torch.manual_seed(0)
    modalities = {"token": ("ids", 30), "number": ("numbers", 4), "patch": Modality("dense", 6)}
    model = Model(SMALL, modalities, domains=["sequence"], outputs=2).eval()
    leaves = {"token": Leaves(torch.tensor([0, 3, 4]), torch.tensor([7, 8, 9])),
              "number": Leaves(torch.tensor([1, 2]), torch.tensor([0, 3]), torch.tensor([0.5, -1.0])),
              "patch": Leaves(torch.tensor([5, 6, 7, 8]), None, torch.rand(4, 6))}
    everything = model(FOREST, leaves, PLACES)
    assert everything.shape == (2, 2)
    ranges = torch.tensor([0, 5]), torch.tensor([5, 9])
    assert torch.equal(model(FOREST, leaves, PLACES, ranges), everything)
    overlapping = torch.tensor([0, 5, 0]), torch.tensor([5, 9, 9])  # whose means are added in another way
    torch.testing.assert_close(model(FOREST, leaves, PLACES, overlapping)[:2], everything, rtol=1e-6, atol=1e-7)
    encoder = Encoder(SMALL, modalities, domains=["sequence"])
    encoder.load_state_dict({k.removeprefix("encoder."): v for k, v in model.state_dict().items()
                             if k.startswith("encoder.")})
    rows = encoder(FOREST, leaves, PLACES)
    assert rows.shape == (9, 10)
    head = torch.nn.functional.gelu(torch.stack([rows[:5].mean(0), rows[5:].mean(0)]) @ model.hidden.weight.T
                                    + model.hidden.bias) @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(head, everything)


def test_node_mass():
    model = make_model()
    mass = model.node_mass(FOREST, LEAVES, PLACES, layer=1)
    assert mass.shape == (FOREST.num_nodes,)
    torch.testing.assert_close(mass[:2], torch.ones(2))
    torch.testing.assert_close(mass[FOREST.leaf_nodes][:5].sum(), torch.tensor(1.0))


def test_tables():
    model = make_model()
    table = torch.randn(30, 12)
    model.set_table("token", table, trainable=False)
    outputs(model).sum().backward()
    assert torch.equal(model.encoder.leaves.token.table, table) and model.encoder.leaves.token.table.grad is None
    with pytest.raises(ValueError, match=r"shape \[3, 12\]; expected \[30, 12\]"):
        model.set_table("token", table[:3])
    with pytest.raises(ValueError, match="no modality of ids is called 'word'"):
        model.set_table("word", table)


@pytest.mark.parametrize("options", [{}, {"tie": "none"}, {"alpha": 1.5}, {"alpha": "learned"}, {"inner": "favor:16"},
                                     {"include_self": True, "normalize_values": True}, {"attention": "none"}])
def test_layer(options):
    torch.manual_seed(0)
    position_width = 0 if options.get("attention") == "none" else 4
    layer = Layer(6, 11, heads=3, head_dim=8, position_width=position_width, **options)
    x = torch.randn(9, 6, requires_grad=True)
    out = layer(x, FOREST, torch.randn(4, 4))
    assert out.shape == (9, 11)
    out.square().sum().backward()
    assert all(p.grad is not None for p in layer.parameters()) and x.grad is not None


def test_layer_in_float64_has_the_right_gradient():
    torch.manual_seed(0)
    layer = Layer(3, 4, heads=2, head_dim=3, position_width=2).double()
    x = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    positions = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, positions: layer(x, FOREST, positions), (x, positions))


def test_config_has_every_option():
    config = make_model().config
    assert config["token_width"] == 12 and config["layers"][1]["tie"] == "block"
    path = pathlib.Path(__file__).parents[2] / "configs" / "default.json"
    default = json.loads(path.read_text())["model"]
    assert Model(default, {"token": ("ids", 3)}, outputs=1).config == Model({}, {"token": ("ids", 3)}, outputs=1).config


BAD = {
    "key of the config": (lambda: make_model({"layers": [{"head": 3}]}), r"layers\[0\].head is not a key"),
    "value of the config": (lambda: make_model({"dropout": 2}), "dropout is 2; expected a number from 0 to 1"),
    "feature": (lambda: Model({}, {"a": ("words", 3)}, outputs=1), 'a feature is "words"; expected one of ids'),
    "domain": (lambda: Model({}, {"a": ("ids", 3)}, outputs=1, domains=["time"]), 'a domain is "time"'),
    "modality": (lambda: make_model()(FOREST, {"word": LEAVES["token"]}), "'word' is neither a modality"),
    "positions": (lambda: make_model()(FOREST, LEAVES, {"place": torch.arange(4)}), "'place' is neither"),
    "rows": (lambda: make_model()(FOREST, {"token": torch.arange(8)}), "8 rows of leaves, the forest has 9"),
    "forest": (lambda: make_model()([1, 2], LEAVES), "forest is list; expected a ramify.Forest"),
    "option of a layer": (lambda: Layer(3, 4, 0, 3), r"layers\[0\].heads is 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_nn_is_there_without_its_own_import():
    fresh_process.run("""
        import ramify
        ramify.nn.Layer(3, 4, 2, 2)
        """)
