"""Random ragged batches of trees and inputs for them, from a seed; and the table of attention modes."""

import random
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import torch

from ramify import Forest

IMPLEMENTATIONS = ["reference", "composed", "fused"]

# Every valid combination of tie, causal and include_self.
MODES = [
    {"tie": "block", "causal": "none", "include_self": False},
    {"tie": "block", "causal": "none", "include_self": True},
    {"tie": "block", "causal": "block", "include_self": True},
    {"tie": "block", "causal": "prefix", "include_self": True},
    {"tie": "none", "causal": "none", "include_self": False},
    {"tie": "none", "causal": "none", "include_self": True},
    {"tie": "none", "causal": "block", "include_self": True},
    {"tie": "none", "causal": "prefix", "include_self": True},
]


def applies(implementation: str, mode: Dict[str, Any], alpha: Any = None) -> bool:
    """Whether an implementation has a mode: the fused kernels know no alpha."""
    plain = alpha is None or (isinstance(alpha, float) and alpha == 1.0)
    return implementation != "fused" or plain


def dtype_of(implementation: str) -> torch.dtype:
    """The most exact dtype of an implementation."""
    return torch.float32 if implementation == "fused" else torch.float64


def tolerance(implementation: str, in_float64: float, in_float32: float = 1e-5) -> float:
    return in_float32 if implementation == "fused" else in_float64


def mode_name(mode):
    return f"{mode['tie']}-{mode['causal']}-{'self' if mode['include_self'] else 'noself'}"


def random_tree(rng: random.Random, depth: int, width: int) -> Any:
    """Nested lists: at most `depth` edges deep, at most `width` children a node; only children are common."""
    if depth == 0 or rng.random() < 0.25:
        return "leaf"
    children = 1 if rng.random() < 0.2 else rng.randint(1, width)
    return [random_tree(rng, depth - 1, width) for _ in range(children)]


def random_trees(rng: random.Random, count: int, depth: int = 3, width: int = 4, max_leaves: int = 14) -> List[Any]:
    """A batch: at times an empty tree or a bare leaf."""
    trees = []
    while len(trees) < count:
        tree = [] if rng.random() < 0.1 else random_tree(rng, depth, width)
        if count_leaves(tree) <= max_leaves:
            trees.append(tree)
    return trees


def count_leaves(tree: Any) -> int:
    return sum(count_leaves(child) for child in tree) if isinstance(tree, list) else 1


@dataclass
class Case:
    """A call of attention."""

    trees: List[Any]
    forest: Forest
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    options: Dict[str, Any] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> "Case":
        """With rounded tensors; alpha stays."""
        options = {name: value.to(dtype) if name == "positions" else value for name, value in self.options.items()}
        return Case(self.trees, self.forest, self.q.to(dtype), self.k.to(dtype), self.v.to(dtype), options)

    @property
    def positions(self) -> Optional[torch.Tensor]:
        return self.options.get("positions")

    @property
    def alpha(self):
        return self.options.get("alpha", 1.0)


def random_case(seed: int, mode: Dict[str, Any], *, positions: bool = True, alpha: Any = None, num_trees: int = 3,
                heads: int = 2, key_heads: int = 1, dtype=torch.float64, **shape: int) -> Case:
    """Inputs of width 3 and values of width 2. Positions share rows between nodes, and some nodes have none."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    trees = random_trees(rng, num_trees, **shape)
    forest = Forest.from_nested(trees)

    def normal(*size):
        return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

    leaves = forest.num_leaves
    options = dict(mode)
    if positions:
        options["positions"] = normal(4, heads, 2)
        options["position_index"] = torch.randint(-1, 4, (forest.num_nodes,), generator=generator)
    if alpha is not None:
        options["alpha"] = alpha
    return Case(trees, forest, normal(leaves, heads, 3), normal(leaves, key_heads, 3), normal(leaves, key_heads, 2),
                options)


def comb(depth: int) -> Forest:
    """At each level a leaf, then a deeper node; the deepest node is a leaf too: depth + 1 leaves."""
    parents = [-1]
    for level in range(depth):
        parents += [2 * level, 2 * level]  # nodes 2 * level + 1 (the leaf) and 2 * level + 2 (the next inner node)
    return Forest.from_parents(parents)
