"""Times attention on a CUDA device against its floor and against softmax attention, and says which bars hold.

The floor is the time in which q, k, v and the output could be copied once each, at the bandwidth of a copy of a gigabyte
measured in the same run. Times are medians of CUDA events; inputs rotate among sets that no cache holds together;
gradients are those of torch.autograd.grad. The device waits until calls are queued, so that its own time is measured
even where the host is slower; what the host takes for a call is given beside it.

    PYTHONPATH=python python benchmarks/cuda_attention.py --json cuda.json
"""

import argparse
import json
import sys
import time
from statistics import median

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import ramify
from attention_bars import segments_of, synthetic_documents

HEADS, DIM = 12, 64
WAIT_CYCLES = 5 * 10**7  # 25 ms: 50 calls with backward are queued in that time
# batch, tokens: forward at most × the floor; softmax attention / ours at least, forward and with backward
BARS = {(64, 512): (2.0, 1.6, 1.9), (8, 4096): (2.5, 7, 9), (2, 16384): (2.7, 25, 33), (1, 65536): (2.7, 110, 150)}


def time_ms(calls, repeats, warmups=3):
    """The median of `repeats` calls, taken from `calls` in turn: of the device, and of the host."""
    for i in range(warmups):
        calls[i % len(calls)]()
    torch.cuda.synchronize()
    torch.cuda._sleep(WAIT_CYCLES)
    times, host = [], []
    for i in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        host_begin = time.perf_counter()
        begin.record()
        calls[i % len(calls)]()
        end.record()
        host.append(1e3 * (time.perf_counter() - host_begin))
        times.append((begin, end))
    torch.cuda.synchronize()
    return median(begin.elapsed_time(end) for begin, end in times), median(host)


def copy_bytes_per_ms():
    source, target = torch.randn(2, 2**28, device="cuda").unbind()  # a gigabyte each
    return 2 * source.numel() * 4 / time_ms([lambda: target.copy_(source)], 20)[0]


def tensors(shape, sets, backward):
    return [[torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_(backward and i < 3)
             for i in range(4)] for _ in range(sets)]


def sets_for(shape):
    elements = 1
    for size in shape:
        elements *= size
    return max(2, min(8, 2**29 // (2 * elements)))


def passes(function, shape, repeats):
    """Milliseconds forward and forward + backward, of the device and of the host."""
    result = []
    for backward in (False, True):
        def call(given):
            out = function(*given[:3])
            return torch.autograd.grad(out, given[:3], given[3]) if backward else out

        calls = [lambda given=given: call(given) for given in tensors(shape, sets_for(shape), backward)]
        with torch.set_grad_enabled(backward):
            result.append(time_ms(calls, repeats))
        del calls
        torch.cuda.empty_cache()
    return result


def ours(forest, repeats=50, **options):
    forest = forest.to("cuda")
    return passes(lambda q, k, v: ramify.attention(q, k, v, forest, **options), (forest.num_leaves, HEADS, DIM), repeats)


def softmax_attention(batch, tokens):
    def function(q, k, v):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v)

    return passes(function, (batch, HEADS, tokens, DIM), max(5, 2**21 // (batch * tokens * tokens // 4096 + 1)) // 10 + 5)


def general_kernels():
    """Composed and fused on ragged documents and on trees that are one family of leaves, in shapes and dtypes that
    groves do not take, too."""
    documents = ramify.Forest.from_segments(segments_of(synthetic_documents()[0]))
    print("dtype, heads x dim, positions: composed, fused; forward / with backward, ms")
    for name, forest, repeats in (("documents", documents, 10),
                                  ("64 families", ramify.Forest.windows([400] * 64, []), 3),
                                  ("8 families", ramify.Forest.windows([4096] * 8, []), 3)):
        print(f"{name}: {forest}")
        compare_implementations(forest.to("cuda"), repeats)


def compare_implementations(forest, repeats):
    places = int(forest.sibling_index.max()) + 1
    for dtype in (torch.float32, torch.bfloat16):
        for heads, dim, position_dim in ((4, 32, 8), (3, 128, 0), (3, 128, 128), (12, 64, 0), (12, 64, 16)):
            q, k, v, grad = (torch.randn(forest.num_leaves, heads, dim, device="cuda", dtype=dtype) for _ in range(4))
            inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
            options = {}
            if position_dim:
                positions = torch.randn(places, heads, position_dim, device="cuda", dtype=dtype, requires_grad=True)
                options = {"positions": positions, "position_index": forest.sibling_index}
            times = []
            for implementation in ("composed", "fused"):
                def forward():
                    return ramify.attention(*inputs, forest, implementation=implementation, **options)

                with torch.no_grad():
                    times.append(time_ms([forward], repeats)[0])
                times.append(time_ms([lambda: torch.autograd.grad(forward(), inputs, grad)], repeats)[0])
            print(f"{str(dtype)[6:]}, {heads} x {dim}, {position_dim}: "
                  "{:.2f} / {:.2f}, {:.2f} / {:.2f}".format(*times), flush=True)


def small_trees():
    """Trees that forward does in one launch."""
    print("trees x leaves, families: forward / with backward, microseconds")
    for trees, leaves, families in ((64, 512, "16*"), (64, 500, "16*"), (64, 512, "2,4,8,16"), (128, 256, "16*"),
                                    (700, 47, "16*"), (8, 512, "16*"), (1, 512, "16*")):
        (forward, _), (both, _) = ours(ramify.Forest.windows([leaves] * trees, families))
        print(f"{trees} x {leaves}, {families}: {1e3 * forward:.1f} / {1e3 * both:.1f}", flush=True)


class Report:
    def __init__(self):
        self.rows = []

    def add(self, name, sense, bar, measured, note=""):
        holds = measured <= bar if sense == "at most" else measured >= bar
        self.rows.append({"name": name, "sense": sense, "bar": bar, "measured": measured, "holds": holds, "note": note})
        print(f"{'pass' if holds else 'FAIL'}  {name:56} {sense} {bar:<6g} {measured:8.3g}  {note}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--ours-only", action="store_true", help="without softmax attention")
    parser.add_argument("--general", action="store_true",
                        help="only composed and fused, in many shapes, on documents and wide families")
    parser.add_argument("--small", action="store_true", help="only small trees, in several shapes")
    arguments = parser.parse_args()
    if arguments.general:
        return general_kernels()
    if arguments.small:
        return small_trees()
    bandwidth = copy_bytes_per_ms()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth / 1e9:.2f} TB/s\n")
    report, times = Report(), {}
    for (batch, tokens), (floors, forward_bar, both_bar) in BARS.items():
        name = f"{batch} x {tokens}"
        floor = 4 * batch * tokens * HEADS * DIM * 2 / bandwidth
        (forward, host_forward), (both, host_both) = ours(ramify.Forest.windows([tokens] * batch, "16*"))
        times[name] = {"floor": floor, "forward": forward, "both": both, "host_forward": host_forward,
                       "host_both": host_both}
        report.add(f"{name}: forward / floor", "at most", floors, forward / floor,
                   f"{forward:.4f} ms, host {host_forward:.3f} ms")
        if arguments.ours_only:
            continue
        (peer_forward, _), (peer_both, _) = softmax_attention(batch, tokens)
        times[name] |= {"softmax_forward": peer_forward, "softmax_both": peer_both}
        report.add(f"{name}: cuDNN / ours, forward", "at least", forward_bar, peer_forward / forward)
        report.add(f"{name}: cuDNN / ours, forward + backward", "at least", both_bar, peer_both / both,
                   f"{both:.4f} ms, host {host_both:.3f} ms")
    tokens = 65536
    long = ours(ramify.Forest.windows([2**20], "16*"), repeats=10)
    paper = ours(ramify.Forest.windows([tokens], "2,4,8,16"))
    documents = ramify.Forest.from_segments(segments_of([d for _ in range(8) for d in synthetic_documents()[0]]))
    ragged = ours(documents)
    uniform = times[f"1 x {tokens}"]
    for i, kind in enumerate(("forward", "both")):
        report.add(f"a leaf at 1,048,576 / at 65,536, {kind}", "at most", 1.3, long[i][0] / 16 / uniform[kind],
                   f"{long[i][0]:.3f} ms")
        report.add(f"(2,4,8,16) / 16, {kind}", "at most", 1.5, paper[i][0] / uniform[kind], f"{paper[i][0]:.3f} ms")
        report.add(f"a leaf of ragged documents / of 16, {kind}", "at most", 2,
                   ragged[i][0] / documents.num_leaves * tokens / uniform[kind],
                   f"{ragged[i][0]:.3f} ms, {documents.num_leaves} leaves")
    if arguments.json:
        machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "ramify": ramify.__version__,
                   "copy_bytes_per_second": 1e3 * bandwidth}
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "times_ms": times, "bars": report.rows}, file, indent=2)
    return 0 if all(row["holds"] for row in report.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
