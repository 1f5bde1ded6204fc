"""Bad calls fail with a message that says what was expected and what came."""

import pytest
import torch

import ramify
from ramify import Forest

FOREST = Forest.windows([6], "2,2")  # depth 3, 12 nodes
Q, K, V = (torch.zeros(6, 4, 8) for _ in range(3))
POSITIONS = torch.zeros(3, 4, 2)


def attention(q=Q, k=K, v=V, forest=FOREST, **options):
    return ramify.attention(q, k, v, forest, **options)


def zeros(*size, **options):
    return torch.zeros(size, **options)


def index(*values):
    return torch.tensor(values, dtype=torch.int64)


# Arguments that make attention a bad call, and a part of its message.
ATTENTION = {
    "q of rank 2": ({"q": zeros(6, 8)}, r"q has shape \[6, 8\]; expected \[leaves, heads, dim\]"),
    "k of rank 4": ({"k": zeros(1, 6, 4, 8)}, r"k has shape \[1, 6, 4, 8\]"),
    "v of rank 1": ({"v": zeros(6)}, r"v has shape \[6\]"),
    "heads that do not divide": ({"k": zeros(6, 3, 8), "v": zeros(6, 3, 8)}, "k has 3 heads, q has 4; .*divide"),
    "more key heads than heads": ({"k": zeros(6, 8, 8), "v": zeros(6, 8, 8)}, "k has 8 heads, q has 4"),
    "no key heads": ({"k": zeros(6, 0, 8), "v": zeros(6, 0, 8)}, "k has 0 heads"),
    "no heads": ({"q": zeros(6, 0, 8)}, "at least one head"),
    "no dimension": ({"q": zeros(6, 4, 0), "k": zeros(6, 4, 0)}, "one dimension"),
    "heads of v": ({"v": zeros(6, 2, 8)}, "v has 2 heads, k has 4"),
    "dimension of k": ({"k": zeros(6, 4, 7)}, "k has dimension 7, q has 8"),
    "rows of k": ({"k": zeros(5, 4, 8)}, "6, 5 and 6 rows"),
    "rows of v": ({"v": zeros(7, 4, 8)}, "6, 6 and 7 rows"),
    "leaves": ({"forest": Forest.windows([7], "2")}, "q has 6 rows, the forest has 7 leaves"),
    "dtype of k": ({"k": K.double()}, "k is Double, q is Float"),
    "dtype of v": ({"v": V.bfloat16()}, "v is BFloat16, q is Float"),
    "dtype of positions": ({"positions": POSITIONS.half()}, "positions is Half, q is Float"),
    "integers": ({"q": Q.long(), "k": K.long(), "v": V.long()}, "q is Long; expected float32"),
    "complex": ({"q": Q.cfloat(), "k": K.cfloat(), "v": V.cfloat()}, "q is ComplexFloat; expected float32"),
    "device of k": ({"k": K.to("meta")}, "k is on meta, q is on cpu"),
    "device of v": ({"v": V.to("meta")}, "v is on meta, q is on cpu"),
    "device of q": ({"q": Q.to("meta")}, "is on cpu, q is on meta"),
    "device of positions": ({"positions": POSITIONS.to("meta")}, "positions is on meta, q is on cpu"),
    "device of the forest": ({"forest": FOREST.to("meta")}, "the forest is on meta, q is on cpu"),
    "a list for a forest": ({"forest": [[1, 2]]}, "forest is list; expected a ramify.Forest"),
    "None for a forest": ({"forest": None}, "forest is NoneType"),
    "positions of rank 2": ({"positions": zeros(3, 2)}, r"positions has shape \[3, 2\]"),
    "heads of positions": ({"positions": zeros(3, 2, 2)}, "positions have 2 heads, q has 4"),
    "index without positions": ({"position_index": index(*[0] * 12)}, "position_index given without positions"),
    "index of other length": ({"positions": POSITIONS, "position_index": index(0, 1)}, r"expected \[12\]"),
    "index of rank 2": ({"positions": POSITIONS, "position_index": index(*[0] * 12)[None]}, r"\[1, 12\]"),
    "index of int32": ({"positions": POSITIONS, "position_index": index(*[0] * 12).int()}, "is Int; expected int64"),
    "index of floats": ({"positions": POSITIONS, "position_index": zeros(12)}, "is Float; expected int64"),
    "index too large": ({"positions": POSITIONS, "position_index": index(*[0] * 11, 3)}, "from 0 to 3; expected -1"),
    "index below -1": ({"positions": POSITIONS, "position_index": index(-2, *[0] * 11)}, "from -2 to 0"),
    "too few positions": ({"positions": POSITIONS[:1]}, "position_index runs from 0 to 1"),
    "tie": ({"tie": "blocks"}, "tie is 'blocks'; expected one of block, none"),
    "causal": ({"causal": "left"}, "causal is 'left'; expected one of none, block, prefix"),
    "implementation": ({"implementation": "fast"}, "implementation is 'fast'; expected one of auto, reference"),
    "alpha too small": ({"alpha": 0.9}, "alpha runs from 0.9 to 0.9; expected 1 to 2"),
    "alpha too large": ({"alpha": torch.tensor([1.0, 1.5, 2.5])}, "to 2.5; expected 1 to 2"),
    "alpha nan": ({"alpha": float("nan")}, "expected 1 to 2"),
    "alpha for too few levels": ({"alpha": torch.tensor([1.5, 1.5])}, "alpha has 2 values, the forest has 3 levels"),
    "no alpha": ({"alpha": torch.empty(0)}, "alpha has 0 values"),
    "alpha of rank 2": ({"alpha": torch.full((1, 3), 1.5)}, r"alpha has shape \[1, 3\]"),
    "several alpha untied": ({"alpha": torch.full((3,), 1.5), "tie": "none"}, "alpha has 3 values; with tie=none"),
    "integer alpha": ({"alpha": torch.tensor(2)}, "alpha is Long"),
    "no self with block": ({"include_self": False, "causal": "block"}, "include_self is off; causal=block needs it"),
    "no self with prefix": ({"include_self": False, "causal": "prefix"}, "causal=prefix needs it"),
    "scale inf": ({"scale": float("inf")}, "scale is inf; expected a finite number"),
    "scale nan": ({"scale": float("nan")}, "scale is nan"),
}

PADDED = torch.zeros(2, 4, 5, 8)


def padded(q=PADDED, k=PADDED, v=PADDED, lengths=(5, 3), hierarchy="2*", **options):
    return ramify.attention_padded(q, k, v, lengths, hierarchy, **options)


OTHERS = {
    "energy of rank 2": (lambda: ramify.energy(zeros(6, 8), K, FOREST), r"q has shape \[6, 8\]"),
    "energy of other rows": (lambda: ramify.energy(Q, zeros(5, 4, 8), FOREST), "rows"),
    "energy without forest": (lambda: ramify.energy(Q, K, 3), "forest is int"),
    "matrix of rank 2": (lambda: ramify.attention_matrix(Q, zeros(6, 8), FOREST), r"k has shape \[6, 8\]"),
    "matrix too large": (lambda: ramify.attention_matrix(*[zeros(8193, 1, 1)] * 2, Forest.windows([8193], "2*")),
                         "8193 leaves .*at most 8192 leaves, or use node_mass"),
    "mass of leaf 6": (lambda: ramify.node_mass(Q, K, FOREST, 6), "leaf 6 is out of range; the forest has 6 leaves"),
    "mass of leaf -1": (lambda: ramify.node_mass(Q, K, FOREST, -1), "leaf -1 is out of range"),
    "mass of rank 2": (lambda: ramify.node_mass(zeros(6, 8), K, FOREST), "expected .leaves, heads, dim."),
    "mass of other leaves": (lambda: ramify.node_mass(Q[:5], K[:5], FOREST), "5 rows, the forest has 6 leaves"),
    "mass with heads": (lambda: ramify.node_mass(Q, zeros(6, 3, 8), FOREST), "k has 3 heads, q has 4"),
    "mass of mixed dtypes": (lambda: ramify.node_mass(Q, K.double(), FOREST), "k is Double, q is Float"),
    "mass of integers": (lambda: ramify.node_mass(Q.long(), K.long(), FOREST), "q is Long; expected float32"),
    "padded of rank 3": (lambda: padded(q=Q), r"attention_padded: q has shape \[6, 4, 8\]"),
    "padded rows differ": (lambda: padded(k=PADDED[:, :, :4]), "k has 2 sequences of 4 rows, q has 2 of 5"),
    "padded batches differ": (lambda: padded(v=PADDED[:1]), "v has 1 sequences of 5 rows"),
    "too few lengths": (lambda: padded(lengths=[5]), "expected 2 numbers from 0 to 5"),
    "length too large": (lambda: padded(lengths=[5, 6]), "expected 2 numbers from 0 to 5"),
    "length below 0": (lambda: padded(lengths=[5, -1]), "expected 2 numbers from 0 to 5"),
    "lengths of rank 2": (lambda: padded(lengths=[[5, 3]]), "lengths"),
    "one length": (lambda: padded(lengths=5), "lengths"),
    "lengths of floats": (lambda: padded(lengths=[4.5, 3]), "lengths"),
    "forest of other lengths": (lambda: padded(hierarchy=Forest.windows([5, 4], "2*")), r"\[5, 4\] leaves"),
    "forest of more trees": (lambda: padded(hierarchy=Forest.windows([5, 3, 0], "2*")), r"\[5, 3, 0\] leaves"),
    "no hierarchy": (lambda: padded(hierarchy=None), "branching"),
    "option of attention": (lambda: padded(tie="x"), "tie is 'x'"),
}


@pytest.mark.parametrize("implementation", ["auto", "composed", "reference", "fused"])
@pytest.mark.parametrize("name", ATTENTION)
def test_bad_call_of_attention(name, implementation):
    arguments, message = ATTENTION[name]
    with pytest.raises(ValueError, match=message):
        attention(**{"implementation": implementation, **arguments})


# Calls that are good, but not for the fused kernels.
NOT_FUSED = {
    "float64": ({"q": Q.double(), "k": K.double(), "v": V.double()}, "take float32, bfloat16 and float16"),
    "alpha": ({"alpha": 1.5}, "are for alpha 1"),
    "alpha by level": ({"alpha": torch.full((3,), 1.5)}, "are for alpha 1"),
    "wide keys": ({"q": zeros(6, 4, 513), "k": zeros(6, 4, 513)}, "take dimensions up to 512"),
    "wide values": ({"v": zeros(6, 4, 513)}, "take dimensions up to 512"),
    "wide positions": ({"positions": zeros(3, 4, 1025)}, "take positions of up to 1024 dimensions"),
}


@pytest.mark.parametrize("name", NOT_FUSED)
def test_what_the_fused_kernels_refuse(name):
    arguments, message = NOT_FUSED[name]
    with pytest.raises(ValueError, match=f"attention: implementation=fused: .*{message}; use implementation=auto"):
        attention(implementation="fused", **arguments)
    expected = attention(implementation="composed", **arguments)
    assert torch.equal(attention(**arguments), expected)


@pytest.mark.parametrize("name", OTHERS)
def test_bad_call_of_the_other_functions(name):
    call, message = OTHERS[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="windw"):
        attention(windw=3)
    with pytest.raises(TypeError, match="positional"):
        ramify.attention(Q, K, V, FOREST, POSITIONS)


@pytest.mark.parametrize("name", ["leaves", "dtype of k", "index too large", "alpha too small"])
def test_nothing_is_computed_before_the_error(name):
    arguments, message = ATTENTION[name]
    FOREST.plan()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with pytest.raises(ValueError, match=message):
            attention(**arguments)
    work = {event.name for event in profile.events()} & {"aten::matmul", "aten::bmm", "aten::exp", "aten::mul",
                                                         "aten::index_select", "aten::sum"}
    assert not work


def test_the_good_call_passes():
    assert attention().shape == (6, 4, 8)
    assert padded().shape == PADDED.shape
