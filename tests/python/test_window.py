"""window=W: leaves near by are seen one by one, the rest through the hierarchy, in one softmax (docs/algorithm.md,
section 6)."""

import math

import pytest
import torch

import dense
import ramify
from ramify import Forest
from random_trees import dtype_of, random_case, tolerance

IMPLEMENTATIONS = ["reference", "composed", "fused"]
every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
MODES = [{"tie": "none", "causal": "none", "include_self": False}, {"tie": "none", "causal": "none", "include_self": True},
         {"tie": "none", "causal": "block", "include_self": True}, {"tie": "none", "causal": "prefix", "include_self": True}]
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"{mode['causal']}-{mode['include_self']}")
every_window = pytest.mark.parametrize("window", [0, 1, 2, 5, 1000])


def seen(root, i, window, causal):
    """The nodes that leaf i sees beside itself: a node with leaves inside the window is opened."""
    if causal and root.leaves[0] > i:
        return []
    inside = any(abs(i - j) <= window for j in root.leaves)
    if not root.children or not inside:
        return [] if root.leaves == [i] else [root]
    return [node for child in root.children for node in seen(child, i, window, causal)]


def expected_matrix(case, window):
    """([T, H, T], [trees, H]) from the definition."""
    matrix = torch.zeros(case.q.shape[0], case.q.shape[1], case.q.shape[0], dtype=torch.float64)
    energies = []
    causal = case.options["causal"] != "none"
    for root in dense.parse(case.trees):
        rows = []
        for i in root.leaves:
            nodes = seen(root, i, window, causal)
            if case.options["include_self"]:
                nodes.append(dense.Node(leaves=[i]))
            for h in range(case.q.shape[1]):
                keys = case.k[:, h // (case.q.shape[1] // case.k.shape[1])].double()
                scores = torch.stack([case.q[i, h].double() @ keys[node.leaves].mean(0) / math.sqrt(case.q.shape[2])
                                      + math.log(len(node.leaves)) for node in nodes] or [torch.tensor(-math.inf).double()])
                for weight, node in zip(scores.softmax(0), nodes):
                    matrix[i, h, node.leaves] = weight / len(node.leaves)
                rows.append(scores.logsumexp(0))
        energies.append(torch.stack(rows).view(len(root.leaves), -1).mean(0))
    return matrix, torch.stack(energies)


@every_implementation
@every_window
@every_mode
def test_follows_the_definition(mode, window, implementation):
    for seed in range(6):
        case = random_case(seed, mode, positions=False, dtype=dtype_of(implementation), max_leaves=25)
        matrix, energies = expected_matrix(case, window)
        options = {**case.options, "window": window, "implementation": implementation}
        out = ramify.attention_matrix(case.q, case.k, case.forest, **options)
        assert (out - matrix).abs().max() < tolerance(implementation, 1e-12)
        energy = ramify.energy(case.q, case.k, case.forest, **options)
        energy = energy[(case.forest.tree_leaf_begin.diff() > 0)]
        torch.testing.assert_close(energy.double(), energies, atol=tolerance(implementation, 1e-12), rtol=0)


@every_implementation
@every_window
@every_mode
def test_mass_of_nodes_sums_the_matrix(mode, window, implementation):
    case = random_case(3, mode, positions=False, dtype=dtype_of(implementation), max_leaves=25)
    options = {**case.options, "window": window, "implementation": implementation}
    matrix = ramify.attention_matrix(case.q, case.k, case.forest, **options)
    leaf = case.forest.num_leaves // 2
    mass = ramify.node_mass(case.q, case.k, case.forest, leaf, **options)
    for node in dense.all_nodes(dense.parse(case.trees)):
        expected = matrix[leaf][:, node.leaves].sum(-1)
        assert (mass[node.number] - expected).abs().max() < tolerance(implementation, 1e-12)


@every_implementation
@pytest.mark.parametrize("causal", ["none", "prefix"])
def test_a_window_over_the_tree_is_softmax_attention(causal, implementation):
    torch.manual_seed(0)
    forest = Forest.windows([50, 1, 33], "3,4*")
    q, k, v = torch.randn(3, 84, 2, 16, dtype=dtype_of(implementation)).unbind(0)
    for window in (49, 50, 10**12):
        out = ramify.attention(q, k, v, forest, tie="none", causal=causal, include_self=True, window=window,
                               implementation=implementation)
        for begin, end in ((0, 50), (50, 51), (51, 84)):
            heads = [x[begin:end].double().transpose(0, 1) for x in (q, k, v)]
            expected = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal != "none")
            assert (out[begin:end] - expected.transpose(0, 1)).abs().max() < tolerance(implementation, 1e-12)


@every_implementation
@pytest.mark.parametrize("window", [1, 4, 100])
def test_later_leaves_change_nothing(window, implementation):
    torch.manual_seed(1)
    sizes = [40, 7] if implementation == "reference" else [700, 40]
    forest = Forest.windows(sizes, "5,3*")
    q, k, v = torch.randn(3, sum(sizes), 2, 16).unbind(0)
    options = {"tie": "none", "causal": "prefix", "window": window, "implementation": implementation}
    before = ramify.attention(q, k, v, forest, **options)
    for leaf in (0, 1, 16, sizes[0] // 2, sizes[0] - 1):
        changed = [x.clone() for x in (q, k, v)]
        for x in changed:
            x[leaf:sizes[0]] = torch.randn_like(x[leaf:sizes[0]])
        out = ramify.attention(*changed, forest, **options)
        if implementation == "composed":  # products of other shapes may add up in another order
            torch.testing.assert_close(out[:leaf], before[:leaf], atol=1e-6, rtol=0)
        else:
            assert torch.equal(out[:leaf], before[:leaf])
        assert torch.equal(out[sizes[0]:], before[sizes[0]:])
        assert not torch.equal(out[leaf], before[leaf])


@every_mode
@pytest.mark.parametrize("window", [1, 3])
def test_gradients_of_composed(mode, window):
    case = random_case(5, mode, positions=False, max_leaves=12)
    inputs = [x.requires_grad_() for x in (case.q, case.k, case.v)]

    def both(q, k, v):
        options = {**case.options, "window": window, "implementation": "composed"}
        energy = ramify.energy(q, k, case.forest, **options)
        return ramify.attention(q, k, v, case.forest, **options), energy[~energy.isneginf()]

    assert torch.autograd.gradcheck(both, inputs)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS[1:])
@every_window
@every_mode
def test_gradients_are_those_of_the_reference(mode, window, implementation):
    for seed in range(3):
        case = random_case(seed, mode, positions=False, dtype=dtype_of(implementation), max_leaves=40)
        results = []
        for which, dtype in ((implementation, case.q.dtype), ("reference", torch.float64)):
            inputs = [x.detach().to(dtype).requires_grad_() for x in (case.q, case.k, case.v)]
            options = {**case.options, "window": window, "implementation": which}
            energy = ramify.energy(*inputs[:2], case.forest, **options)
            out = ramify.attention(*inputs, case.forest, **options)
            torch.manual_seed(seed)
            seeds = torch.randn(out.shape, dtype=torch.float64)
            ((out * seeds).sum() + energy[~energy.isneginf()].sum()).backward()
            results.append([x.grad for x in inputs])
        for ours, exact in zip(*results):
            assert (ours - exact).abs().max() < tolerance(implementation, 1e-11, 5e-5)


@every_implementation
@pytest.mark.parametrize("causal", ["none", "prefix"])
def test_degenerate_trees(causal, implementation):
    forest = Forest.from_nested([[], "x", [[["x"]]], [["x"], ["x", ["x"]]], []])
    for include_self in ([False, True] if causal == "none" else [True]):
        inputs = [torch.randn(forest.num_leaves, 1, 4, dtype=dtype_of(implementation), requires_grad=True)
                  for _ in range(3)]
        out = ramify.attention(*inputs, forest, tie="none", causal=causal, include_self=include_self, window=2,
                               implementation=implementation)
        out.sum().backward()
        assert torch.equal(out[:2], inputs[2][:2] if include_self else torch.zeros_like(out[:2]))
        assert all(x.grad.isfinite().all() for x in inputs)
        assert not torch.isnan(out).any()
    empty = torch.zeros(0, 2, 4)
    assert ramify.attention(empty, empty, empty, Forest.from_nested([[]]), tie="none", window=3).shape == (0, 2, 4)


def test_padded_form_takes_a_window():
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 2, 2, 30, 8).unbind(0)
    options = {"tie": "none", "causal": "prefix", "window": 4}
    out = ramify.attention_padded(q, k, v, [30, 11], "4*", **options)
    alone = ramify.attention(*(x[1, :, :11].transpose(0, 1) for x in (q, k, v)), Forest.windows([11], "4*"), **options)
    torch.testing.assert_close(out[1, :, :11].transpose(0, 1), alone)
    assert not out[1, :, 11:].any()


BAD = {
    "negative": ({"tie": "none", "window": -1}, "window is -1; expected 0"),
    "tied": ({"window": 2}, "window is 2 with tie=block; a window needs tie=none"),
    "positions": ({"tie": "none", "window": 2, "positions": torch.zeros(3, 1, 2)}, "positions are given"),
    "alpha": ({"tie": "none", "window": 2, "alpha": 1.5}, "alpha is given; a window is for alpha 1"),
}


@pytest.mark.parametrize("options, message", BAD.values(), ids=BAD.keys())
def test_bad_calls(options, message):
    x = torch.zeros(3, 1, 4)
    with pytest.raises(ValueError, match=message):
        ramify.attention(x, x, x, Forest.from_nested([["x", "x", "x"]]), **options)
