"""The forest from Python: builders, order, arrays, devices, pickling, and what is rejected."""

import copy
import doctest
import importlib
import pickle
import random

import numpy as np
import pytest
import torch

import dense
from ramify import Forest
from random_trees import random_trees


def arrays(forest):
    names = ["first_child", "level_begin", "tree_begin", "leaf_nodes", "first_leaf", "parents", "sibling_index",
             "leaf_counts", "tree_leaf_begin"]
    return {name: getattr(forest, name).tolist() for name in names}


def shape(forest):
    return forest.num_trees, forest.num_leaves, forest.num_nodes, forest.depth


@pytest.mark.parametrize("module", ["ramify.forest", "ramify.functional"])
def test_examples_of_docstrings(module):
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_drawn_example():
    # Two trees, [[a, b], c] and [d, e]; nodes level by level.
    forest = Forest.from_nested([[["a", "b"], "c"], ["d", "e"]])
    assert arrays(forest) == {
        "first_child": [2, 4, 6, 8, 8, 8, 8, 8, 8],
        "level_begin": [0, 2, 6, 8],
        "tree_begin": [0, 1, 2],
        "leaf_nodes": [6, 7, 3, 4, 5],
        "first_leaf": [0, 3, 0, 2, 3, 4, 0, 1],
        "parents": [-1, -1, 0, 0, 1, 1, 2, 2],
        "sibling_index": [0, 0, 0, 1, 0, 1, 0, 1],
        "leaf_counts": [3, 2, 2, 1, 1, 1, 1, 1],
        "tree_leaf_begin": [0, 3, 5],
    }
    assert shape(forest) == (2, 5, 8, 2)
    assert repr(forest) == "Forest(trees=2, leaves=5, nodes=8, depth=2)"
    assert all(getattr(forest, name).dtype == torch.int64 for name in arrays(forest))


def test_arrays_of_random_forests_agree():
    for seed in range(50):
        trees = random_trees(random.Random(seed), 4, depth=5, width=4, max_leaves=60)
        forest, nodes = Forest.from_nested(trees), dense.all_nodes(dense.parse(trees))
        assert forest.num_nodes == len(nodes)
        assert [node.number for node in nodes] == list(range(len(nodes)))
        assert forest.num_trees == len(trees)
        assert forest.depth == max((node.depth for node in nodes), default=0)
        assert forest.leaf_counts.tolist() == [len(node.leaves) for node in nodes]
        assert forest.first_leaf.tolist() == [node.leaves[0] for node in nodes]
        assert forest.first_child.diff().tolist() == [len(node.children) for node in nodes]
        assert forest.leaf_nodes.tolist() == [n.number for n in
                                              sorted((n for n in nodes if not n.children), key=lambda n: n.leaves[0])]
        for node in nodes:
            for place, child in enumerate(node.children):
                assert (forest.parents[child.number], forest.sibling_index[child.number]) == (node.number, place)
        # The parent array gives the same forest, and its own numbers when it is in order.
        again = Forest.from_parents(forest.parents)
        assert again.input_nodes.tolist() == list(range(len(nodes)))
        full = [tree for tree in trees if tree != []]
        assert arrays(again) == arrays(Forest.from_nested(full))


def test_windows():
    forest = Forest.windows([7], "3,2")  # 7 leaves, 3 groups, 2 groups, the root over what remains
    assert forest.level_begin.diff().tolist() == [1, 2, 3, 7]
    assert forest.first_child.diff().tolist() == [2, 2, 1, 3, 3, 1] + [0] * 7
    assert arrays(Forest.windows([7], (3, 2))) == arrays(forest)
    assert arrays(Forest.windows(torch.tensor([7], dtype=torch.int32), [3, 2])) == arrays(forest)
    assert arrays(Forest.windows(np.array([7]), "3,2")) == arrays(forest)
    assert Forest.windows([20], "2*").level_begin.diff().tolist() == [1, 2, 3, 5, 10, 20]
    assert arrays(Forest.windows([9], 3)) == arrays(Forest.windows([9], "3*"))
    assert shape(Forest.windows([0, 1, 5], "16")) == (3, 6, 7, 1)
    assert Forest.windows([0, 1, 5], "16").tree_leaf_begin.tolist() == [0, 0, 1, 6]
    assert shape(Forest.windows([], "2,4")) == (0, 0, 0, 0)


def test_grid_windows():
    forest, permutation = Forest.grid_windows([(4, 5), (0, 3), (1, 1)], "2x2*")
    assert forest.tree_leaf_begin.tolist() == [0, 20, 20, 21]
    assert sorted(permutation.tolist()) == list(range(21))
    # Each family of leaves is a window of 2x2 patches.
    for node in forest.parents[forest.leaf_nodes[:20]].unique().tolist():
        first, count = int(forest.first_leaf[node]), int(forest.leaf_counts[node])
        cells = permutation[first:first + count]
        assert len({(cell // 5 // 2, cell % 5 // 2) for cell in cells.tolist()}) == 1
    same, _ = Forest.grid_windows([(4, 5), (0, 3), (1, 1)], [2, (2, 2), (2, 2), (2, 2)])
    assert same.num_leaves == 21
    assert Forest.grid_windows([], "2x2")[0].num_trees == 0


def test_from_segments():
    forest = Forest.from_segments([[2, 3, 1], [2, 1]])
    assert arrays(forest) == arrays(Forest.from_nested([[["a", "b"], ["c", "d", "e"]], [["f"]]]))
    assert arrays(Forest.from_segments([[2, 0]])) == arrays(Forest.from_nested([["a", "b"], []]))
    assert arrays(Forest.from_segments([torch.tensor([2, 0])])) == arrays(Forest.from_segments([[2, 0]]))


def test_from_parents_keeps_the_order_of_the_input():
    forest = Forest.from_parents([3, -1, 1, -1, 1, 3])
    assert forest.input_nodes.tolist() == [4, 0, 2, 1, 3, 5]
    assert forest.parents.tolist() == [-1, -1, 0, 0, 1, 1]
    with pytest.raises(AttributeError, match="from_parents"):
        Forest.windows([2], "2").input_nodes


def test_concatenate():
    parts = [[["a", ["b", "c"]], []], [], ["d"], [[["e"]]]]
    forest = Forest.concatenate([Forest.from_nested(part) for part in parts])
    assert arrays(forest) == arrays(Forest.from_nested([tree for part in parts for tree in part]))
    assert arrays(Forest.concatenate(Forest.from_nested(part) for part in parts)) == arrays(forest)
    assert shape(Forest.concatenate([])) == (0, 0, 0, 0)


def test_whatever_is_not_a_list_is_a_leaf():
    forest = Forest.from_nested([[("a", "b"), "text", {"key": [1]}, None, 1.5, np.zeros(3)], "bare", ()])
    assert forest.tree_leaf_begin.tolist() == [0, 6, 7, 8]
    assert forest.depth == 1
    assert shape(Forest.from_nested(([1, 2],))) == (1, 2, 3, 1)
    shared = [1, 2]
    assert Forest.from_nested([[shared, shared]]).num_leaves == 4  # twice beside itself is no cycle


@pytest.mark.slow
def test_a_million_nested_lists():
    tree = "leaf"
    for _ in range(1_000_000):
        tree = [tree]
    assert shape(Forest.from_nested([tree])) == (1, 1, 1_000_001, 1_000_000)


def test_ten_million_leaves_take_24_bytes_a_node():
    forest = Forest.windows([10_000_000], "16*")
    kept = (forest.first_child, forest.level_begin, forest.tree_begin, forest.leaf_nodes, forest.first_leaf)
    assert sum(array.untyped_storage().nbytes() for array in kept) <= 24 * forest.num_nodes + 200
    # Values at the far end: nothing wrapped around.
    assert forest.leaf_nodes[-1] == forest.num_nodes - 1
    assert forest.first_leaf[-1] == 9_999_999
    assert forest.first_child[-1] == forest.num_nodes


def test_to_another_device():
    forest = Forest.from_parents([2, 2, -1]).plan()
    assert forest.to("cpu") is forest
    there = forest.to("meta")
    assert there.device == torch.device("meta")
    assert repr(there) == "Forest(trees=1, leaves=2, nodes=3, depth=1, device='meta')"
    assert there.parents.device.type == there.first_child.device.type == there.input_nodes.device.type == "meta"
    assert shape(there) == shape(forest)
    back = there.to("cpu")
    assert arrays(back) == arrays(forest)
    assert back.input_nodes.tolist() == forest.input_nodes.tolist()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda forest: pickle.loads(pickle.dumps(forest))])
def test_copies_are_equal(duplicate):
    for forest in (Forest.windows([7, 0, 3], "2*").plan(), Forest.from_parents([2, 2, -1]), Forest.windows([], "2")):
        again = duplicate(forest)
        assert arrays(again) == arrays(forest)
        assert repr(again) == repr(forest)
    assert duplicate(Forest.from_parents([2, 2, -1])).input_nodes.tolist() == [1, 2, 0]


def test_a_tampered_pickle_is_rejected():
    rebuild, (first_child, level_begin, tree_begin, device, _) = Forest.from_parents([-1, 0, 0]).__reduce__()
    for position, wrong in [(0, [1, 3, 3, 2]), (0, [1, 9, 3, 3]), (0, [0, 3, 3, 3]), (0, []), (1, [0, 1, 2, 3]),
                            (2, [0, 3]), (2, [1, 2])]:
        state = [first_child, level_begin, tree_begin]
        state[position] = torch.tensor(wrong, dtype=torch.int64)
        with pytest.raises(ValueError, match="forest"):
            rebuild(*state, device, None)
    with pytest.raises(ValueError, match="int64"):
        rebuild(first_child.float(), level_begin, tree_begin, device, None)
    for wrong in ([0, 1], [0, 1, 1], [0, 1, 3], [-1, 1, 2]):
        with pytest.raises(ValueError, match="input_nodes"):
            rebuild(first_child, level_begin, tree_begin, device, torch.tensor(wrong))


def self_containing():
    tree = ["a"]
    tree.append([["b", tree]])
    return [tree]


def outermost_in_itself():
    trees = []
    trees.append(trees)
    return trees


BAD = {
    "parent cycle": (lambda: Forest.from_parents([-1, 2, 1]), "cycle"),
    "own parent": (lambda: Forest.from_parents([0]), "cycle"),
    "parent beyond the end": (lambda: Forest.from_parents([-1, 5]), "node 1 has parent 5"),
    "parent below -1": (lambda: Forest.from_parents([-2]), "node 0 has parent -2"),
    "parent 2**63": (lambda: Forest.from_parents([2**63]), "parents must be a list of integers"),
    "parents of floats": (lambda: Forest.from_parents([-1.0]), "parents must be integers"),
    "parents of bools": (lambda: Forest.from_parents([True]), "parents must be integers"),
    "parents of rank 2": (lambda: Forest.from_parents([[-1]]), "parents has shape"),
    "parents None": (lambda: Forest.from_parents(None), "parents must be a list of integers"),
    "negative length": (lambda: Forest.windows([3, -1], "2"), "length 1 is -1"),
    "length 2**63": (lambda: Forest.windows([2**63], "2"), "lengths must be a list of integers"),
    "too many leaves": (lambda: Forest.windows([2**62] * 4, "2"), "2147483648"),
    "float lengths": (lambda: Forest.windows([2.5], "2"), "lengths must be integers"),
    "one length": (lambda: Forest.windows(5, "2"), "lengths has shape"),
    "branching 0": (lambda: Forest.windows([4], "2,0"), "branching holds 0"),
    "branching 0 as number": (lambda: Forest.windows([4], 0), "branching holds 0"),
    "branching -2": (lambda: Forest.windows([4], [-2]), "-2"),
    "branching 1*": (lambda: Forest.windows([4], "1*"), "1\\*"),
    "branching *": (lambda: Forest.windows([4], "*"), r"\*"),
    "branching 2*,4": (lambda: Forest.windows([4], "2*,4"), "2\\*,4"),
    "branching of letters": (lambda: Forest.windows([4], "two"), "'two' is not a list of sizes"),
    "branching 2,,4": (lambda: Forest.windows([4], "2,,4"), "2,,4"),
    "branching 2**63": (lambda: Forest.windows([4], [2**63]), "9223372036854775808"),
    "branching float": (lambda: Forest.windows([4], 2.5), "branching"),
    "branching None": (lambda: Forest.windows([4], None), "branching"),
    "no segment levels": (lambda: Forest.from_segments([]), "no levels"),
    "segments of no level": (lambda: Forest.from_segments([3]), "level 0 has shape"),
    "segments None": (lambda: Forest.from_segments(None), "from_segments"),
    "segments that do not match": (lambda: Forest.from_segments([[2, 3], [3]]), "covers 3 segments"),
    "negative segment": (lambda: Forest.from_segments([[2, -3]]), "has length -3"),
    "empty inner segment": (lambda: Forest.from_segments([[2, 0], [2]]), "is empty"),
    "segments overflow": (lambda: Forest.from_segments([[2**62, 2**62]]), "2147483648"),
    "empty list inside": (lambda: Forest.from_nested([["a", []]]), "an empty list inside tree 0"),
    "list in itself": (lambda: Forest.from_nested(self_containing()), "contains itself"),
    "trees in themselves": (lambda: Forest.from_nested(outermost_in_itself()), "contains itself"),
    "a string of trees": (lambda: Forest.from_nested("abc"), "expected a list of trees, not str"),
    "a tensor of trees": (lambda: Forest.from_nested(torch.zeros(3)), "expected a list of trees, not Tensor"),
    "concatenate others": (lambda: Forest.concatenate([Forest.windows([2], "2"), 3]), "got int"),
    "concatenate one": (lambda: Forest.concatenate(Forest.windows([2], "2")), "concatenate"),
    "grid of three": (lambda: Forest.grid_windows([(1, 2, 3)], "2x2"), r"\(rows, columns\)"),
    "grid of none": (lambda: Forest.grid_windows(4, "2x2"), r"\(rows, columns\)"),
    "negative grid": (lambda: Forest.grid_windows([(2, -1)], "2x2"), "grid 0 is 2x-1"),
    "grid overflow": (lambda: Forest.grid_windows([(2**62, 2**62)], "2x2"), "2147483648"),
    "grid window 0": (lambda: Forest.grid_windows([(2, 2)], "0x2"), "branching holds 0"),
    "grid window 1x2*": (lambda: Forest.grid_windows([(2, 2)], "1x2*"), "repeats"),
    "grid window of one": (lambda: Forest.grid_windows([(2, 2)], [(2,)]), "grid_windows"),
    "grid window float": (lambda: Forest.grid_windows([(2, 2)], 2.5), "branching"),
    "unknown tie in plan": (lambda: Forest.windows([2], "2").plan(tie="x"), "tie is 'x'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    build, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        build()


def test_torch_load_reads_a_forest(tmp_path):
    forest = Forest.from_nested([["a", ["b", "c"]], []])
    torch.save(forest, tmp_path / "forest.pt")
    assert arrays(torch.load(tmp_path / "forest.pt")) == arrays(forest)


def test_writing_to_an_array_changes_only_the_copy():
    forest = Forest.from_nested([["a", ["b", "c"]]])
    before = arrays(forest)
    for name in "first_child", "level_begin", "leaf_nodes", "parents", "sibling_index", "leaf_counts":
        getattr(forest, name).add_(7)
    assert arrays(forest) == before
