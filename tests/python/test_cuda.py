"""The fused kernels on a CUDA device: errors against float64 beside those of the composed implementation, the same bits
every time, graphs, sizes beyond 2**31."""

import pytest
import torch

import ramify
from ramify import Forest
from random_trees import MODES, mode_name, random_case
from test_golden import GOLDEN, forest_and_positions, options_of

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
if not torch.ops.ramify.has_cuda_kernels():
    pytest.skip("built without CUDA kernels", allow_module_level=True)

every_mode = pytest.mark.parametrize("mode", MODES, ids=mode_name)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]

FORESTS = {
    "sixteens": lambda: Forest.windows([4096, 300, 64], "16*"),
    "whole trees": lambda: Forest.windows([512] * 8, "16*"),
    "small trees": lambda: Forest.windows([256, 48, 3], "16*"),
    "one small tree": lambda: Forest.windows([256], "16*"),  # its tables begin between multiples of 16 bytes
    "mixed windows": lambda: Forest.windows([1000, 90], "2,4,8,16"),
    "flat": lambda: Forest.windows([700, 20], "700"),
    "ragged": lambda: Forest.from_nested([["x"] * 70, [], "x", [["x", ["x"], ["x", "x"]]] * 2, [[["x"] * 9] * 9, "x"],
                                          [["x"], "x"], [["x"] * 19, ["x"] * 40, [["x"] * 5, "x"], "x"]]),
}
every_forest = pytest.mark.parametrize("name", FORESTS)


def normal(*size, seed, dtype=torch.float32):
    return torch.randn(size, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)


def inputs(forest, dtype, *, heads=4, key_heads=4, dim=64, value_dim=64, positions=False):
    rows = int(forest.sibling_index.max()) + 1
    shapes = [(forest.num_leaves, heads, dim), (forest.num_leaves, key_heads, dim),
              (forest.num_leaves, key_heads, value_dim)] + [(rows, heads, 3)] * positions
    return [normal(*shape, seed=seed, dtype=dtype).requires_grad_() for seed, shape in enumerate(shapes)]


def run(tensors, forest, implementation, **options):
    """The output, energies and gradients."""
    q, k, v, *positions = tensors
    if positions:
        options["positions"] = positions[0]
    out = ramify.attention(q, k, v, forest, implementation=implementation, **options)
    grad = normal(*out.shape, seed=9).to(out.dtype)
    return [out, *torch.autograd.grad(out, tensors, grad)]


def error(found, exact):
    assert found.isfinite().all()
    return ((found.double() - exact).norm() / exact.norm().clamp_min(1e-30)).item()


def check_errors(forest, dtype, mode, **shape):
    tensors = inputs(forest, dtype, **shape)
    exact = run([x.detach().double().requires_grad_() for x in tensors], forest, "composed", **mode)
    composed, fused = (run(tensors, forest, name, **mode) for name in ("composed", "fused"))
    for i, (a, b, x) in enumerate(zip(fused, composed, exact)):
        assert a.dtype == dtype
        limit = (2 if i == 0 else 3) * error(b, x) + 1e-7
        assert error(a, x) <= limit, f"result {i}: {error(a, x):.3g}, composed {error(b, x):.3g}"


@every_mode
@every_forest
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_errors_are_near_those_of_composed(dtype, name, mode):
    check_errors(FORESTS[name]().to("cuda"), dtype, mode)


@every_mode
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [{"heads": 6, "key_heads": 2}, {"dim": 20, "value_dim": 7}, {"positions": True},
                                   {"dim": 128, "value_dim": 256}], ids=str)
def test_other_shapes(shape, dtype, mode):
    check_errors(FORESTS["ragged"]().to("cuda"), dtype, mode, **shape)


@pytest.mark.parametrize("case", GOLDEN, ids=range(len(GOLDEN)))
def test_golden(case):
    forest, positions = forest_and_positions(case["tree"])
    for mode in case["modes"]:
        options = options_of(mode)
        if options.pop("alpha", 1.0) != 1.0:
            continue
        given = {name: torch.tensor(case[name], device="cuda").unsqueeze(1).requires_grad_() for name in "qkv"}
        out = ramify.attention(**given, forest=forest.to("cuda"), positions=positions.float().unsqueeze(1).cuda(),
                               position_index=torch.arange(forest.num_nodes, device="cuda"), implementation="fused",
                               **options)
        found = {"out": out}
        if "grad_q" in mode:
            out.backward(torch.tensor(case["grad_out"], device="cuda").unsqueeze(1))
            found |= {f"grad_{name}": x.grad for name, x in given.items()}
        for name, value in found.items():
            expected = torch.tensor(mode[name], dtype=torch.float64, device="cuda").unsqueeze(1)
            largest = max(torch.tensor(mode[other]).abs().max().item() for other in found)
            torch.testing.assert_close(value.double(), expected, rtol=0, atol=3e-5 * largest)


@every_mode
@pytest.mark.parametrize("seed", range(6))
def test_random_trees(seed, mode):
    case = random_case(seed, mode, positions=seed % 2 == 1, num_trees=4, dtype=torch.float32)
    forest = case.forest.to("cuda")
    options = {name: value.cuda() if torch.is_tensor(value) else value for name, value in case.options.items()}
    q, k, v = (x.cuda().requires_grad_() for x in (case.q, case.k, case.v))
    results = []
    for implementation in ("fused", "composed"):
        out = ramify.attention(q, k, v, forest, implementation=implementation, **options)
        energy = ramify.energy(q, k, forest, implementation=implementation, **options)
        finite = energy[energy > -torch.inf]
        results.append([out, energy, *torch.autograd.grad(out.square().sum() + finite.sum(), (q, k, v))])
    for found, expected in zip(*results):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@every_mode
@pytest.mark.parametrize("name", ["sixteens", "ragged"])
def test_same_bits_every_time(name, mode):
    forest = FORESTS[name]().to("cuda")
    tensors = inputs(forest, torch.bfloat16)
    first = run(tensors, forest, "fused", **mode)
    for _ in range(50):
        for a, b in zip(run(tensors, forest, "fused", **mode), first):
            assert torch.equal(a, b)


@every_mode
def test_graphs_replay(mode):
    forest = FORESTS["sixteens"]().to("cuda")
    tensors = inputs(forest, torch.bfloat16)
    expected = run(tensors, forest, "fused", **mode)
    grad = normal(*expected[0].shape, seed=9).to(torch.bfloat16)
    # leaves of autograd remember the stream that they were first used on
    fresh = [tensor.detach().clone().requires_grad_() for tensor in tensors]

    def step():
        out = ramify.attention(*fresh, forest, implementation="fused", **mode)
        return [out, *torch.autograd.grad(out, fresh, grad)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    for a, b in zip(captured, expected):
        assert torch.equal(a, b)


@every_mode
def test_auto_takes_the_kernels(mode):
    forest = FORESTS["ragged"]().to("cuda")
    tensors = inputs(forest, torch.bfloat16)
    for a, b in zip(run(tensors, forest, "auto", **mode), run(tensors, forest, "fused", **mode)):
        assert torch.equal(a, b)


def test_auto_takes_composed_where_there_is_no_kernel():
    forest = Forest.windows([100], "8*").to("cuda")
    tensors = inputs(forest, torch.float32)
    assert run(tensors, forest, "auto", window=8, tie="none")[0].isfinite().all()
    with pytest.raises(ValueError, match="CUDA kernels have no"):
        run(tensors, forest, "fused", window=8, tie="none")


@every_mode
def test_a_tree_is_the_same_wherever_it_lies(mode):
    """More than 2**31 elements: the last tree of many gives the bits that it gives alone."""
    leaves, heads, dim = 4096, 8, 64
    count = 2**31 // (leaves * heads * dim) + 1
    if torch.cuda.mem_get_info()[0] < 12 * 2 * count * leaves * heads * dim:
        pytest.skip("needs 12 tensors of 4 GiB")
    alone, many = (Forest.windows([leaves] * n, "16*").to("cuda") for n in (1, count))
    last = inputs(alone, torch.bfloat16, heads=heads, key_heads=heads)
    tensors = [torch.zeros(count * leaves, heads, dim, dtype=torch.bfloat16, device="cuda") for _ in last]
    for x, y in zip(tensors, last):
        x[-leaves:] = y.detach()
        x.requires_grad_()
    expected = run(last, alone, "fused", **mode)
    out = ramify.attention(*tensors, many, implementation="fused", **mode)
    grad = torch.zeros_like(out)
    grad[-leaves:] = normal(leaves, heads, dim, seed=9).bfloat16()
    for a, b in zip([out, *torch.autograd.grad(out, tensors, grad)], expected):
        assert torch.equal(a[-leaves:], b)


@every_mode
@pytest.mark.parametrize("shape", [{}, {"key_heads": 2}, {"dim": 20, "value_dim": 7}, {"positions": True}], ids=str)
def test_tracing_knows_how_much_is_saved(shape, mode):
    from torch._subclasses import FakeTensorMode
    forest = FORESTS["ragged"]().to("cuda")
    for dtype in DTYPES:
        q, k, v, *positions = (x.detach() for x in inputs(forest, dtype, **shape))
        positions = positions[0] if positions else None
        index = forest.sibling_index if positions is not None else None
        plan = forest._plan(mode["tie"], mode["causal"])
        rest = (None, None, mode["include_self"], mode["tie"], mode["causal"], "fused", True)
        found = torch.ops.ramify.attention(q, k, v, forest._arrays, plan, positions, index, *rest)
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            def faked(x):
                return None if x is None else fake.from_tensor(x)

            traced = torch.ops.ramify.attention(*map(faked, (q, k, v)), [faked(x) for x in forest._arrays],
                                                [faked(x) for x in plan], faked(positions), faked(index), *rest)
        assert [x.shape for x in traced] == [x.shape for x in found]
