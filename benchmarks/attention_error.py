"""Measures how far the fused CPU kernels are from float64, beside the composed implementation in float32.

    PYTHONPATH=python .venv/bin/python benchmarks/attention_error.py
    PYTHONPATH=python .venv/bin/python benchmarks/attention_error.py --leaves 1024 --hierarchy 2,4,8,16 --tie none

A line an input and result: the largest error of the fused kernels and of composed, each by the largest number of the result in
float64, and their ratio; the largest of --seeds draws. Heads of 64, two of them. Where a result vanishes there is no ratio.

Inputs: random (N(0, 1)), biased (one vector for all leaves added), rotary (pairs of channels turned by the leaf's place), opposed
by 3 and by 10 (so much added to all channels of even leaves and subtracted from those of odd ones: means nearly cancel).
"""

import argparse

import torch

import ramify

VANISHING = 1e-12  # gradients of which no number is larger: every weight is 0 or 1
RESULTS = ("out", "gradient of q", "gradient of k", "gradient of v")


def turned(x):
    """Rotary positions."""
    leaves, _, dim = x.shape
    angles = torch.arange(leaves, dtype=x.dtype)[:, None] * 10_000 ** (-torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def opposed(x, size):
    signs = 1 - 2 * (torch.arange(len(x), dtype=x.dtype) % 2)
    return x + size * signs[:, None, None]


INPUTS = {
    "random": lambda x: x,
    "biased": lambda x: x + torch.linspace(-2, 2, x.shape[-1], dtype=x.dtype),
    "rotary": turned,
    "opposed by 3": lambda x: opposed(x, 3),
    "opposed by 10": lambda x: opposed(x, 10),
}


def results_of(inputs, grad_out, forest, dtype, implementation, options):
    q, k, v = (x.to(dtype).requires_grad_() for x in inputs)
    out = ramify.attention(q, k, v, forest, implementation=implementation, **options)
    return [x.double() for x in (out, *torch.autograd.grad(out, (q, k, v), grad_out.to(dtype)))]


def errors_of(kind, seed, forest, options):
    """[result][fused, composed]"""
    torch.manual_seed(seed)
    # float32 numbers, so that rounding the inputs is no part of the error
    q, k, v, grad_out = torch.randn(4, forest.num_leaves, 2, 64, dtype=torch.double).unbind()
    inputs = [x.float().double() for x in (INPUTS[kind](q), INPUTS[kind](k), v)]
    grad_out = grad_out.float().double()
    exact = results_of(inputs, grad_out, forest, torch.double, "composed", options)
    found = [results_of(inputs, grad_out, forest, torch.float, name, options) for name in ("fused", "composed")]
    return [[((x - e).abs().max() / e.abs().max()).item() if e.abs().max() > VANISHING else 0.0 for x in pair]
            for e, *pair in zip(exact, *found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, default=512)
    parser.add_argument("--hierarchy", nargs="+", default=["16*", "2,4,8,16", "2*"], metavar="WINDOWS")
    parser.add_argument("--tie", choices=("block", "none"), default="block")
    parser.add_argument("--causal", choices=("none", "block", "prefix"), default="none")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.leaves < 2 or arguments.seeds < 1:
        parser.error("expected at least 2 leaves and 1 seed")
    options = {"tie": arguments.tie, "causal": arguments.causal, "include_self": arguments.causal != "none"}
    print(f"{'windows':10} {'inputs':14} {'result':14} {'fused':>9} {'composed':>9} {'ratio':>6}")
    for branching in arguments.hierarchy:
        forest = ramify.Forest.windows([arguments.leaves], branching)
        for kind in INPUTS:
            draws = [errors_of(kind, seed, forest, options) for seed in range(arguments.seeds)]
            for i, result in enumerate(RESULTS):
                fused, composed = (max(draw[i][j] for draw in draws) for j in range(2))
                ratio = f"{fused / composed:6.2f}" if composed > 0 else f"{'-':>6}"
                print(f"{branching:10} {kind:14} {result:14} {fused:9.1e} {composed:9.1e} {ratio}")


if __name__ == "__main__":
    main()
