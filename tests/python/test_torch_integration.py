"""The op inside torch: opcheck, compilation, autocast, gradient modes, meta tensors, devices, the dispatch log."""

import pytest
import torch

import fresh_process
import ramify
from ramify import Forest
from random_trees import MODES, mode_name, random_case

every_mode = pytest.mark.parametrize("mode", MODES, ids=mode_name)


def op_arguments(case, planned):
    """What ramify::attention takes, with or without a plan."""
    options = case.options
    alpha = options.get("alpha")
    plan = torch.ops.ramify.plan(case.forest._arrays, options["tie"], options["causal"]) if planned else []
    return (case.q, case.k, case.v, case.forest._arrays, plan, options.get("positions"),
            options.get("position_index"), alpha, None, options["include_self"], options["tie"], options["causal"],
            "auto")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@every_mode
@pytest.mark.parametrize("planned, more", [(False, "plain"), (True, "positions and alpha"), slow(True, "plain"),
                                           slow(False, "positions"), slow(False, "positions and alpha")])
@pytest.mark.slow
def test_opcheck(planned, more, mode):
    alpha = torch.tensor([1.5], dtype=torch.float64) if "alpha" in more else None
    case = random_case(4, mode, positions="positions" in more, alpha=alpha, num_trees=2)
    for tensor in (case.q, case.k, case.v, case.positions, alpha):
        if tensor is not None:
            tensor.requires_grad_()
    torch.library.opcheck(torch.ops.ramify.attention.default, op_arguments(case, planned))


def leaves_of(*tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def compare_compiled(compiled, function, case, forest):
    tensors = leaves_of(case.q, case.k, case.v, case.positions)
    expected = function(*tensors, forest)
    wanted = torch.autograd.grad(expected.square().sum(), tensors)
    tensors = leaves_of(*tensors)
    out = compiled(*tensors, forest)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    for gradient, value in zip(torch.autograd.grad(out.square().sum(), tensors), wanted):
        torch.testing.assert_close(gradient, value, rtol=0, atol=1e-12)


def fresh(case):
    return Forest.from_nested(case.trees)


@pytest.mark.parametrize("mode", [mode if i in (0, 3) else slow(mode) for i, mode in enumerate(MODES)], ids=mode_name)
@pytest.mark.slow
def test_compiled_equals_eager(mode):
    torch._dynamo.reset()

    def function(q, k, v, positions, forest):
        return ramify.attention(2 * q, k, v, forest, positions=positions, **mode).relu()

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    first, second = (random_case(seed, mode, key_heads=2) for seed in (1, 8))
    for case in (first, second):
        rows = int(case.forest.sibling_index.max()) + 1
        case.options["positions"] = torch.randn(rows, 2, 2, dtype=torch.float64,
                                                generator=torch.Generator().manual_seed(0))
    assert first.forest.num_leaves != second.forest.num_leaves
    unplanned = fresh(first)
    compare_compiled(compiled, function, first, unplanned.plan(mode["tie"], mode["causal"]))
    compare_compiled(compiled, function, second, fresh(second).plan(mode["tie"], mode["causal"]))
    out = compiled(first.q, first.k, first.v, first.positions, fresh(first))  # nothing prepared
    torch.testing.assert_close(out, function(first.q, first.k, first.v, first.positions, fresh(first)), rtol=0,
                               atol=1e-12)


@pytest.mark.slow
def test_compiled_with_the_default_backend():
    torch._dynamo.reset()
    forest = Forest.windows([40, 9], "4*").plan()
    q, k, v = (torch.randn(49, 2, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))

    def function(q, k, v):
        return ramify.attention(q.sin(), k, v, forest).cos().sum()

    inputs = leaves_of(q, k, v)
    expected = torch.autograd.grad(function(*inputs), inputs)
    compiled = torch.compile(function, fullgraph=True)
    for gradient, value in zip(torch.autograd.grad(compiled(*inputs), inputs), expected):
        torch.testing.assert_close(gradient, value)


def plain_inputs(dtype=torch.float32):
    return [torch.randn(20, 2, 8, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(3)]


def test_autocast_lowers_the_inputs_and_returns_full_gradients():
    forest, tensors = Forest.windows([20], "4*"), leaves_of(*plain_inputs())
    positions = torch.randn(4, 2, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = ramify.attention(*tensors, forest, positions=positions)
    assert out.dtype == torch.bfloat16
    expected = ramify.attention(*(x.bfloat16() for x in tensors), forest, positions=positions.bfloat16())
    assert torch.equal(out, expected)
    for tensor, gradient in zip(tensors, torch.autograd.grad(out.float().sum(), tensors)):
        assert gradient.dtype == tensor.dtype == torch.float32
        assert gradient.isfinite().all()


def test_autocast_off_changes_nothing():
    forest, tensors = Forest.windows([20], "4*"), plain_inputs()
    with torch.autocast("cpu", enabled=False):
        assert ramify.attention(*tensors, forest).dtype == torch.float32


def test_no_grad_and_inference_mode():
    forest, tensors = Forest.windows([20], "4*"), leaves_of(*plain_inputs())
    expected = ramify.attention(*tensors, forest)
    assert expected.requires_grad
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = ramify.attention(*tensors, forest)
        assert not out.requires_grad
        assert torch.equal(out, expected)


@every_mode
def test_a_forest_first_used_in_inference_mode_can_train(mode):
    tensors, positions = leaves_of(*plain_inputs()), torch.randn(4, 2, 3)
    with torch.inference_mode():
        forest = Forest.windows([20], "4*")
        ramify.attention(*(x.detach() for x in tensors), forest, positions=positions, **mode)
        again = forest.to("cpu")
    for used in (forest, again):
        out = ramify.attention(*tensors, used, positions=positions, **mode)
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), tensors))


def test_meta_tensors_give_shapes():
    forest = Forest.windows([20, 0], "4*").to("meta")
    q = torch.empty(20, 6, 8, device="meta", dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.empty(20, 2, dim, device="meta", dtype=torch.bfloat16) for dim in (8, 5))
    out = ramify.attention(q, k, v, forest)
    assert (out.shape, out.dtype, out.device.type) == ((20, 6, 5), torch.bfloat16, "meta")
    energy = ramify.energy(q, k, forest)
    assert (energy.shape, energy.dtype) == ((2, 6), torch.float32)
    out.sum().backward()
    assert q.grad.shape == q.shape


def test_an_exception_leaves_everything_usable():
    forest, tensors = Forest.windows([20], "4*"), leaves_of(*plain_inputs())
    expected = torch.autograd.grad(ramify.attention(*tensors, forest).sum(), tensors[0])
    for _ in range(3):
        with pytest.raises(ValueError):
            ramify.attention(*(x[:19] for x in tensors), forest)
        with pytest.raises(NotImplementedError):
            torch.autograd.grad(ramify.attention(*tensors, forest).sum(), tensors, create_graph=True)
    assert torch.is_grad_enabled()
    assert torch.equal(torch.autograd.grad(ramify.attention(*tensors, forest).sum(), tensors[0])[0], expected[0])


def test_activation_checkpointing():
    forest, tensors = Forest.windows([20], "4*"), leaves_of(*plain_inputs())

    def layer(q, k, v):
        return ramify.attention(q, k, v, forest, causal="prefix")

    expected = torch.autograd.grad(layer(*tensors).square().sum(), tensors)
    out = torch.utils.checkpoint.checkpoint(layer, *tensors, use_reentrant=False)
    for gradient, value in zip(torch.autograd.grad(out.square().sum(), tensors), expected):
        assert torch.equal(gradient, value)


@every_mode
@pytest.mark.parametrize("alpha", [None, 1.5])
def test_composed_on_a_device_equals_the_reference(device, alpha, mode):
    case = random_case(6, mode, alpha=alpha, key_heads=2)
    expected_inputs = leaves_of(case.q, case.k, case.v)
    expected = ramify.attention(*expected_inputs, case.forest, implementation="reference", **case.options)
    there = {name: value.to(device) if isinstance(value, torch.Tensor) else value
             for name, value in case.options.items()}
    inputs = leaves_of(*(x.to(device) for x in (case.q, case.k, case.v)))
    out = ramify.attention(*inputs, case.forest.to(device), implementation="composed", **there)
    assert out.device.type == device
    torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=1e-10)
    wanted = torch.autograd.grad(expected.square().sum(), expected_inputs)
    for gradient, value in zip(torch.autograd.grad(out.square().sum(), inputs), wanted):
        torch.testing.assert_close(gradient.cpu(), value, rtol=0, atol=1e-10)


PROGRAM = """
    import torch, ramify
    q, k, v = (torch.randn(6, 2, 4, requires_grad=True) for _ in range(3))
    for implementation in ("auto", "reference"):
        ramify.attention(q, k, v, ramify.Forest.windows([6], "2*"), implementation=implementation).sum().backward()
"""


@pytest.mark.slow
def test_dispatch_log():
    lines = fresh_process.run(PROGRAM, RAMIFY_LOG="dispatch").stderr.splitlines()
    lines = [line for line in lines if line.startswith("ramify:")]
    assert len(lines) == 4
    for line, passed, chosen in zip(lines, ["forward", "backward"] * 2, ["fused"] * 2 + ["reference"] * 2):
        assert f"attention {passed}, 6 leaves, 2 heads, Float on cpu" in line
        assert line.endswith(chosen)
    assert "ramify:" not in fresh_process.run(PROGRAM, RAMIFY_LOG="").stderr
