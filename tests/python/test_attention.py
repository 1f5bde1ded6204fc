"""Values of attention in every mode: against the dense definition, softmax attention, other shapes and dtypes."""

import pytest
import torch
import torch.nn.functional as F

import dense
import ramify
from ramify import Forest
from random_trees import IMPLEMENTATIONS, MODES, applies, dtype_of, mode_name, random_case, tolerance

both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
every_mode = pytest.mark.parametrize("mode", MODES, ids=mode_name)


def normal(*size, seed=0, dtype=torch.float64):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@every_mode
@pytest.mark.parametrize("alpha", [None, 1.3, 2.0])
@pytest.mark.slow
def test_equals_the_dense_definition(mode, alpha):
    for seed in range(5):
        case = random_case(seed, mode, alpha=alpha, positions=seed % 3 > 0, heads=2, key_heads=1 + seed % 2)
        matrix, energy = (torch.from_numpy(array) for array in dense.attention_matrix(case))
        weighted = torch.einsum("ihj,jhd->ihd", matrix, case.v.repeat_interleave(2 // case.v.shape[1], 1))
        empty = torch.tensor([tree == [] for tree in case.trees])
        for implementation in IMPLEMENTATIONS:
            if not applies(implementation, mode, alpha):
                continue
            near = {"rtol": 0, "atol": tolerance(implementation, 1e-9)}
            given = case.to(dtype_of(implementation))
            options = {**given.options, "implementation": implementation}
            found = ramify.attention_matrix(given.q, given.k, given.forest, **options)
            torch.testing.assert_close(found.double(), matrix, **near)
            out = ramify.attention(given.q, given.k, given.v, given.forest, **options)
            torch.testing.assert_close(out.double(), weighted, **near)
            found = ramify.energy(given.q, given.k, given.forest, **options).double()
            assert (found[empty] == -torch.inf).all()
            torch.testing.assert_close(found[~empty].flatten(), energy.flatten(), rtol=near["atol"],
                                       atol=near["atol"])


@pytest.mark.parametrize("implementation", ["reference", "composed"])
def test_alpha_may_differ_by_level(implementation):
    for seed in range(10):
        alpha = torch.tensor([1.6, 1.0, 2.0, 1.2], dtype=torch.float64)
        case = random_case(seed, MODES[seed % 4], alpha=alpha, depth=4, width=3)
        found = ramify.attention_matrix(case.q, case.k, case.forest, implementation=implementation, **case.options)
        torch.testing.assert_close(found, torch.from_numpy(dense.attention_matrix(case)[0]), rtol=0, atol=1e-9)


@both
@pytest.mark.parametrize("tie", ["block", "none"])
@pytest.mark.parametrize("causal", ["none", "block", "prefix"])
def test_flat_tree_is_softmax_attention(tie, causal, implementation):
    q, k, v = (normal(9, 2, 4, seed=seed, dtype=dtype_of(implementation)) for seed in range(3))
    forest = Forest.from_segments([[9]])
    for include_self in ([False, True] if causal == "none" else [True]):
        mask = torch.ones(9, 9, dtype=torch.bool)
        mask = mask.tril() if causal != "none" else mask
        if not include_self:
            mask = mask & ~torch.eye(9, dtype=torch.bool)
        expected = F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in (q, k, v)), attn_mask=mask)
        out = ramify.attention(q, k, v, forest, tie=tie, causal=causal, include_self=include_self,
                               implementation=implementation)
        torch.testing.assert_close(out, expected.transpose(0, 1), rtol=0, atol=tolerance(implementation, 1e-12, 1e-6))


@both
@every_mode
def test_grouped_heads_equal_repeated_heads(mode, implementation):
    case = random_case(3, mode, heads=6, key_heads=2, dtype=dtype_of(implementation))
    repeated = ramify.attention(case.q, case.k.repeat_interleave(3, 1), case.v.repeat_interleave(3, 1), case.forest,
                                implementation=implementation, **case.options)
    out = ramify.attention(case.q, case.k, case.v, case.forest, implementation=implementation, **case.options)
    torch.testing.assert_close(out, repeated, rtol=0, atol=tolerance(implementation, 1e-13, 1e-6))


@both
@every_mode
def test_any_strides(mode, implementation):
    case = random_case(5, mode, heads=2, key_heads=2, dtype=dtype_of(implementation))
    leaves = case.forest.num_leaves
    assert leaves > 5

    def strided(tensor):
        wide = torch.full((tensor.shape[1], 2 * leaves, tensor.shape[2] + 3), torch.nan, dtype=tensor.dtype)
        view = wide[:, ::2, 1:-2].transpose(0, 1)
        view.copy_(tensor)
        return view

    expected = ramify.attention(case.q, case.k, case.v, case.forest, implementation=implementation, **case.options)
    options = {**case.options, "positions": strided_rows(case.positions)}
    out = ramify.attention(strided(case.q), strided(case.k), strided(case.v), case.forest,
                           implementation=implementation, **options)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    # The last dimension need not be dense either, and rows may be one and the same.
    k, v = case.k.transpose(0, 2).contiguous().transpose(0, 2), case.v[:1].expand_as(case.v)
    expected = ramify.attention(case.q, k.contiguous(), v.contiguous(), case.forest, implementation=implementation,
                                **case.options)
    out = ramify.attention(case.q, k, v, case.forest, implementation=implementation, **case.options)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-15)


def strided_rows(tensor):
    return torch.stack([tensor, torch.full_like(tensor, torch.nan)], 1).flatten(0, 1)[::2]


# A rounded result is off by half a unit of its dtype; inputs are rounded first for both sides. Sums and exponentials
# are made in float32 at least, whose error here stays under 40 units of 2^-24.
ERROR = {torch.float32: 40 * 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11}


@both
@every_mode
@pytest.mark.parametrize("alpha", [None, 1.5])
@pytest.mark.parametrize("dtype", list(ERROR), ids=str)
def test_error_of_lower_precision(dtype, alpha, mode, implementation):
    for seed in range(3):
        case = random_case(seed, mode, alpha=alpha, dtype=dtype, num_trees=4)
        exact = {name: value.double() if name == "positions" else value for name, value in case.options.items()}
        expected = ramify.attention(case.q.double(), case.k.double(), case.v.double(), case.forest, **exact)
        out = ramify.attention(case.q, case.k, case.v, case.forest, implementation=implementation, **case.options)
        assert out.dtype == dtype
        bound = (ERROR[dtype] + ERROR[torch.float32]) * case.v.abs().max().item()
        assert (out.double() - expected).abs().max().item() <= bound


@both
@every_mode
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]], ids=str)
def test_empty_inputs(lengths, mode, implementation):
    forest = Forest.windows(lengths, "2*")
    q, k, v = (torch.zeros(0, heads, 4, requires_grad=True) for heads in (4, 2, 2))
    positions = torch.randn(3, 4, 2, requires_grad=True)
    for options in ({}, {"positions": positions}, *([] if implementation == "fused" else [{"alpha": 1.5}])):
        out = ramify.attention(q, k, v, forest, implementation=implementation, **mode, **options)
        assert out.shape == (0, 4, 4)
        out.sum().backward()
        assert ramify.energy(q, k, forest, implementation=implementation, **mode, **options).shape == (len(lengths), 4)
    assert (positions.grad == 0).all()
    assert ramify.attention_matrix(q, k, forest, **mode).shape == (0, 4, 0)
    assert ramify.node_mass(q, k, forest, **mode).shape == (0, 4)


@both
def test_trees_do_not_see_each_other_or_empty_ones(implementation):
    trees = [[["a", "b"], "c"], [], "d", ["e", "f"]]
    q, k, v = (normal(6, 2, 3, seed=seed, dtype=dtype_of(implementation)) for seed in range(3))
    for mode in MODES:
        if not applies(implementation, mode):
            continue
        together = ramify.attention(q, k, v, Forest.from_nested(trees), implementation=implementation, **mode)
        alone = [ramify.attention(q[i:j], k[i:j], v[i:j], Forest.from_nested([tree]), implementation=implementation,
                                  **mode) for tree, i, j in zip(trees, (0, 3, 3, 4), (3, 3, 4, 6))]
        torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=tolerance(implementation, 1e-14, 1e-6))


@both
@every_mode
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_leaf_stays_in_its_tree(bad, mode, implementation):
    forest = Forest.from_nested([["a", ["b", "c"]], [["d", "e"], "f"], ["g", "h", "i"]])
    q, k, v = (normal(9, 1, 3, seed=seed, dtype=dtype_of(implementation)) for seed in range(3))
    clean = ramify.attention(q, k, v, forest, implementation=implementation, **mode)
    others = [0, 1, 2, 6, 7, 8]
    for alpha in (1.0, 1.5)[:1 if implementation == "fused" else 2]:
        for spoiled in (q, k, v):
            inputs = [x.clone() for x in (q, k, v)]
            inputs[[q is spoiled, k is spoiled, v is spoiled].index(True)][4] = bad
            inputs = [x.requires_grad_() for x in inputs]
            out = ramify.attention(*inputs, forest, implementation=implementation, alpha=alpha, **mode)
            if alpha == 1.0:
                torch.testing.assert_close(out[others], clean[others], rtol=0,
                                           atol=tolerance(implementation, 1e-14, 0))
            assert out[3:6].isfinite().logical_not().any()
            out.sum().backward()
            for x in inputs:
                assert x.grad[others].isfinite().all()


@both
def test_options_have_their_defaults(implementation):
    case = random_case(7, MODES[0], positions=False, dtype=dtype_of(implementation))
    rows = int(case.forest.sibling_index.max()) + 1
    positions = normal(rows, 2, 3, seed=9, dtype=dtype_of(implementation))
    atol = tolerance(implementation, 1e-15, 1e-6)

    def run(**options):
        return ramify.attention(case.q, case.k, case.v, case.forest, implementation=implementation, **options)

    assert torch.equal(run(), run(tie="block", causal="none", include_self=False, scale=3**-0.5, alpha=1.0))
    assert torch.equal(run(causal="block"), run(causal="block", include_self=True))
    if implementation != "fused":
        assert torch.equal(run(causal="prefix"), run(causal="prefix", include_self=True))
    assert torch.equal(run(positions=positions), run(positions=positions, position_index=case.forest.sibling_index))
    none = torch.full((case.forest.num_nodes,), -1)
    torch.testing.assert_close(run(positions=positions, position_index=none), run(), rtol=0, atol=atol)
    torch.testing.assert_close(run(positions=positions[:0], position_index=none), run(), rtol=0, atol=atol)


@both
@every_mode
def test_scale_of_any_sign(mode, implementation):
    case = random_case(11, mode, dtype=dtype_of(implementation))
    for scale in (0.0, -0.7, 2.5):
        case.options["scale"] = scale
        found = ramify.attention_matrix(case.q, case.k, case.forest, implementation=implementation, **case.options)
        torch.testing.assert_close(found.double(), torch.from_numpy(dense.attention_matrix(case)[0]), rtol=0,
                                   atol=tolerance(implementation, 1e-9))


@pytest.mark.parametrize("implementation", ["reference", "composed"])
@every_mode
def test_forms_of_alpha(mode, implementation):
    case = random_case(13, mode)

    def run(alpha):
        return ramify.attention(case.q, case.k, case.v, case.forest, implementation=implementation,
                                **{**case.options, "alpha": alpha})

    expected = run(1.5)
    assert not torch.allclose(expected, run(1.0))
    forms = [torch.tensor(1.5), torch.tensor([1.5]), torch.tensor([1.5], dtype=torch.float64)]
    if mode["tie"] == "block":
        forms.append(torch.full((case.forest.depth + 2,), 1.5))  # more levels than there are
    for alpha in forms:
        assert torch.equal(run(alpha), expected)
    for alpha in (1, torch.tensor(1.0), 1.0005):  # softmax below 1.001
        torch.testing.assert_close(run(alpha), run(1.0), rtol=0, atol=1e-14)
    torch.testing.assert_close(run(1.0011), run(1.0), rtol=0, atol=1e-2)


@pytest.mark.parametrize("options", [
    {"causal": "prefix"}, {"causal": "prefix", "alpha": 1.5},
    {"tie": "none", "causal": "prefix"}, {"tie": "none", "causal": "prefix", "alpha": 1.5},
])
def test_a_later_value_that_is_no_number_changes_nothing_before_it(options):
    forest = ramify.Forest.from_nested([[["a", "b", "c"], ["d", "e"], "f"]])
    q, k, v = torch.randn(3, 6, 1, 2, generator=torch.Generator().manual_seed(1)).unbind()
    clean = ramify.attention(q, k, v, forest, **options)
    v = v.clone()
    v[3] = float("nan")
    for implementation in "composed", "reference":
        out = ramify.attention(q, k, v, forest, implementation=implementation, **options)
        torch.testing.assert_close(out[:3], clean[:3])
        assert out[3].isnan().all()
