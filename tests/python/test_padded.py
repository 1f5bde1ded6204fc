"""attention_padded: the same attention for [batch, heads, rows, dim] callers."""

import pytest
import torch

import ramify
from ramify import Forest

LENGTHS = [7, 0, 10, 1]
ROWS = 10
OPTIONS = [{}, {"include_self": True}, {"tie": "none"}, {"causal": "prefix"}, {"alpha": 1.5, "scale": 0.3}]


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, heads, ROWS, dim, generator=generator, dtype=torch.float64)
            for heads, dim in ((4, 3), (2, 3), (2, 5))]


def one_by_one(q, k, v, lengths, branching, **options):
    out = q.new_zeros(*q.shape[:3], v.shape[3])
    for b, length in enumerate(lengths):
        packed = [x[b, :, :length].transpose(0, 1) for x in (q, k, v)]
        single = ramify.attention(*packed, Forest.windows([length], branching), **options)
        out[b, :, :length] = single.transpose(0, 1)
    return out


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_packed_calls_with_zero_padding(options):
    q, k, v = inputs()
    expected = one_by_one(q, k, v, LENGTHS, "3,2", **options)
    out = ramify.attention_padded(q, k, v, LENGTHS, "3,2", **options)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-13)
    for b, length in enumerate(LENGTHS):
        assert (out[b, :, length:] == 0).all()


def test_forms_of_lengths_and_hierarchy():
    q, k, v = inputs()
    expected = ramify.attention_padded(q, k, v, LENGTHS, "4*")
    for lengths in (tuple(LENGTHS), torch.tensor(LENGTHS), torch.tensor(LENGTHS, dtype=torch.int32)):
        assert torch.equal(ramify.attention_padded(q, k, v, lengths, "4*"), expected)
    forest = Forest.windows(LENGTHS, "4*")
    assert torch.equal(ramify.attention_padded(q, k, v, LENGTHS, forest), expected)
    whole = ramify.attention_padded(q, k, v, None, (4, 2))
    assert torch.equal(whole, ramify.attention_padded(q, k, v, [ROWS] * 4, "4,2"))
    # A forest need not be windows: here every sequence is two segments.
    segments = Forest.from_segments([[4, 3, 9, 1, 1], [2, 0, 2, 1]])
    out = ramify.attention_padded(q, k, v, LENGTHS, segments)
    packed = [torch.cat([x[b, :, :length].transpose(0, 1) for b, length in enumerate(LENGTHS)]) for x in (q, k, v)]
    direct = ramify.attention(*packed, segments)
    torch.testing.assert_close(out[2, :, :10].transpose(0, 1), direct[7:17], rtol=0, atol=1e-14)


def test_no_sequences_and_no_rows():
    for batch, rows in ((0, 5), (3, 0)):
        q, k, v = (torch.zeros(batch, 2, rows, 4) for _ in range(3))
        assert ramify.attention_padded(q, k, v, None, "2*").shape == (batch, 2, rows, 4)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_padding_is_not_looked_at(options):
    clean = [x.requires_grad_() for x in inputs(1)]
    spoiled = [x.detach().clone() for x in clean]
    for x in spoiled:
        for b, length in enumerate(LENGTHS):
            x[b, :, length:] = torch.nan
        x.requires_grad_()
    weights = torch.randn(4, 4, ROWS, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    results = [ramify.attention_padded(*tensors, LENGTHS, "2*", **options) for tensors in (clean, spoiled)]
    assert torch.equal(*results)
    gradients = [torch.autograd.grad((out * weights).sum(), tensors)
                 for out, tensors in zip(results, (clean, spoiled))]
    for gradient, same in zip(*gradients):
        assert torch.equal(gradient, same)
        for b, length in enumerate(LENGTHS):
            assert (same[b, :, length:] == 0).all()
    # Nor does a gradient that arrives in the padding go anywhere.
    padding = torch.ones(4, 4, ROWS, 5, dtype=torch.float64)
    for b, length in enumerate(LENGTHS):
        padding[b, :, :length] = 0
    out = ramify.attention_padded(*clean, LENGTHS, "2*", **options)
    assert all((gradient == 0).all() for gradient in torch.autograd.grad((out * padding).sum(), clean))
