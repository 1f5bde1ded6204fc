"""The hierarchy over a batch of packed sequences."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch

from . import _library  # noqa: F401  (registers the ops)

Integers = Union[Sequence[int], torch.Tensor]
Branching = Union[str, int, Sequence[int]]

_ITEM = -1  # what is not a list, in the depth-first form of nested lists


def _integers(values: Integers, name: str) -> torch.Tensor:
    """A CPU int64 vector, or a ValueError that names the argument."""
    try:
        tensor = torch.as_tensor(values, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name} must be a list of integers (64 bit): {error}") from None
    if tensor.numel() == 0:
        tensor = tensor.to(torch.int64)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, not {tensor.dtype}")
    if tensor.dim() != 1:
        raise ValueError(f"{name} has shape {list(tensor.shape)}; expected a list of integers")
    return tensor.to(torch.int64).contiguous()


def _branching_text(where: str, branching: Any, form: Callable[[Any], str] = str) -> str:
    """Window sizes in the text form that the library reads."""
    if isinstance(branching, str):
        return branching
    try:
        return ",".join(form(size) for size in ((branching,) if isinstance(branching, int) else branching))
    except (TypeError, IndexError):
        raise ValueError(f"{where}: branching is {branching!r}; expected window sizes from the bottom up, such as "
                         "'2,4,8,16', '16*' or a list of them") from None


class Forest:
    """A batch of trees whose leaves are packed rows of ``q``, ``k`` and ``v``.

    Make one with :meth:`windows`, :meth:`grid_windows`, :meth:`from_segments`, :meth:`from_nested`,
    :meth:`from_parents` or :meth:`concatenate`, and use it for all layers and steps: it is immutable.

    Nodes are numbered level by level from the roots, trees in order, left to right. Leaves are numbered left to
    right, as the rows of ``q``. For ``Forest.from_nested([["a", "b"], "c"])``, two trees::

        0     1=c        first_child  [2, 4, 4, 4, 4]    children of n: first_child[n] .. first_child[n + 1] - 1
       / \\               level_begin  [0, 2, 4]
      2=a 3=b            leaf_nodes   [2, 3, 1]
    """

    def __init__(self, arrays: Sequence[torch.Tensor], device: Union[str, torch.device] = "cpu",
                 input_nodes: Optional[torch.Tensor] = None):
        """Takes the arrays that the builders return; use those."""
        self._first_child, self._level_begin, self._tree_begin, self._leaf_nodes, self._first_leaf = arrays
        self._device = torch.device(device)
        self._input_nodes = input_nodes
        self._plans: Dict[str, List[torch.Tensor]] = {}
        self._fields: Dict[str, torch.Tensor] = {}

    # Builders

    @classmethod
    def windows(cls, lengths: Integers, branching: Branching) -> "Forest":
        """One tree a length, of windows whose sizes are given from the bottom up.

        ``"2,4,8,16"`` (or ``(2, 4, 8, 16)``) groups 2 leaves, then 4 groups, and so on; ``"16*"`` repeats 16 until
        one family is left. The last group of a level may be short, and what remains above the last size is one
        family under the root. Length 0 is an empty tree, length 1 a bare leaf.

        >>> Forest.windows([7, 3], "3,2")
        Forest(trees=2, leaves=10, nodes=17, depth=3)
        """
        return cls(torch.ops.ramify.windows(_integers(lengths, "windows: lengths"), _branching_text("windows", branching)))

    @classmethod
    def grid_windows(cls, shapes: Sequence[Tuple[int, int]],
                     branching: Union[str, Sequence[Union[int, Tuple[int, int]]]]) -> Tuple["Forest", torch.Tensor]:
        """One tree a grid of ``(rows, columns)`` patches, of 2-D windows given from the bottom up.

        ``branching`` is ``"2x2,4x4"``, ``"4x4*"``, or a list of ``(rows, columns)``. Returns the forest and the
        permutation from raster order: ``q_raster[permutation]`` has the order of the forest's leaves.

        >>> forest, permutation = Forest.grid_windows([(2, 4)], "2x2")
        >>> permutation.tolist()
        [0, 1, 4, 5, 2, 3, 6, 7]
        """
        try:
            rows, columns = zip(*shapes) if len(shapes) else ((), ())
        except (TypeError, ValueError):
            raise ValueError("grid_windows: shapes must be a list of (rows, columns)") from None
        text = _branching_text("grid_windows", branching,
                               lambda size: f"{size}" if isinstance(size, int) else f"{size[0]}x{size[1]}")
        *arrays, permutation = torch.ops.ramify.grid_windows(
            _integers(rows, "grid_windows: rows"), _integers(columns, "grid_windows: columns"), text)
        return cls(arrays), permutation

    @classmethod
    def from_segments(cls, levels: Sequence[Integers]) -> "Forest":
        """A segmentation of your own, from the bottom up.

        ``levels[0]`` holds the leaves of each segment, ``levels[1]`` how many of those segments make each larger
        one, and so on; the segments of the last level are the trees. Two documents, of sentences with 2 and 3 words
        and of one with 1 word:

        >>> Forest.from_segments([[2, 3, 1], [2, 1]])
        Forest(trees=2, leaves=6, nodes=11, depth=2)
        """
        if not isinstance(levels, (list, tuple)):
            raise ValueError(f"from_segments: levels is {type(levels).__name__}; expected a list of lists of lengths")
        return cls(torch.ops.ramify.from_segments(
            [_integers(level, f"from_segments: level {i}") for i, level in enumerate(levels)]))

    @classmethod
    def from_nested(cls, trees: Sequence[Any]) -> "Forest":
        """One tree an item. A list is a node; whatever else it holds (numbers, strings, also tuples) is a leaf.

        An item that is not a list is a bare leaf, ``[]`` an empty tree; ``[]`` inside a tree is an error.

        >>> Forest.from_nested([["the", ["quick", "fox"]], "x", []])
        Forest(trees=3, leaves=4, nodes=6, depth=2)
        """
        if not isinstance(trees, (list, tuple)):
            raise ValueError(f"from_nested: expected a list of trees, not {type(trees).__name__}")
        preorder: List[int] = []
        stack = [iter(trees)]
        around = set()  # lists being walked: one inside itself would never end
        open_lists: List[list] = []
        while stack:
            item = next(stack[-1], stack)  # the stack itself marks the end
            if item is stack:
                stack.pop()
                if open_lists:
                    around.discard(id(open_lists.pop()))
            elif isinstance(item, list):
                if id(item) in around:
                    raise ValueError("from_nested: a list contains itself (cycle)")
                preorder.append(len(item))
                around.add(id(item))
                open_lists.append(item)
                stack.append(iter(item))
            else:
                preorder.append(_ITEM)
        return cls(torch.ops.ramify.from_nested(torch.tensor(preorder, dtype=torch.int64)))

    @classmethod
    def from_parents(cls, parents: Integers) -> "Forest":
        """``parents[i]`` is the parent of node ``i``, -1 for a root. Trees and siblings keep the input's order;
        :attr:`input_nodes` maps the input's numbers to the forest's.

        >>> forest = Forest.from_parents([2, 2, -1])
        >>> forest.input_nodes.tolist()
        [1, 2, 0]
        """
        *arrays, input_nodes = torch.ops.ramify.from_parents(_integers(parents, "from_parents: parents"))
        return cls(arrays, input_nodes=input_nodes)

    @classmethod
    def concatenate(cls, forests: Sequence["Forest"]) -> "Forest":
        """The trees of all forests, in order, on the device of the first."""
        if not hasattr(forests, "__iter__"):
            raise ValueError(f"concatenate: expected a list of forests, got {type(forests).__name__}")
        forests = list(forests)
        for forest in forests:
            if not isinstance(forest, Forest):
                raise ValueError(f"concatenate: expected a list of forests, got {type(forest).__name__} in it")
        arrays = [array for forest in forests for array in forest._arrays]
        device = forests[0].device if forests else "cpu"
        return cls(torch.ops.ramify.concatenate(arrays), device)

    # Size

    @property
    def num_trees(self) -> int:
        return self._tree_begin.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        return self._first_child.shape[0] - 1

    @property
    def num_leaves(self) -> int:
        return self._leaf_nodes.shape[0]

    @property
    def depth(self) -> int:
        """Edges from a root to the deepest leaf."""
        return max(self._level_begin.shape[0] - 2, 0)

    @property
    def device(self) -> torch.device:
        return self._device

    # Arrays: int64 copies, on the forest's device

    @property
    def first_child(self) -> torch.Tensor:
        """``[num_nodes + 1]``: the children of n are ``first_child[n] .. first_child[n + 1] - 1``."""
        return self._first_child.to(self._device, copy=True)

    @property
    def level_begin(self) -> torch.Tensor:
        """``[num_levels + 1]``: the nodes of level l are ``level_begin[l] .. level_begin[l + 1] - 1``."""
        return self._level_begin.to(self._device, copy=True)

    @property
    def tree_begin(self) -> torch.Tensor:
        """``[num_trees + 1]``: offsets into the roots; an empty tree has none."""
        return self._tree_begin.to(self._device, copy=True)

    @property
    def leaf_nodes(self) -> torch.Tensor:
        """``[num_leaves]``: the node of each leaf, left to right."""
        return self._leaf_nodes.to(self._device, copy=True)

    @property
    def first_leaf(self) -> torch.Tensor:
        """``[num_nodes]``: the leftmost leaf below each node; the leaves below it are consecutive."""
        return self._first_leaf.to(self._device, copy=True)

    @property
    def parents(self) -> torch.Tensor:
        """``[num_nodes]``: -1 for a root."""
        return self._field("parents").clone()

    @property
    def sibling_index(self) -> torch.Tensor:
        """``[num_nodes]``: the place of each node in its family, 0 for a root."""
        return self._field("sibling_index").clone()

    @property
    def leaf_counts(self) -> torch.Tensor:
        """``[num_nodes]``: the leaves below each node."""
        return self._field("leaf_counts").clone()

    @property
    def tree_leaf_begin(self) -> torch.Tensor:
        """``[num_trees + 1]``: the leaves of tree t are ``tree_leaf_begin[t] .. tree_leaf_begin[t + 1] - 1``."""
        return self._field("tree_leaf_begin").clone()

    @property
    def input_nodes(self) -> torch.Tensor:
        """For a forest made by :meth:`from_parents`: the node of each input."""
        if self._input_nodes is None:
            raise AttributeError("input_nodes: only a forest made by from_parents has it")
        return self._input_nodes.to(self._device, copy=True)

    # Use

    def to(self, device: Union[str, torch.device]) -> "Forest":
        """The same forest, for tensors on another device, with the plans that are ready. Keep it: each call copies."""
        device = torch.device(device)
        if device == self._device:
            return self
        other = Forest((self._first_child, self._level_begin, self._tree_begin, self._leaf_nodes, self._first_leaf),
                       device, self._input_nodes)
        for tie in [tie for tie, key in (("block", "nodes"), ("none", "leaves")) if key in self._plans]:
            other._plan(tie, "none")
        return other

    def plan(self, tie: str = "block", causal: str = "none") -> "Forest":
        """Prepares the forest for one kind of attention, and returns it.

        The first call of :func:`ramify.attention` does it too; call it yourself before ``torch.compile``, so that the
        compiled code finds the plan ready.
        """
        if not self._plan(tie, causal):
            torch.ops.ramify.plan(self._arrays, tie, causal)  # says which name is wrong
        return self

    def _plan(self, tie: str, causal: str) -> List[torch.Tensor]:
        if tie not in ("block", "none") or causal not in ("none", "block", "prefix"):
            return []  # the op says what is wrong
        key = "leaves" if tie == "none" or causal == "prefix" else "nodes"
        if key not in self._plans:
            if torch.compiler.is_compiling():
                return []  # the op makes it, anew at each call
            with torch.inference_mode(False):  # usable for training even if first met in inference
                self._plans[key] = torch.ops.ramify.plan(self._arrays, tie, causal, self._device)
        return self._plans[key]

    @property
    def _arrays(self) -> List[torch.Tensor]:
        return [self._first_child, self._level_begin, self._tree_begin]

    def _field(self, name: str) -> torch.Tensor:
        if name not in self._fields:
            with torch.inference_mode(False):  # usable for training wherever it was first asked for
                self._fields[name] = torch.ops.ramify.forest_field(self._arrays, name).to(self._device)
        return self._fields[name]

    def __reduce__(self):
        return _restore, (*self._arrays, str(self._device), self._input_nodes)

    def __repr__(self) -> str:
        where = "" if self._device.type == "cpu" else f", device='{self._device}'"
        return (f"Forest(trees={self.num_trees}, leaves={self.num_leaves}, nodes={self.num_nodes}, "
                f"depth={self.depth}{where})")


def _restore(first_child, level_begin, tree_begin, device, input_nodes):
    """Reads a pickled forest; its arrays are checked again."""
    if input_nodes is not None:
        nodes = torch.arange(first_child.shape[0] - 1)
        if not torch.equal(_integers(input_nodes, "input_nodes").sort().values, nodes):
            raise ValueError("forest: input_nodes does not name every node once")
    return Forest(torch.ops.ramify.from_arrays(first_child, level_begin, tree_begin), device, input_nodes)


torch.serialization.add_safe_globals([_restore])  # torch.load reads forests; their arrays are checked as they come
