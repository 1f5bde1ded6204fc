"""Draws docs/images/benchmarks.svg: time against tokens, both in powers, of attention and its limits.

    ramify bench attention --tokens 512,1024,2048,4096,8192,16384 --json > forward.json
    ramify bench attention --tokens 512,1024,2048,4096,8192,16384 --backward --json > backward.json
    python3 docs/images/make_benchmarks.py forward.json backward.json [--output FILE]

One panel a file. Every point is a number in it. A file of benchmarks/cuda_attention.py gives both panels, for 32,768 leaves
in all:

    python3 docs/images/make_benchmarks.py benchmarks/results/cuda-h200.json --output docs/images/benchmarks-cuda.svg
"""

import argparse
import json
import math
import pathlib
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]

PANEL, HEIGHT, TOP, BOTTOM, LEFT, RIGHT = 420, 400, 84, 62, 58, 32
SERIES = (("sdpa", "softmax attention (torch)"), ("composed", "composed"), ("ours", "ramify"),
          ("copy", "copy floor"), ("flop", "FLOP floor"))

STYLE = """
  .card { fill: #fcfcfa; stroke: #d8d8d2 }
  .title { fill: #22262b; font: 600 15px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .note { fill: #5d646c; font: 12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .grid { fill: none; stroke: #e6e6e0 }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round }
  .sdpa { stroke: #8a9199 } .composed { stroke: #2563c9 } .ours { stroke: #e8772e }
  .copy, .flop { stroke: #5d646c; stroke-width: 1.5 }
  .copy { stroke-dasharray: 6 4 } .flop { stroke-dasharray: 1.5 4 }
  .dot { stroke: none } .dot.sdpa { fill: #8a9199 } .dot.composed { fill: #2563c9 } .dot.ours { fill: #e8772e }
  @media (prefers-color-scheme: dark) {
    .card { fill: #171a1f; stroke: #363b43 }
    .title { fill: #e8eaed }
    .note { fill: #a3abb5 }
    .grid { stroke: #2b3038 }
    .composed { stroke: #6ea8ff } .dot.composed { fill: #6ea8ff }
    .copy, .flop { stroke: #a3abb5 }
  }
"""


def runs_of(path):
    """What a file has to show, a run a panel."""
    data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if "times_ms" not in data:
        return [data]
    runs = []
    for kind in ("forward", "both"):
        rows = []
        for name, times in data["times_ms"].items():
            batch, tokens = map(int, name.split(" x "))
            scale = 2**15 / (batch * tokens)
            peer = {"sdpa": {"median_ms": times[f"softmax_{kind}"] * scale}} if f"softmax_{kind}" in times else {}
            rows.append({"tokens": tokens, "times": {"ours": {"median_ms": times[kind] * scale}, **peer},
                         "copy_floor_ms": times["floor"] * scale, "flop_floor_ms": 0})
        runs.append({"rows": rows, "options": {"backward": kind == "both"},
                     "what": f"Windows 16*, 12 heads of 64, bfloat16, 32,768 leaves in all; {data['machine']['device']}, "
                             f"torch {data['machine']['torch']}"})
    return runs


def points_of(run, series):
    """(tokens, milliseconds) of one series; none if it was left out."""
    for row in run["rows"]:
        if series in ("copy", "flop"):
            time = row[f"{series}_floor_ms"]
        else:
            time = row["times"].get(series, {}).get("median_ms", 0)
        if time > 0:
            yield row["tokens"], time


def time_label(power):
    unit, scale = ("s", 3) if power >= 3 else ("ms", 0) if power >= 0 else ("µs", -3)
    return f"{10 ** (power - scale):g} {unit}"


class Axes:
    """Where tokens and milliseconds are in a panel. All panels have the same, so that they can be compared."""

    def __init__(self, runs):
        points = [point for run in runs for series, _ in SERIES for point in points_of(run, series)]
        tokens, times = [t for t, _ in points], [ms for _, ms in points]
        self.tokens = sorted({row["tokens"] for run in runs for row in run["rows"]})
        self.first, self.last = math.log2(min(tokens)), math.log2(max(tokens))
        self.low, self.high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))

    def x(self, tokens):
        share = (math.log2(tokens) - self.first) / (self.last - self.first or 1)
        return LEFT + share * (PANEL - LEFT - RIGHT)

    def y(self, milliseconds):
        share = (math.log10(milliseconds) - self.low) / (self.high - self.low or 1)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def grid(self):
        for power in range(self.low, self.high + 1):
            y = self.y(10.0 ** power)
            yield f'<path class="grid" d="M{LEFT} {y:.1f} H{PANEL - RIGHT}"/>'
            yield f'<text class="note" x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{time_label(power)}</text>'
        for tokens in self.tokens:
            x = self.x(tokens)
            yield f'<path class="grid" d="M{x:.1f} {TOP} V{HEIGHT - BOTTOM}"/>'
            yield (f'<text class="note" x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">'
                   f'{tokens:,}</text>')


def panel(run, axes, offset):
    title = "Forward and backward" if run["options"]["backward"] else "Forward"
    yield f'<g transform="translate({offset} 0)">'
    yield f'<text class="title" x="{LEFT}" y="{TOP - 12}">{title}</text>'
    yield from axes.grid()
    for series, _ in SERIES:
        places = [(axes.x(tokens), axes.y(time)) for tokens, time in points_of(run, series)]
        if places:
            path = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            yield f'<path class="line {series}" d="M{path}"/>'
        if series not in ("copy", "flop"):
            yield from (f'<circle class="dot {series}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places)
    yield "</g>"


def legend(runs):
    x = LEFT
    for series, name in SERIES:
        if not any(True for run in runs for _ in points_of(run, series)):
            continue
        yield f'<path class="line {series}" d="M{x} {HEIGHT - 19} h22"/>'
        yield f'<text class="note" x="{x + 28}" y="{HEIGHT - 15}">{name}</text>'
        x += 52 + 6.6 * len(name)


def draw(runs):
    axes, width = Axes(runs), max(PANEL * len(runs), 2 * PANEL)
    what = runs[0].get("what")
    if what is None:
        options, machine = runs[0]["options"], runs[0]["machine"]
        what = (f"Windows {options['hierarchy']}, {options['heads']} heads of {options['dim']}, {options['dtype']}; "
                f"{machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
        'role="img" aria-label="Time of attention against the number of tokens, and the least it could be">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{HEIGHT - 1}" rx="10"/>',
        '<text class="title" x="20" y="29">Time against tokens</text>',
        f'<text class="note" x="20" y="48">{escape(what)}</text>',
        *(line for i, run in enumerate(runs) for line in panel(run, axes, i * PANEL)),
        *legend(runs),
        "</svg>", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="JSON", help="what `ramify bench attention --json` printed, or a file of benchmarks/cuda_attention.py")
    parser.add_argument("--output", default=ROOT / "docs" / "images" / "benchmarks.svg", type=pathlib.Path)
    arguments = parser.parse_args()
    runs = [run for path in arguments.runs for run in runs_of(path)]
    arguments.output.write_text(draw(runs), encoding="utf-8")
