"""Shows hierarchical attention on a nested record, and that on a flat one it is softmax attention.

A JSON record becomes a tree: an object or a list is a family, a text is its sentences and their words, and every word,
number, boolean or null is a leaf. Leaf vectors are hashed letter trigrams, so that alike words attend to each other
without a trained model. Run scripts/demo or scripts/test once before: they build what is needed.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unicodedata
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))  # this tree's package, whatever is installed

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import ramify  # noqa: E402

RECORD = ROOT / "examples" / "order.json"
VECTOR_SIZE = 256
SHARPNESS = 4.0  # the scale of q·k; leaf vectors have length 1, so it is the score of equal words
MOST_LINES = 48  # of a picture
PAPER_TOKENS = (264, 54, 12, 26, 55, 70, 38)  # the lengths in the paper's table of FLOPs
PAPER_HIERARCHY = "2,4,8,16"


class DemoError(Exception):
    """Something the user can put right; the message says what."""


# From a record to a tree

class Tree:
    """The nodes of a record in depth-first order, so that leaves come left to right."""

    def __init__(self):
        self.parents = []  # -1 for the root
        self.keys = []  # the key inside an object, else None
        self.texts = []  # what a leaf says; the kind of an inner node
        self.leaves = []  # the nodes that are leaves


def read_record(path):
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DemoError(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise DemoError(f"{path}: nested too deeply for Python's JSON reader") from None
    except ValueError as error:  # of the JSON, of its encoding, or of a number in it
        raise DemoError(f"{path}: not JSON: {error}") from None


def parts_of(value):
    """What a value says or is, and its children as (key, value). Without children it is a leaf."""
    if isinstance(value, dict):
        return "object", list(value.items())
    if isinstance(value, list):
        return "list", [(None, item) for item in value]
    if not isinstance(value, str):
        return json.dumps(value), []
    # A family of one would change nothing, so one sentence is its words and one word is a leaf.
    sentences = re.split(r"(?<=[.!?])\s+|\s*\n\s*", value.strip())
    if len(sentences) > 1:
        return "text", [(None, sentence) for sentence in sentences]
    words = value.split()
    return ("words", [(None, word) for word in words]) if len(words) > 1 else (value.strip(), [])


def tree_of(record):
    tree = Tree()
    waiting = [(-1, None, record)]  # a stack, since records may be nested deeper than Python recurses
    while waiting:
        parent, key, value = waiting.pop()
        text, children = parts_of(value)
        node = len(tree.parents)
        if not children:
            tree.leaves.append(node)
            text = "(empty)" if isinstance(value, (dict, list)) or not text else text
        tree.parents.append(parent)
        tree.keys.append(key)
        tree.texts.append(text)
        waiting.extend((node, child_key, child) for child_key, child in reversed(children))
    return tree


# From words to vectors

def plain(text):
    """A word without case and without the punctuation around it."""
    return re.sub(r"^\W+|\W+$", "", text.casefold()) or text


def trigram_vector(text):
    """A unit vector; words that share letters point the same way."""
    word = f"<{plain(text)}>"
    vector = torch.zeros(VECTOR_SIZE)
    for piece in [word] + [word[i:i + 3] for i in range(len(word) - 2)]:
        code = zlib.crc32(piece.encode("utf-8", "surrogatepass"))
        vector[code % VECTOR_SIZE] += 1.0 if code & (1 << 16) else -1.0
    return F.normalize(vector, dim=0)


def key_positions(tree, forest):
    """The position of an object's member is the vector of its key; other nodes have none (-1)."""
    row = {key: i for i, key in enumerate(dict.fromkeys(key for key in tree.keys if key is not None))}
    table = torch.stack([trigram_vector(key) for key in row] or [torch.zeros(VECTOR_SIZE)])
    index = torch.full((forest.num_nodes,), -1)
    index[forest.input_nodes] = torch.tensor([row.get(key, -1) for key in tree.keys])
    return table.unsqueeze(1), index


def masses_of(tree, forest, leaf, tie):
    """The attention that a leaf pays to every node of the tree."""
    vectors = torch.stack([trigram_vector(tree.texts[node]) for node in tree.leaves]).unsqueeze(1)  # [T, 1, d]
    positions, position_index = key_positions(tree, forest)
    masses = ramify.node_mass(vectors, vectors, forest, leaf=leaf, positions=positions, position_index=position_index,
                              scale=SHARPNESS, tie=tie)
    return masses[forest.input_nodes, 0].tolist()


# Pictures

class Screen:
    """How to draw on a stream: as wide as it is, in characters it has, coloured where it can be."""

    def __init__(self, stream):
        stream.reconfigure(errors="replace")
        self.columns = max(60, shutil.get_terminal_size((100, 24)).columns)
        self.colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.unicode = "utf" in (stream.encoding or "").lower()
        self.branch, self.last, self.down = ("├─ ", "└─ ", "│  ") if self.unicode else ("|- ", "`- ", "|  ")
        self.dots, self.times, self.mark = ("…", "×", "◀") if self.unicode else ("...", "x", "<-")

    def bar(self, share, width):
        if not self.unicode:
            return ("#" * round(share * width)).ljust(width)
        eighths = round(share * width * 8)
        return ("█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]).ljust(width)

    def shade(self, share, text):
        """Brighter with the share, in colours that show on dark and light."""
        return f"\033[38;5;{208 if share > 0.2 else 172}m{text}\033[0m" if self.colour and share > 0.02 else text

    def fit(self, text, width):
        """The text in at most `width` columns, with nothing in it that a terminal would obey."""
        text = "".join(c if c.isprintable() else "?" for c in text[:width + 1])
        if not self.unicode:
            text = text.encode("ascii", "replace").decode()
        widths = [2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text]
        if sum(widths) <= width:
            return text
        while sum(widths) > width - len(self.dots):
            widths.pop()
        return text[:len(widths)] + self.dots


def branch_lines(tree, shown, screen):
    """For each shown node, in order, the branches that lead to it and its key."""
    last_child = {tree.parents[node]: node for node in shown}
    for node in shown:
        branches, above = "", node
        while tree.parents[above] >= 0 and len(branches) < screen.columns:
            ends = last_child.get(tree.parents[above], above) == above
            part = (screen.last if ends else screen.branch) if above == node else "   " if ends else screen.down
            branches, above = part + branches, tree.parents[above]
        if len(branches) > screen.columns // 3:
            branches = screen.dots + branches[-(screen.columns // 3):]
        yield node, branches + ("" if tree.keys[node] is None else f"{tree.keys[node]}: ")


def print_tree(tree, forest, screen):
    sizes = forest.leaf_counts[forest.input_nodes].tolist()
    number = {node: i for i, node in enumerate(tree.leaves)}
    for node, line in branch_lines(tree, range(min(len(sizes), MOST_LINES)), screen):
        says = tree.texts[node] if node in number else f"{tree.texts[node]} ({sizes[node]} leaves)"
        print(f"{number.get(node, ''):>5}  {screen.fit(line + says, screen.columns - 8)}")
    if len(sizes) > MOST_LINES:
        print(f"{'':5}  {screen.dots} and {len(sizes) - MOST_LINES} more nodes")


def print_masses(tree, forest, leaf, masses, screen):
    """The path to a leaf and the siblings on every level; all leaves below such a sibling get the same."""
    path, above = set(), tree.leaves[leaf]
    while above >= 0:
        path.add(above)
        above = tree.parents[above]
    seen = [node for node, parent in enumerate(tree.parents) if node in path or parent in path]
    most = sorted(seen, key=lambda node: (-masses[node], node))[:MOST_LINES]
    first_leaf, sizes = (array[forest.input_nodes].tolist() for array in (forest.first_leaf, forest.leaf_counts))
    shown = sorted({*most, *sorted(path)[-MOST_LINES:]})
    width = min(24, screen.columns // 5)
    for node, line in branch_lines(tree, shown, screen):
        says, each = tree.texts[node], ""
        if node not in path and sizes[node] > 1:
            says = " ".join(tree.texts[n] for n in tree.leaves[first_leaf[node]:][:min(sizes[node], 60)])
            each = f"{sizes[node]} {screen.times} {masses[node] / sizes[node]:.1%}"
        mark = f"  {screen.mark} looks" if node == tree.leaves[leaf] else ""
        bar = screen.shade(masses[node], screen.bar(masses[node], width))
        print(f"{masses[node]:>7.1%} {bar} {each:>10}  "
              + screen.fit(line + says, screen.columns - width - 22 - len(mark)) + mark)
    if len(shown) < len(seen):
        print(f"{'':8}{screen.dots} and {len(seen) - len(shown)} more nodes, with less")


# The demo

def find_leaf(wanted, tree):
    if wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(tree.leaves):
        return int(wanted)
    for leaf, node in enumerate(tree.leaves):
        if plain(tree.texts[node]) == plain(wanted):
            return leaf
    raise DemoError(f"--leaf {wanted}: no such leaf; expected one of its words or a number from 0 to "
                    f"{len(tree.leaves) - 1}")


def show_softmax(num_leaves):
    num_leaves = min(num_leaves, 512)  # it is quadratic, which is the point of trees
    flat = ramify.Forest.from_segments([[num_leaves]])
    q, k, v = F.normalize(torch.randn(3, num_leaves, 4, 32, generator=torch.Generator().manual_seed(0)), dim=-1)
    ours = ramify.attention(q, k, v, flat, include_self=True)
    theirs = F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)
    difference = (ours - theirs).abs().max().item()
    print(f"  {flat}\n  largest difference to torch's scaled_dot_product_attention: {difference:.1e}")
    if not difference <= 1e-6:
        raise DemoError("a flat tree must give softmax attention to 1e-6")


def show_flops():
    program = ROOT / "build" / "release" / "ramify"
    print(f"{'':8}{'FLOPs as the paper counts':>32}{'multiply-adds':>32}")
    print(f"{'tokens':>8}" + f"{'flat':>12}{PAPER_HIERARCHY:>12}{'fewer':>8}" * 2)
    for tokens in PAPER_TOKENS:
        command = [program, "flops", "--tokens", str(tokens), "--hierarchy", PAPER_HIERARCHY, "--json"]
        try:
            cost = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        except (OSError, subprocess.CalledProcessError) as error:
            raise DemoError(f"cannot count FLOPs: {error}; scripts/demo builds the program") from None
        line = f"{tokens:>8}"
        for measure in ("paper_flops", "multiply_adds"):
            flat, tree = cost["flat"][measure], cost["hierarchical"][measure]
            line += f"{flat / 1e6:>10.4f} M{tree / 1e6:>10.4f} M{flat / tree:>7.1f}x"
        print(line)


def run(options):
    screen = Screen(sys.stdout)
    tree = tree_of(read_record(options.record))
    forest = ramify.Forest.from_parents(tree.parents)
    if forest.num_leaves < 2:
        raise DemoError(f"{options.record}: the record has one leaf; attention needs two at least")
    leaf = find_leaf(options.leaf or ("boot" if options.record == RECORD else "0"), tree)

    print(f"1. The record as a tree: {forest}; leaves are numbered\n")
    print_tree(tree, forest, screen)
    says = screen.fit(tree.texts[tree.leaves[leaf]], 30)
    print(f"\n2. Where leaf {leaf}, \"{says}\", looks (tie={options.tie}); the leaves of a sibling share alike\n")
    print_masses(tree, forest, leaf, masses_of(tree, forest, leaf, options.tie), screen)
    print("\n3. Leaves without structure: softmax attention\n")
    show_softmax(forest.num_leaves)
    print("\n4. What attention costs, flat and in windows\n")
    show_flops()


def main():
    parser = argparse.ArgumentParser(
        description="Shows a JSON record as a tree, and the attention of one of its leaves over that tree.",
        epilog="example: examples/demo.py --record examples/order.json --leaf boots --tie none")
    parser.add_argument("--record", metavar="FILE", type=pathlib.Path, default=RECORD,
                        help="a JSON file of your own (default: examples/order.json)")
    parser.add_argument("--leaf", metavar="N|WORD", help="the leaf that looks: its number, or a word of the record")
    parser.add_argument("--tie", choices=("block", "none"), default="block",
                        help="block: the leaves below a node look at its siblings alike; none: each for itself")
    try:
        run(parser.parse_args())
    except DemoError as error:
        sys.exit(f"demo: {error}")
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
