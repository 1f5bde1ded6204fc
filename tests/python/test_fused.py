"""The fused kernels inside torch: tracing, gradients that are asked for in odd ways, threads, half types, memory."""

import copy

import pytest
import torch
from torch._subclasses import FakeTensorMode

import ramify
from ramify import Forest, attention
from random_trees import MODES, applies, mode_name, random_case

FUSED_MODES = [mode for mode in MODES if applies("fused", mode)]
every_mode = pytest.mark.parametrize("mode", FUSED_MODES, ids=mode_name)
HALF_TYPES = [torch.bfloat16, torch.float16]

pytestmark = pytest.mark.skipif(torch.ops.ramify.cpu_target() == "none",
                                reason="no instruction set of this machine is among those compiled")

# Families in groves and in the crown, wide ones, chains, bare leaves, empty trees.
TREES = [["x"] * 70, [], "x", [["x", ["x"], ["x", "x"]]] * 2, [[["x"] * 9] * 9, "x"], [["x"], "x"]]


def normal(*size, seed, dtype=torch.float32):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def inputs(forest, *, heads=4, key_heads=2, dim=20, value_dim=16, dtype=torch.float32, requires_grad=True):
    """q, k, v and positions with one row a place in a family."""
    rows = int(forest.sibling_index.max()) + 1
    shapes = [(forest.num_leaves, heads, dim), (forest.num_leaves, key_heads, dim),
              (forest.num_leaves, key_heads, value_dim), (rows, heads, 3)]
    return [normal(*shape, seed=seed, dtype=dtype).requires_grad_(requires_grad) for seed, shape in enumerate(shapes)]


def fused(q, k, v, positions, forest, mode, **options):
    return ramify.attention(q, k, v, forest, positions=positions, implementation="fused", **mode, **options)


def loss_of(out):
    return (out.float() * normal(*out.shape, seed=9)).sum()


@pytest.fixture
def forest():
    return Forest.from_nested(TREES)


def op_arguments(case, planned, save):
    options = case.options
    plan = torch.ops.ramify.plan(case.forest._arrays, options["tie"], options["causal"]) if planned else []
    return (case.q, case.k, case.v, case.forest._arrays, plan, options.get("positions"),
            options.get("position_index"), None, None, options["include_self"], options["tie"], options["causal"],
            "fused", save)


@every_mode
@pytest.mark.parametrize("planned, save", [(True, True), (True, False), (False, True)])
@pytest.mark.slow
def test_opcheck(planned, save, mode):
    case = random_case(5, mode, positions=planned, num_trees=2, dtype=torch.float32)
    assert case.forest.num_leaves > 3
    for tensor in (case.q, case.k, case.v, case.positions):
        if tensor is not None:
            tensor.requires_grad_()
    torch.library.opcheck(torch.ops.ramify.attention.default, op_arguments(case, planned, save))


@every_mode
@pytest.mark.parametrize("dtype", [torch.float32, *HALF_TYPES], ids=str)
def test_tracing_knows_how_much_is_saved(dtype, mode, forest):
    for shape in ({}, {"dim": 1, "value_dim": 7, "key_heads": 4}, {"value_dim": 0}):
        q, k, v, positions = inputs(forest, dtype=dtype, requires_grad=False, **shape)
        plan = forest._plan(mode["tie"], mode["causal"])
        options = (positions, forest.sibling_index, None, None, mode["include_self"], mode["tie"], mode["causal"])
        for implementation in ("fused", "auto", "composed"):
            found = torch.ops.ramify.attention(q, k, v, forest._arrays, plan, *options, implementation, True)
            with FakeTensorMode(allow_non_fake_inputs=True) as fake:
                def faked(tensors):
                    return [fake.from_tensor(tensor) for tensor in tensors]

                traced = torch.ops.ramify.attention(*faked((q, k, v)), faked(forest._arrays), faked(plan),
                                                    *faked(options[:2]), *options[2:], implementation, True)
            assert [x.shape for x in traced] == [x.shape for x in found]
            assert [x.dtype for x in traced] == [x.dtype for x in found]
            assert (found[2].numel() > 0) == (implementation != "composed")


@every_mode
@pytest.mark.slow
def test_compiled_equals_eager(mode):
    torch._dynamo.reset()

    def function(q, k, v, positions, forest):
        return fused(2 * q, k, v, positions, forest, mode).relu()

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for trees in (TREES, TREES[3:]):
        forest = Forest.from_nested(trees).plan(mode["tie"], mode["causal"])
        tensors = inputs(forest)
        results = []
        for run in (function, compiled):
            out = run(*tensors, forest)
            results.append([out, *torch.autograd.grad(loss_of(out), tensors)])
        for eager, traced in zip(*results):
            assert torch.equal(eager, traced)


@every_mode
def test_modes_without_gradients_give_the_same_bits(mode, forest):
    tensors = inputs(forest)
    expected = fused(*tensors, forest, mode)
    assert expected.requires_grad
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            out = fused(*tensors, forest, mode)
        assert not out.requires_grad
        assert torch.equal(out, expected)


def test_autocast_lowers_the_inputs(forest):
    tensors = inputs(forest)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = fused(*tensors, forest, MODES[0])
    lowered = fused(*(x.bfloat16() for x in tensors), forest, MODES[0])
    assert out.dtype == torch.bfloat16 and torch.equal(out, lowered)
    for gradient in torch.autograd.grad(loss_of(out), tensors):
        assert gradient.dtype == torch.float32 and gradient.isfinite().all()


@every_mode
def test_backward_twice(mode, forest):
    tensors = inputs(forest)
    loss = loss_of(fused(*tensors, forest, mode))
    first = torch.autograd.grad(loss, tensors, retain_graph=True)
    second = torch.autograd.grad(loss, tensors)
    for a, b in zip(first, second):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, tensors)


def test_inputs_changed_before_backward_are_noticed(forest):
    tensors = inputs(forest)
    doubled = [2 * x for x in tensors]
    loss = loss_of(fused(*doubled, forest, MODES[0]))
    doubled[1].mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@every_mode
def test_saved_tensors_may_go_elsewhere_and_come_back(mode, forest):
    tensors = inputs(forest)
    expected = torch.autograd.grad(loss_of(fused(*tensors, forest, mode)), tensors)
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return copy.deepcopy(tensor.detach())

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = loss_of(fused(*tensors, forest, mode))
    for gradient, value in zip(torch.autograd.grad(loss, tensors), expected):
        assert torch.equal(gradient, value)
    assert packed


@every_mode
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing(use_reentrant, mode, forest):
    tensors = inputs(forest)

    def layer(*given):
        return fused(*given, forest, mode)

    expected = torch.autograd.grad(loss_of(layer(*tensors)), tensors)
    loss = loss_of(torch.utils.checkpoint.checkpoint(layer, *tensors, use_reentrant=use_reentrant))
    loss.backward()
    for tensor, value in zip(tensors, expected):
        assert torch.equal(tensor.grad, value)


@every_mode
@pytest.mark.parametrize("wanted", range(4))
def test_gradient_of_one_input_alone(wanted, mode, forest):
    tensors = inputs(forest)
    expected = torch.autograd.grad(loss_of(fused(*tensors, forest, mode)), tensors)[wanted]
    alone = [x.detach().requires_grad_(i == wanted) for i, x in enumerate(tensors)]
    (gradient,) = torch.autograd.grad(loss_of(fused(*alone, forest, mode)), alone[wanted])
    assert torch.equal(gradient, expected)


@every_mode
def test_gradient_of_energies_alone(mode, forest):
    q, k, _, positions = inputs(forest)
    results = {}
    for implementation, dtype in (("fused", torch.float32), ("composed", torch.float64)):
        given = [x.detach().to(dtype).requires_grad_() for x in (q, k, positions)]
        energy = ramify.energy(*given[:2], forest, positions=given[2], implementation=implementation, **mode)
        finite = energy[energy > -torch.inf]
        results[implementation] = [finite, *torch.autograd.grad(finite.sum(), given)]
    for found, expected in zip(*results.values()):
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@every_mode
@pytest.mark.parametrize("dtype", [torch.float32, *HALF_TYPES], ids=str)
def test_any_strides_give_the_same_bits(dtype, mode, forest):
    tensors = inputs(forest, dtype=dtype)
    out = fused(*tensors, forest, mode)
    expected = [out, *torch.autograd.grad(loss_of(out), tensors)]
    strided = {
        "last dimension first": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
        "heads first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
        "part of a larger array": lambda x: torch.cat([x, x, x], 2)[:, :, x.shape[2]:2 * x.shape[2]],
        "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    }
    for name, change in strided.items():
        given = [x.detach().clone().requires_grad_() for x in tensors]
        out = fused(*(change(x) for x in given), forest, mode)
        for found, wanted in zip([out, *torch.autograd.grad(loss_of(out), given)], expected):
            assert torch.equal(found, wanted), name


@every_mode
def test_expanded_inputs(mode, forest):
    q, k, v, positions = inputs(forest, key_heads=4)
    narrow = [x[:, :1].detach().clone().requires_grad_() for x in (q, k, v)]
    row = v[:1].detach().clone().requires_grad_()
    results = []
    for change in (lambda x: x, torch.Tensor.contiguous):
        given = [change(x.expand(-1, 4, -1)) for x in narrow]
        out = fused(*given, positions, forest, mode)
        results.append([out, *torch.autograd.grad(loss_of(out), narrow)])
        out = fused(q, k, change(row.expand_as(v)), positions, forest, mode)
        results[-1] += [out, *torch.autograd.grad(loss_of(out), row)]
    for found, expected in zip(*results):
        assert torch.equal(found, expected)
    # and a gradient that arrives expanded: that of a sum
    tensors = inputs(forest)
    gradients = [torch.autograd.grad(fused(*tensors, forest, mode), tensors, grad)
                 for grad in (torch.ones(()).expand(forest.num_leaves, 4, 16), torch.ones(forest.num_leaves, 4, 16))]
    for found, expected in zip(*gradients):
        assert torch.equal(found, expected)


@every_mode
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_threads_do_not_change_a_bit(dtype, mode):
    forests = [Forest.from_nested(TREES), Forest.windows([700, 3, 80], "8*"), Forest.windows([400], "400")]
    threads = torch.get_num_threads()
    try:
        for forest in forests:
            tensors = inputs(forest, dtype=dtype)
            results = []
            for count in (1, 2, 7):
                torch.set_num_threads(count)
                out = fused(*tensors, forest, mode)
                results.append([out, *torch.autograd.grad(loss_of(out), tensors)])
            for other in results[1:]:
                for a, b in zip(results[0], other):
                    assert torch.equal(a, b)
    finally:
        torch.set_num_threads(threads)


# A result is rounded once: half a unit of its dtype. Sums are float32's.
UNIT = {torch.bfloat16: 2**-8, torch.float16: 2**-11}


@every_mode
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_half_types_round_once(dtype, mode, forest):
    tensors = inputs(forest, dtype=dtype)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    out = fused(*tensors, forest, mode)
    expected = ramify.attention(*exact[:3], forest, positions=exact[3], implementation="composed", **mode)
    grad = normal(*out.shape, seed=9, dtype=dtype)
    found = [out, *torch.autograd.grad(out, tensors, grad)]
    wanted = [expected, *torch.autograd.grad(expected, exact, grad.double())]
    for a, b in zip(found, wanted):
        assert a.dtype == dtype
        bound = UNIT[dtype] * b.abs() + 2e-5 * b.abs().max()
        assert ((a.double() - b).abs() <= bound).all()


@every_mode
@pytest.mark.parametrize("leaves", [512, 4096])
def test_what_is_kept_for_backward_is_little(leaves, mode):
    forest = Forest.windows([leaves], "16*").plan(mode["tie"], mode["causal"])
    q, k, v = (normal(leaves, 12, 64, seed=seed).requires_grad_() for seed in range(3))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        out = ramify.attention(q, k, v, forest, implementation="fused", **mode)
    known = {x.data_ptr() for x in (q, k, v, out, *forest._arrays, *forest._plan(mode["tie"], mode["causal"]))}
    extra = sum(x.numel() * x.element_size() for x in kept if x.numel() > 0 and x.data_ptr() not in known)
    results = 7 * q.numel() * 4  # q, k, v, out and three gradients
    assert 0 < extra <= results / 4


@every_mode
def test_auto_takes_the_fused_kernels(mode, forest):
    for dtype in (torch.float32, *HALF_TYPES):
        tensors = inputs(forest, dtype=dtype)
        results = []
        for implementation in ("auto", "fused"):
            out = ramify.attention(*tensors[:3], forest, positions=tensors[3], implementation=implementation, **mode)
            results.append([out, *torch.autograd.grad(loss_of(out), tensors)])
        for a, b in zip(*results):
            assert torch.equal(a, b)


def test_a_walk_that_is_none(forest):
    q, k, v, _ = inputs(forest, requires_grad=False)
    plan, smaller = forest._plan("block", "none"), Forest.windows([10], "2*")._plan("block", "none")
    for walk in (smaller[4], plan[4][:-8], plan[4][:0], torch.full_like(plan[4], 2**40), plan[4].int(), plan[4][::2]):
        with pytest.raises(ValueError, match="plan"):
            torch.ops.ramify.attention(q, k, v, forest._arrays, [*plan[:4], walk, *plan[5:]], None, None, None, None,
                                       None, "block", "none", "fused")


def test_plans_of_large_forests():
    forest = Forest.windows([1 << 19], "16,16")
    assert sum(part.numel() for part in forest._plan("block", "none")[5:]) == 0


def test_nan_is_not_swallowed_by_a_first_child():
    forest = Forest.from_nested([[[["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]]]])
    q, k, v = torch.randn(3, 8, 1, 16).unbind(0)
    q[0] = float("nan")
    fused, composed = (attention(q, k, v, forest, causal="block", implementation=name) for name in ("fused", "composed"))
    assert torch.equal(fused.isnan(), composed.isnan())


def test_backward_wants_the_dtype_of_q():
    forest = Forest.windows([8], "4*")
    q = torch.randn(8, 1, 16)
    with pytest.raises(ValueError, match="grad_out is BFloat16 on cpu; q is Float on cpu"):
        torch.ops.ramify.attention_backward(q.bfloat16(), torch.zeros(1, 1), q, q, q, forest._arrays,
                                            forest._plan("block", "none"), None, None, None, None, None, "block",
                                            "none", "fused")


def test_results_written_past_the_cache():
    """Outputs above a few MiB take another way to memory."""
    forest = Forest.windows([10_000], "16*")
    q, k, v, grad = torch.randn(4, 10_000, 4, 64).unbind(0)

    def run(implementation):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        out = attention(*inputs, forest, implementation=implementation)
        return [out, *torch.autograd.grad(out, inputs, grad)]

    for fused, composed in zip(run("fused"), run("composed")):
        assert (fused - composed).abs().max() <= 1e-5 * composed.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"causal": "block"}, {"tie": "none", "causal": "block"}])
@pytest.mark.parametrize("trees", [(2_048, 2_048), (768, 768), (512, 4_096)])
def test_large_results_have_the_bits_of_small_ones(trees, dtype, options):
    """Large results are written past the caches. Trees together are large; alone their outputs, their gradients, or one
    of them are not."""
    heads, dim = 8, 64
    tensors = [normal(sum(trees), heads, dim, seed=seed, dtype=dtype) for seed in range(4)]

    def run(forest, q, k, v, grad):
        q, k, v = (tensor.clone().requires_grad_() for tensor in (q, k, v))
        out = attention(q, k, v, forest, implementation="fused", **options)
        return out.detach(), *torch.autograd.grad(out, (q, k, v), grad)

    together = run(Forest.windows(trees, "16*"), *tensors)
    parts_of_trees = zip(*(tensor.split(trees) for tensor in tensors))
    alone = [run(Forest.windows([leaves], "16*"), *parts) for leaves, parts in zip(trees, parts_of_trees)]
    for found, parts in zip(together, zip(*alone)):
        assert torch.equal(found, torch.cat(parts))
