"""Draws docs/images/attention.svg: the record of the demo as a tree, and the attention of one leaf over it.

    PYTHONPATH=python .venv/bin/python docs/images/make_attention.py

Every thickness and shade is a number that ramify.node_mass gives for this record.
"""

import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "python")]

import demo  # noqa: E402
import ramify  # noqa: E402

WORD = "boot"
WIDTH, ROW, TOP = 840, 31, 62
LEVELS = (26, 82, 132, 182)  # x of a node by depth
CHIPS = 246  # x of the first leaf of a row
LETTER = 6.9  # advance of the 11.5 px monospaced letters
SHARES = 792  # x of the bracket with the shares

STYLE = """
  .card { fill: #fcfcfa; stroke: #d8d8d2 }
  .title { fill: #22262b; font: 600 15px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .note { fill: #5d646c; font: 12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .key { fill: #5d646c; font: 11.5px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace }
  .word { fill: #22262b; font: 11.5px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace }
  .share { fill: #b4480a; font: 600 12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .edge { fill: none; stroke: #e8772e; stroke-linecap: round }
  .bracket { fill: none; stroke: #c9c9c2 }
  .dot { fill: #fcfcfa; stroke: #8a9199; stroke-width: 1.5 }
  .chip { stroke: #d8d8d2 }
  .heat { fill: #f08a3c }
  .looks { fill: none; stroke: #2563c9; stroke-width: 2.5 }
  .path { stroke: #2563c9; stroke-width: 2.5 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #171a1f; stroke: #363b43 }
    .title, .word { fill: #e8eaed }
    .note, .key { fill: #a3abb5 }
    .share { fill: #ffa25c }
    .bracket, .chip { stroke: #3f454e }
    .dot { fill: #171a1f }
    .heat { fill: #d9651a }
    .looks, .path { stroke: #6ea8ff }
  }
"""


def layout(tree):
    """Depth and row of every node. The words of a sentence share a row; an inner node is in the middle of its rows."""
    children = {node: [] for node in range(len(tree.parents))}
    for node, parent in enumerate(tree.parents):
        if parent >= 0:
            children[parent].append(node)
    depth, row, rows = {}, {}, 0
    for node, parent in enumerate(tree.parents):
        depth[node] = 0 if parent < 0 else depth[parent] + 1
        if tree.texts[node] == "words" or (not children[node] and tree.texts[parent] != "words"):
            row[node], rows = rows, rows + 1
    for node in reversed(range(len(tree.parents))):
        if node not in row and children[node]:
            row[node] = (row[children[node][0]] + row[children[node][-1]]) / 2
    return children, depth, row, rows


def chips(tree, masses, leaf_node, nodes, y, heat):
    x = CHIPS
    for node in nodes:
        width = LETTER * len(tree.texts[node]) + 10
        box = f'x="{x:.1f}" y="{y - 10:.1f}" width="{width:.1f}" height="20" rx="4"'
        yield f'<rect class="chip heat" {box} fill-opacity="{heat(masses[node]):.3f}"/>'
        if node == leaf_node:
            yield f'<rect class="looks" {box}/>'
        yield f'<text class="word" x="{x + 5:.1f}" y="{y + 4:.1f}">{escape(tree.texts[node])}</text>'
        x += width + 4


def draw():
    tree = demo.tree_of(demo.read_record(demo.RECORD))
    forest = ramify.Forest.from_parents(tree.parents)
    leaf = demo.find_leaf(WORD, tree)
    masses = demo.masses_of(tree, forest, leaf, "block")
    children, depth, row, rows = layout(tree)
    path, above = set(), tree.leaves[leaf]
    while above >= 0:
        path.add(above)
        above = tree.parents[above]

    most = max(masses[node] for node in tree.leaves)
    height = TOP + ROW * rows + 34
    edges, nodes, words, shares = [], [], [], []

    def place(node):
        return LEVELS[depth[node]], TOP + ROW * (row[node] + 0.5)

    for node in sorted(row, key=lambda node: masses[node]):
        x, y = place(node)
        if tree.parents[node] >= 0:
            px, py = place(tree.parents[node])
            middle = (px + x) / 2
            edges.append(f'<path class="edge" d="M{px} {py:.1f} C{middle} {py:.1f} {middle} {y:.1f} {x} {y:.1f}" '
                         f'stroke-width="{1 + 13 * masses[node]:.2f}" '
                         f'stroke-opacity="{0.35 + 0.6 * masses[node]:.2f}"/>')
        kind = "dot path" if node in path else "dot"
        nodes.append(f'<circle class="{kind}" cx="{x}" cy="{y:.1f}" r="4.5"/>')
        key = tree.keys[node]
        leaves = children[node] if tree.texts[node] == "words" else [] if children[node] else [node]
        if key and not leaves:  # on the side where no edge comes in
            dy = 20 if y > place(tree.parents[node])[1] else -12
            nodes.append(f'<text class="key" x="{x - 8}" y="{y + dy:.1f}" text-anchor="middle">{escape(key)}</text>')
        elif key:
            nodes.append(f'<text class="key" x="{x + 10}" y="{y + 4:.1f}">{escape(key)}</text>')
        if leaves:
            begin = x + 10 + (LETTER * len(key) + 6 if key else 0)
            nodes.append(f'<path class="bracket" d="M{begin:.1f} {y:.1f} H{CHIPS - 6}"/>')
        words += chips(tree, masses, tree.leaves[leaf], leaves, y, lambda mass: 0.8 * (mass / most) ** 0.5)

    # One bracket for each sibling of the path, and one for the family of the leaf itself.
    for node in row:
        sibling = tree.parents[node] in path and node not in path
        if not sibling and tree.leaves[leaf] not in children[node]:
            continue
        below = [other for other in row if is_below(tree, other, node)]
        first, last = min(row[n] for n in below), max(row[n] for n in below)
        y0, y1 = TOP + ROW * first + 6, TOP + ROW * (last + 1) - 6
        shares.append(f'<path class="bracket" d="M{SHARES - 5} {y0:.1f} H{SHARES} V{y1:.1f} H{SHARES - 5}"/>')
        shares.append(f'<text class="share" x="{WIDTH - 10}" y="{(y0 + y1) / 2 + 4:.1f}" text-anchor="end">'
                      f'{masses[node]:.0%}</text>')

    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="A nested record as a tree, and the attention of one of its words over the tree">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        f'<text class="title" x="20" y="29">A record is a tree. Where does its word "{WORD}" look?</text>',
        '<text class="note" x="20" y="48">Edges are as thick as the attention that goes down them, words are shaded '
        'by what they get.</text>',
        *edges, *nodes, *words, *shares,
        f'<text class="note" x="20" y="{height - 15}">Outside its own sentence a bracket is one node to '
        'the word: everything in it gets the same, and it costs one score.</text>',
        "</svg>", ""])


def is_below(tree, node, ancestor):
    while node > ancestor:
        node = tree.parents[node]
    return node == ancestor


if __name__ == "__main__":
    (ROOT / "docs" / "images" / "attention.svg").write_text(draw(), encoding="utf-8")
