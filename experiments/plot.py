"""Draws results as SVG: a row a model, a dot a seed, a bar at their mean. Nothing but strings, and fit for dark pages."""

import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 760, 300, 30, 52, 22, 34
STYLE = """
  .card { fill: #fcfcfa; stroke: #d8d8d2 }
  .title { fill: #22262b; font: 600 15px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .note { fill: #5d646c; font: 12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .grid { fill: none; stroke: #e6e6e0 }
  .seed { fill: #2563c9; fill-opacity: 0.55 } .mean { stroke: #e8772e; stroke-width: 3 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #171a1f; stroke: #363b43 } .title { fill: #e8eaed } .note { fill: #a3abb5 } .grid { stroke: #2b3038 }
    .seed { fill: #6ea8ff }
  }
"""


def ticks(low, high):
    """Round numbers from below low to above high, about six of them."""
    step = 10 ** math.floor(math.log10(max(high - low, 1e-3)))
    step = next(step * factor for factor in (0.2, 0.5, 1, 2) if (high - low) / (step * factor) <= 6)
    first = math.floor(low / step)
    return [step * i for i in range(first, max(math.ceil(high / step), first + 1) + 1)]


def dots(title, what, rows):
    """`rows`: (label, values)."""
    values = [value for _, row in rows for value in row]
    marks = ticks(min(values), max(values))
    height = TOP + ROW * len(rows) + BOTTOM

    def x(value):
        return LEFT + (value - marks[0]) / (marks[-1] - marks[0]) * (WIDTH - LEFT - RIGHT)

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
             f'role="img" aria-label="{escape(title)}: {escape(what)}">', f"<style>{STYLE}</style>",
             f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
             f'<text class="title" x="20" y="30">{escape(title)}</text>']
    for mark in marks:
        lines.append(f'<path class="grid" d="M{x(mark):.1f} {TOP - 6} V{height - BOTTOM}"/>')
        lines.append(f'<text class="note" x="{x(mark):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{mark:g}</text>')
    lines.append(f'<text class="note" x="{WIDTH - RIGHT}" y="30" text-anchor="end">{escape(what)}</text>')
    for i, (label, row) in enumerate(rows):
        y, mean = TOP + ROW * i + 8, sum(row) / len(row)
        lines.append(f'<text class="note" x="{LEFT - 14}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
        lines.append(f'<path class="mean" d="M{x(mean):.1f} {y - 7} v14"/>')
        lines += [f'<circle class="seed" cx="{x(value):.1f}" cy="{y}" r="4"/>' for value in row]
    return "\n".join([*lines, "</svg>", ""])
