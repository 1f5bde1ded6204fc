"""The ops under torch.ops.ramify, called without the Python package in front: a wrong call is an error, not a crash."""

import pytest
import torch

from ramify import Forest

OPTIONS = (None, None, None, None, None, "block", "none")


def integers(*values):
    return torch.tensor(values, dtype=torch.int64)


@pytest.fixture
def forest():
    return Forest.from_nested([[["a", "b", "c"], ["d", "e"], "f"]])


@pytest.fixture
def q():
    return torch.randn(6, 1, 2)


@pytest.mark.parametrize("schedule", [(), (5, 5), (0, 9, 5_000_000, 5), (0, 9, 1 << 62, 1 << 62), (0, 9, -1, 0)])
def test_a_plan_that_is_none(forest, q, schedule):
    plan = [integers(*schedule), *forest._plan("block", "none")[1:]]
    with pytest.raises(ValueError, match="not one that ramify::plan gives"):
        torch.ops.ramify.attention(q, q, q, forest._arrays, plan, *OPTIONS, "composed")


def test_a_plan_of_two_tensors(forest, q):
    with pytest.raises(ValueError, match="the plan has 2 tensors; expected 10"):
        torch.ops.ramify.attention(q, q, q, forest._arrays, forest._plan("block", "none")[:2], *OPTIONS, "composed")


def test_a_plan_of_another_kind_or_forest(forest, q):
    for plan in forest._plan("none", "none"), Forest.windows([6], "2*")._plan("block", "none"):
        with pytest.raises(ValueError, match="made for another forest or another kind of attention"):
            torch.ops.ramify.attention(q, q, q, forest._arrays, plan, *OPTIONS, "composed")


@pytest.mark.parametrize("implementation", ["composed", "reference", "fused"])
def test_a_forest_of_other_leaves(forest, q, implementation):
    other = Forest.from_nested([list(range(9))])
    with pytest.raises(ValueError):
        torch.ops.ramify.attention(q, q, q, other._arrays, forest._plan("block", "none"), *OPTIONS, implementation)
    with pytest.raises(ValueError, match="q has 6 rows, the forest has 9 leaves"):
        torch.ops.ramify.attention(q, q, q, other._arrays, [], *OPTIONS, implementation)


def test_gradients_of_another_shape(forest, q):
    nothing = torch.zeros(0)
    for implementation in "composed", "reference", "fused":
        with pytest.raises(ValueError, match="expected those of the outputs"):
            torch.ops.ramify.attention_backward(nothing, nothing, q, q, q, forest._arrays, [], *OPTIONS, implementation)


def test_too_few_arrays(q):
    calls = [
        lambda: torch.ops.ramify.forest_field([], "parents"),
        lambda: torch.ops.ramify.plan([], "block", "none"),
        lambda: torch.ops.ramify.node_mass(q, q, [], [], *OPTIONS, "auto", None),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="0 arrays; expected first_child"):
            call()
