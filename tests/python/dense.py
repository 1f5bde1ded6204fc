"""The attention matrix by brute force, from the definition: what both implementations are measured by.

Unlike them it recurses over the tree, holds whole matrices, and computes prefix attention by cutting the tree.
One tree and one head at a time, in NumPy and float64; for small trees.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, List

import numpy as np


@dataclass
class Node:
    number: int = -1  # breadth first over the batch
    depth: int = 0
    leaves: List[int] = field(default_factory=list)
    children: List["Node"] = field(default_factory=list)


def parse(trees: List[Any]) -> List[Node]:
    """Numbered nodes of nested lists; one root a tree that is not empty."""
    num_leaves = 0

    def build(tree, depth):
        nonlocal num_leaves
        node = Node(depth=depth)
        if isinstance(tree, list):
            node.children = [build(child, depth + 1) for child in tree]
            node.leaves = [leaf for child in node.children for leaf in child.leaves]
        else:
            node.leaves = [num_leaves]
            num_leaves += 1
        return node

    roots = [build(tree, 0) for tree in trees if tree != []]
    queue, number = deque(roots), 0
    while queue:
        node = queue.popleft()
        node.number, number = number, number + 1
        queue.extend(node.children)
    return roots


def all_nodes(roots: List[Node]) -> List[Node]:
    nodes, queue = [], deque(roots)
    while queue:
        nodes.append(queue.popleft())
        queue.extend(nodes[-1].children)
    return nodes


def cut(node: Node, last: int) -> Node:
    """The part of a tree with leaves up to `last`; nodes keep their numbers."""
    children = [cut(child, last) for child in node.children if child.leaves[0] <= last]
    return Node(node.number, node.depth, [leaf for leaf in node.leaves if leaf <= last], children)


def softmax(z):
    weights = np.exp(z - z.max())
    return weights / weights.sum(), z.max() + np.log(weights.sum())


def entmax(z, alpha):
    """p = [(alpha-1) z - tau]_+^(1/(alpha-1)) with tau by bisection, and p·z + Tsallis entropy."""
    def weights(tau):
        return np.maximum((alpha - 1) * z - tau, 0) ** (1 / (alpha - 1))

    high = (alpha - 1) * z.max()
    low = high - 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if weights(middle).sum() >= 1 else (low, middle)
    p = weights(low)
    p = p / p.sum()
    return p, p @ z + (p - p**alpha).sum() / (alpha * (alpha - 1))


def distribution(z, alpha):
    """Weights and energy of entries of which some may be -inf; zeros and -inf if all are."""
    z = np.asarray(z, dtype=np.float64)
    weights, there = np.zeros_like(z), z > -np.inf
    if not there.any():
        return weights, -np.inf
    weights[there], energy = softmax(z[there]) if alpha == 1 else entmax(z[there], alpha)
    return weights, energy


@dataclass
class Head:
    """One head of a call: rows of all leaves, position vectors of all nodes."""

    q: np.ndarray
    k: np.ndarray
    eps: np.ndarray
    scale: float
    include_self: bool
    tie: str
    causal: str
    alpha: Any  # a number, or one a level from the root

    def alpha_at(self, depth):
        return self.alpha if np.ndim(self.alpha) == 0 else self.alpha[depth]

    def score(self, query, a: Node, b: Node):
        return (self.scale * query @ self.k[b.leaves].mean(0) + self.eps[a.number] @ self.eps[b.number]
                + np.log(len(b.leaves)))

    def self_score(self, leaf: Node):
        (i,) = leaf.leaves
        return self.scale * self.q[i] @ self.k[i] + self.eps[leaf.number] @ self.eps[leaf.number]

    def siblings(self, family: List[Node], c: int) -> List[Node]:
        return family[:c] if self.causal != "none" else family[:c] + family[c + 1:]

    def tied(self, node: Node):
        """(matrix, energy) of the leaves below a node among themselves."""
        matrix = np.zeros((len(self.q), len(self.q)))
        if not node.children:
            if not self.include_self:
                return matrix, -np.inf
            matrix[node.leaves[0], node.leaves[0]] = 1
            return matrix, self.self_score(node)
        energy = 0.0
        for c, child in enumerate(node.children):
            inner, e = self.tied(child)
            siblings = self.siblings(node.children, c)
            query = self.q[child.leaves].mean(0)
            weights, t = distribution([e] + [self.score(query, child, b) for b in siblings],
                                      self.alpha_at(node.depth))
            matrix += weights[0] * inner
            for weight, b in zip(weights[1:], siblings):
                matrix[np.ix_(child.leaves, b.leaves)] = weight / len(b.leaves)
            energy += len(child.leaves) / len(node.leaves) * t
        return matrix, energy

    def untied(self, root: Node):
        matrix = np.zeros((len(self.q), len(self.q)))
        energies = []

        def visit(node, entries):
            if not node.children:
                (i,) = node.leaves
                seen = entries + [(node, node)] if self.include_self else entries
                scores = [self.self_score(a) if a is b else self.score(self.q[i], a, b) for a, b in seen]
                weights, energy = distribution(scores, self.alpha_at(0))
                for weight, (_, b) in zip(weights, seen):
                    matrix[i, b.leaves] += weight / len(b.leaves)
                energies.append(energy)
            for c, child in enumerate(node.children):
                visit(child, entries + [(child, b) for b in self.siblings(node.children, c)])

        visit(root, [])
        return matrix, np.mean(energies)

    def prefix(self, root: Node):
        matrix = np.zeros((len(self.q), len(self.q)))
        for i in root.leaves:
            matrix[i] = self.tied(cut(root, i))[0][i]
        return matrix, self.tied(root)[1]

    def run(self, root: Node):
        if self.tie == "none":
            return self.untied(root)
        return self.prefix(root) if self.causal == "prefix" else self.tied(root)


def heads_of(case) -> List[Head]:
    """The heads of a random_trees.Case; keys of grouped heads are shared."""
    def array(tensor):
        return tensor.detach().double().numpy()

    heads, alpha = case.q.shape[1], case.alpha
    alpha = alpha if isinstance(alpha, float) else array(alpha)
    eps = np.zeros((case.forest.num_nodes, heads, 1))
    if case.positions is not None:
        table = array(case.positions)
        index = case.options.get("position_index")
        index = (case.forest.sibling_index if index is None else index).numpy()
        eps = np.where(index[:, None, None] >= 0, table[index], 0)
    scale = case.options.get("scale", case.q.shape[2] ** -0.5)
    mode = [case.options[name] for name in ("include_self", "tie", "causal")]
    group = heads // case.k.shape[1]
    return [Head(array(case.q[:, h]), array(case.k[:, h // group]), eps[:, h], scale, *mode, alpha)
            for h in range(heads)]


def attention_matrix(case):
    """([T, H, T], [trees with leaves, H]) of a random_trees.Case."""
    roots = parse(case.trees)
    matrices, energies = [], []
    for head in heads_of(case):
        results = [head.run(root) for root in roots]
        matrices.append(sum([matrix for matrix, _ in results], np.zeros((len(head.q), len(head.q)))))
        energies.append([energy for _, energy in results])
    return np.stack(matrices, 1), np.array(energies).T
