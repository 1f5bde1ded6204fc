"""Shapes that break recursion, padding and int32: combs, chains, one wide family among many narrow ones.

The comb of depth 20,000 is run in the tied modes. Modes in which every leaf climbs to the root cost the square of the
depth by nature (minutes at 20,000), and a backward takes some milliseconds a level: those run at smaller depths.
"""

import math

import pytest
import torch
import torch.nn.functional as F

import fresh_process
import ramify
from ramify import Forest
from random_trees import IMPLEMENTATIONS, comb, dtype_of, tolerance

DEPTH = 20_000
DEPTH_SQUARED = 2_000
DEPTH_BACKWARD = 1_000
both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


def normal(*size, seed, implementation="reference"):
    """Float64, rounded to what the implementation computes in."""
    numbers = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(dtype_of(implementation)).double()


def comb_inputs(depth, implementation, seed=0):
    return [normal(depth + 1, 1, 2, seed=seed + i, implementation=implementation) for i in range(3)]


def attention(q, k, v, forest, implementation, **options):
    dtype = dtype_of(implementation)
    return ramify.attention(q.to(dtype), k.to(dtype), v.to(dtype), forest, implementation=implementation,
                            **options).double()


def comb_out(q, k, v, causal):
    """Tied attention of a comb with the self term, by its own two loops over [n, d] vectors.

    Inner node i holds leaf i and inner node i + 1; the last inner node's second child is a leaf.
    """
    n, scale = len(q), q.shape[1] ** -0.5
    counts = torch.arange(n, 0, -1, dtype=torch.float64)  # leaves below inner node i
    q_mean, k_mean, v_mean = (x.flip(0).cumsum(0).flip(0) / counts[:, None] for x in (q, k, v))
    self_score = scale * (q * k).sum(1)
    none = torch.full((n - 1,), -torch.inf, dtype=torch.float64)
    to_rest = none if causal else scale * (q[:-1] * k_mean[1:]).sum(1) + counts[1:].log()  # leaf i looks right
    to_leaf = scale * (q_mean[1:] * k[:-1]).sum(1)  # inner node i + 1 looks at leaf i
    leaf_t = torch.logaddexp(self_score[:-1], to_rest)
    energies = [self_score[-1]]  # of inner node i + 1, from the deepest up
    for i in range(n - 2, 0, -1):
        t = torch.logaddexp(energies[-1], to_leaf[i])
        energies.append((leaf_t[i] + counts[i + 1] * t) / counts[i])
    energies = torch.stack(energies[::-1])
    stay = torch.sigmoid(energies - to_leaf)  # of inner node i + 1
    out, gathered, mass = [], torch.zeros(v.shape[1], dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    leaf_out = torch.sigmoid(self_score[:-1] - to_rest)[:, None] * (v[:-1] - v_mean[1:]) + v_mean[1:]
    for i in range(n - 1):
        out.append(gathered + mass * leaf_out[i])
        gathered, mass = gathered + mass * (1 - stay[i]) * v[i], mass * stay[i]
    return torch.stack(out + [gathered + mass * v[-1]])


@both
@pytest.mark.slow
@pytest.mark.parametrize("causal", ["none", "block"])
def test_comb_of_depth_20000(causal, implementation):
    q, k, v = comb_inputs(DEPTH, implementation)
    out = attention(q, k, v, comb(DEPTH), implementation, include_self=True, causal=causal)
    expected = comb_out(q[:, 0], k[:, 0], v[:, 0], causal == "block")
    torch.testing.assert_close(out[:, 0], expected, rtol=0, atol=tolerance(implementation, 1e-9, 5e-5))


@both
@pytest.mark.slow
@pytest.mark.parametrize("causal", ["none", "block"])
def test_gradient_of_a_comb(causal, implementation):
    inputs = [x.requires_grad_() for x in comb_inputs(DEPTH_BACKWARD, implementation, seed=1)]
    weights = normal(DEPTH_BACKWARD + 1, 2, seed=7)
    out = attention(*inputs, comb(DEPTH_BACKWARD), implementation, include_self=True, causal=causal)
    found = torch.autograd.grad((out[:, 0] * weights).sum(), inputs)
    expected = torch.autograd.grad((comb_out(*(x[:, 0] for x in inputs), causal == "block") * weights).sum(), inputs)
    for gradient, wanted in zip(found, expected):
        torch.testing.assert_close(gradient, wanted, rtol=0,
                                   atol=tolerance(implementation, 1e-9, 2e-5) * wanted.abs().max().item())


@both
@pytest.mark.slow
def test_untied_comb(implementation):
    q, k, v = comb_inputs(DEPTH_SQUARED, implementation, seed=2)
    forest, near = comb(DEPTH_SQUARED), {"rtol": 0, "atol": tolerance(implementation, 1e-10, 1e-5)}
    # Left siblings of all ancestors are exactly the leaves before: causal softmax attention.
    out = attention(q, k, v, forest, implementation, tie="none", causal="prefix")
    heads_first = [x.transpose(0, 1) for x in (q, k, v)]
    expected = F.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(0, 1)
    torch.testing.assert_close(out, expected, **near)
    # Without the mask a leaf also sees the mean of all leaves after it.
    out = attention(q, k, v, forest, implementation, tie="none")
    for i in (0, 1, DEPTH_SQUARED // 2, DEPTH_SQUARED - 1):
        rest = DEPTH_SQUARED - i
        keys, values = (torch.cat([x[:i, 0], x[i + 1:, 0].mean(0, keepdim=True)]) for x in (k, v))
        scores = keys @ q[i, 0] * 2**-0.5
        scores[-1] += math.log(rest)
        torch.testing.assert_close(out[i, 0], scores.softmax(0) @ values, **near)


@both
@pytest.mark.slow
def test_prefix_comb(implementation):
    q, k, v = comb_inputs(DEPTH_SQUARED, implementation, seed=3)
    out = attention(q, k, v, comb(DEPTH_SQUARED), implementation, causal="prefix")
    for i in (1, 2, 500, DEPTH_SQUARED):
        # Cut after leaf i the comb's last inner node holds leaf i alone, which passes through.
        expected = comb_out(*(x[:i + 1, 0] for x in (q, k, v)), causal=True)[-1]
        torch.testing.assert_close(out[i, 0], expected, rtol=0, atol=tolerance(implementation, 1e-9, 1e-5))
    torch.testing.assert_close(out[0], v[0], rtol=0, atol=0)


# The reference keeps vectors for every node and is slow by design; it gets a shorter chain.
@pytest.mark.parametrize("nodes, implementation",
                         [(1_000_000, "composed"), (50_000, "reference"), (1_000_000, "fused")])
@pytest.mark.parametrize("mode", [{}, {"causal": "prefix"}, {"tie": "none"}], ids=str)
def test_chain_of_a_million_nodes(mode, nodes, implementation):
    forest = Forest.from_parents(torch.arange(-1, nodes - 1))
    assert (forest.num_nodes, forest.num_leaves, forest.depth) == (nodes, 1, nodes - 1)
    dtype = dtype_of(implementation)
    q, k, v = (normal(1, 2, 3, seed=seed).to(dtype).requires_grad_() for seed in range(3))
    positions = normal(1, 2, 2, seed=3).to(dtype)
    for include_self in ([True] if "causal" in mode else [False, True]):
        out = ramify.attention(q, k, v, forest, positions=positions, include_self=include_self,
                               implementation=implementation, **mode)
        torch.testing.assert_close(out, v if include_self else torch.zeros_like(v), rtol=0, atol=0)
        gradients = torch.autograd.grad(out.sum(), (q, k, v))
        assert [gradient.unique().tolist() for gradient in gradients] == [[0.0], [0.0], [float(include_self)]]


def peaks(*steps):
    """The most memory that a fresh process had by the end of each step, beyond what it had before, in megabytes.

    VmHWM and not ru_maxrss: a child starts with the latter of its parent.
    """
    measured = "".join(f"\n        {step}\n        print(peak() - before)" for step in steps)
    lines = fresh_process.run(f"""
        import torch, ramify
        from ramify import Forest
        forest = Forest.from_nested([["x"] * 4000] + [["x", "x"]] * 4000)
        q, k, v = (torch.randn(12000, 1, 8, requires_grad=True) for _ in range(3))
        def peak():
            with open("/proc/self/status") as status:
                return [int(line.split()[1]) for line in status if line.startswith("VmHWM")][0] / 1024
        ramify.attention(q[:2], k[:2], v[:2], Forest.from_nested([["x", "x"]])).sum().backward()
        before = peak(){measured}
    """).stdout.split()
    return [float(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{}, {"tie": "none"}, {"causal": "prefix"}, {"alpha": 1.5}], ids=str)
def test_a_wide_family_does_not_pad_narrow_ones(mode):
    scores = 4000 * 4000 * 4 / 2**20  # one float32 matrix of the wide family's scores: 61 MB
    forward, backward = peaks(f"out = ramify.attention(q, k, v, forest, implementation='composed', **{mode})",
                              "out.sum().backward()")
    # Softmax keeps some 3 such matrices at a time (scores, exponentials, masks), entmax 8, and 18 for its gradient.
    # Padding 4,000 families of 2 to 4,000 would take thousands.
    at_most = (12, 25) if "alpha" in mode else (5, 6)
    assert 0.5 * scores < forward < at_most[0] * scores
    assert backward < at_most[1] * scores


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{}, {"tie": "none"}, {"causal": "block"}], ids=str)
def test_fused_never_holds_the_scores_of_a_wide_family(mode):
    forward, backward = peaks(f"out = ramify.attention(q, k, v, forest, implementation='fused', **{mode})",
                              "out.sum().backward()")
    scores = 4000 * 4000 * 4 / 2**20
    assert forward < 0.25 * scores and backward < 0.5 * scores


@pytest.mark.slow
def test_peak_memory_is_measured():
    small, large = peaks("x = torch.ones(2**20)", "x = torch.ones(50 * 2**20)")
    assert small < 50 and 150 < large < 300


@both
@pytest.mark.parametrize("mode", [{}, {"tie": "none"}, {"causal": "block"}, {"causal": "prefix"}], ids=str)
def test_narrow_families_beside_a_wide_one_are_right(mode, implementation):
    forest = Forest.from_nested([["x"] * 300] + [["x", "x"]] * 40)
    q, k, v = (normal(380, 2, 3, seed=seed, implementation=implementation) for seed in range(3))
    near = {"rtol": 0, "atol": tolerance(implementation, 1e-12)}
    out = attention(q, k, v, forest, implementation, **mode)
    wide = ramify.attention(q[:300], k[:300], v[:300], Forest.from_nested([["x"] * 300]), **mode)
    torch.testing.assert_close(out[:300], wide, **near)
    pair = ramify.attention(q[-2:], k[-2:], v[-2:], Forest.from_nested([["x", "x"]]), **mode)
    torch.testing.assert_close(out[-2:], pair, **near)
