"""Gradients of outputs and energies by q, k, v, positions and alpha, in every mode."""

import random

import pytest
import torch
from torch.autograd import gradcheck

import ramify
from ramify import Forest
from random_trees import IMPLEMENTATIONS, MODES, dtype_of, mode_name, random_case, tolerance

both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
with_alpha = pytest.mark.parametrize("implementation", ["reference", "composed"])
every_mode = pytest.mark.parametrize("mode", MODES, ids=mode_name)


def gradient_case(seed):
    """A small random call: mode, positions, alpha as a number, as one tensor or one a level, grouped heads."""
    rng = random.Random(seed)
    mode = MODES[seed % len(MODES)]
    kind = rng.choice(["none", "none", "number", "learned", "levels"])
    if kind == "levels" and mode["tie"] == "none":
        kind = "learned"
    alpha = {"none": None, "number": rng.choice([1.2, 1.5, 2.0]),
             "learned": torch.tensor([rng.uniform(1.1, 1.9)], dtype=torch.float64),
             "levels": torch.tensor([rng.uniform(1.1, 1.9) for _ in range(3)], dtype=torch.float64)}[kind]
    return random_case(seed, mode, positions=rng.random() < 0.6, alpha=alpha, num_trees=2, heads=2,
                       key_heads=rng.choice([1, 2]), max_leaves=6, width=3)


def check_gradients(case, implementation, fast_mode):
    names = [name for name in ("positions", "alpha") if isinstance(case.options.get(name), torch.Tensor)]
    inputs = [x.clone().requires_grad_() for x in (case.q, case.k, case.v, *(case.options[name] for name in names))]
    some = ramify.energy(case.q, case.k, case.forest, **case.options) > -torch.inf  # trees with something to see

    def run(q, k, v, *others):
        options = {**case.options, **dict(zip(names, others)), "implementation": implementation}
        return (ramify.attention(q, k, v, case.forest, **options),
                ramify.energy(q, k, case.forest, **options)[some])

    torch.manual_seed(0)  # for the random directions of the fast mode
    assert gradcheck(run, inputs, fast_mode=fast_mode, atol=1e-6, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_gradcheck_of_200_random_calls(first):
    for seed in range(first, first + 25):
        check_gradients(gradient_case(seed), "composed", fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 208))  # one of every mode
def test_gradcheck_of_every_entry(seed):
    check_gradients(gradient_case(seed), "composed", fast_mode=False)


@pytest.mark.parametrize("seed", range(304, 328))  # three of every mode
def test_gradcheck_of_the_reference(seed):
    check_gradients(gradient_case(seed), "reference", fast_mode=True)


@with_alpha
@every_mode
def test_gradient_by_alpha_is_its_finite_difference(mode, implementation):
    step = 1e-6
    for seed in range(4):
        case = random_case(seed, mode, heads=1)
        weights = torch.randn(case.v.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

        def loss(alpha):
            out = ramify.attention(case.q, case.k, case.v, case.forest, implementation=implementation,
                                   **{**case.options, "alpha": alpha})
            return (out * weights).sum()

        alpha = torch.tensor(1.45, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(alpha), alpha)
        expected = (loss(1.45 + step) - loss(1.45 - step)) / (2 * step)
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)


@with_alpha
@every_mode
def test_sparsemax_has_exact_zeros_and_finite_gradients(mode, implementation):
    zeros = 0
    for seed in range(6):
        case = random_case(seed, mode, alpha=2.0)
        inputs = [(3 * x).requires_grad_() for x in (case.q, case.k)]
        matrix = ramify.attention_matrix(*inputs, case.forest, implementation=implementation, **case.options)
        plain = ramify.attention_matrix(*inputs, case.forest, implementation=implementation,
                                        **{**case.options, "alpha": 1.0})
        zeros += ((matrix == 0) & (plain > 0)).sum().item()
        sums = matrix.sum(-1)
        assert ((sums - 1).abs().lt(1e-9) | (sums == 0)).all()
        for gradient in torch.autograd.grad(matrix.square().sum(), inputs):
            assert gradient.isfinite().all()
    assert zeros > 0


def run_all(trees, mode, implementation, alpha=1.0, seed=0):
    """(out, energy, gradients of both by q, k, v, positions)."""
    forest = Forest.from_nested(trees)
    generator = torch.Generator().manual_seed(seed)
    dtype = dtype_of(implementation)
    q, k, v = (torch.randn(forest.num_leaves, 2, 3, generator=generator, dtype=torch.float64).to(dtype)
               .requires_grad_() for _ in range(3))
    positions = torch.randn(5, 2, 2, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    options = {**mode, "alpha": alpha, "positions": positions, "implementation": implementation}
    out = ramify.attention(q, k, v, forest, **options)
    energy = ramify.energy(q, k, forest, **options)
    inputs = (q, k, v, positions)
    gradients = torch.autograd.grad(out.sum() + energy.sum(), inputs)
    return out, energy, dict(zip(["q", "k", "v", "positions"], gradients)), v


# The degenerate shapes: an only child above a family, families of exactly one leaf at several depths, chains, bare
# leaves and empty trees among others, and all of them in one batch.
DEGENERATE = {
    "only child above a family": [[["a", "b"]]],
    "families of one leaf": [["a", ["b"]], [["a"], ["b"]], [["a"], [["b"]], "c"]],
    "chain": [[[["a"]]]],
    "bare leaf": ["a"],
    "empty": [[]],
    "mixed": [[], "a", [["b"]], [], ["c", [["d"], "e"]], [["f", ["g"]]], "h"],
}


@both
@every_mode
@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_degenerate_trees_give_no_nan(alpha, name, mode, implementation):
    out, energy, gradients, _ = run_all(DEGENERATE[name], mode, implementation, alpha)
    assert out.isfinite().all()
    assert not energy.isnan().any() and (energy < torch.inf).all()
    for gradient in gradients.values():
        assert gradient.isfinite().all()


@both
@every_mode
@pytest.mark.parametrize("trees", [[[[["a"]]]], ["a"]], ids=["chain", "bare leaf"])
def test_a_tree_of_one_leaf(trees, mode, implementation):
    out, energy, gradients, v = run_all(trees, mode, implementation)
    if mode["include_self"]:
        assert torch.equal(out, v)
        assert energy.isfinite().all()
        torch.testing.assert_close(gradients["v"], torch.ones_like(v), rtol=0, atol=0)
    else:
        assert (out == 0).all()
        assert (energy == -torch.inf).all()
        assert all((gradient == 0).all() for gradient in gradients.values())


@both
def test_a_family_of_one_leaf_sends_all_mass_to_its_parents_siblings(implementation):
    out, _, _, v = run_all([[["a"], "b"]], MODES[0], implementation)
    torch.testing.assert_close(out, v.flip(0), rtol=0, atol=0)


@both
def test_second_derivatives_are_refused(implementation):
    case = random_case(1, MODES[0], dtype=dtype_of(implementation))
    q = case.q.clone().requires_grad_()
    out = ramify.attention(q, case.k, case.v, case.forest, implementation=implementation, **case.options)
    with pytest.raises(NotImplementedError, match="create_graph=True"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


@both
def test_gradient_of_one_input_alone_and_of_strided_ones(implementation):
    case = random_case(2, MODES[1], key_heads=2, dtype=dtype_of(implementation))
    tensors = {"q": case.q, "k": case.k, "v": case.v}

    def gradient(name, prepare=lambda x: x):
        leaf = tensors[name].clone().requires_grad_()
        out = ramify.attention(**{**tensors, name: prepare(leaf)}, forest=case.forest, implementation=implementation,
                               **case.options)
        return torch.autograd.grad(out.square().sum(), leaf)[0]

    for name in tensors:
        expected = gradient(name)
        strided = gradient(name, lambda x: x.transpose(0, 2).contiguous().transpose(0, 2))
        torch.testing.assert_close(strided, expected, rtol=0, atol=tolerance(implementation, 1e-14, 0))
