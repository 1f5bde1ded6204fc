"""Hierarchical attention as functions of tensors."""

from __future__ import annotations

from typing import Optional, Sequence, TypedDict, Union

import torch
from typing_extensions import Unpack

from .forest import Branching, Forest, _integers

Alpha = Union[float, torch.Tensor]


class AttentionOptions(TypedDict, total=False):
    """The keyword arguments of :func:`attention`."""

    positions: Optional[torch.Tensor]
    position_index: Optional[torch.Tensor]
    scale: Optional[float]
    include_self: Optional[bool]
    tie: str
    causal: str
    window: int
    alpha: Alpha
    implementation: str


def _op_arguments(forest: Forest, *, positions=None, position_index=None, scale=None, include_self=None, tie="block",
                  causal="none", window=0, alpha=1.0, implementation="auto"):
    """What the op takes behind q, k and v, and by name."""
    if not isinstance(forest, Forest):
        raise ValueError(f"attention: forest is {type(forest).__name__}; expected a ramify.Forest")
    if positions is not None and position_index is None:
        position_index = forest._field("sibling_index")
    if not isinstance(alpha, torch.Tensor):
        alpha = None if alpha == 1.0 else torch.tensor(alpha, dtype=torch.float64)
    arguments = (forest._arrays, forest._plan(tie, causal), positions, position_index, alpha, scale, include_self, tie,
                 causal, implementation)
    return arguments, {"window": window}


def _check_rank(q: torch.Tensor, k: torch.Tensor) -> None:
    for name, tensor in (("q", q), ("k", k)):
        if tensor.dim() != 3:
            raise ValueError(f"attention: {name} has shape {list(tensor.shape)}; expected [leaves, heads, dim]")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    forest: Forest,
    *,
    positions: Optional[torch.Tensor] = None,
    position_index: Optional[torch.Tensor] = None,
    scale: Optional[float] = None,
    include_self: Optional[bool] = None,
    tie: str = "block",
    causal: str = "none",
    window: int = 0,
    alpha: Alpha = 1.0,
    implementation: str = "auto",
) -> torch.Tensor:
    """Attention that respects a hierarchy: the closest to softmax attention, in KL, among all that are constant on
    pairs of siblings. Cost O(families · b²) instead of O(leaves²). A flat tree gives softmax attention.

    Args:
        q: ``[T, H, d]``, one row a leaf of the forest, left to right. float32, float64, bfloat16 or float16.
        k: ``[T, Hkv, d]``; ``Hkv`` divides ``H`` (grouped queries).
        v: ``[T, Hkv, dv]``.
        forest: the hierarchy, with T leaves.
        positions: ``[P, H, dp]`` vectors whose inner products are added to the scores of siblings.
        position_index: ``[num_nodes]`` int64, a row of ``positions`` for each node of the forest, -1 for none.
            Default: each node's place in its family.
        scale: of ``q·k``; default ``1/sqrt(d)``.
        include_self: whether a leaf attends to itself. Default: only with a causal form, which needs it.
        tie: ``"block"``, the leaves below a node share how they look at its siblings (the paper's attention), or
            ``"none"``, every leaf looks with its own query.
        causal: ``"none"``; ``"block"``, siblings to the left, for encoders; ``"prefix"``, never depends on later
            leaves, for language models.
        window: with ``tie="none"``, leaves at most this far away (to the left only, with a causal form) are seen one
            by one, whatever the tree; what lies wholly outside stays pooled, and nothing is counted twice. For decoders:
            the last tokens exact, all before them through the hierarchy. Not with positions or ``alpha``.
        alpha: 1 is softmax, up to 2 (sparsemax) gives exact zeros. A number, or a tensor of one value, or of one a
            level from the root (``tie="block"``). Differentiable as a tensor; below 1.001 it is softmax, without a
            gradient by alpha.
        implementation: ``"auto"`` takes the fastest that supports the call; ``"fused"``, ``"composed"`` or
            ``"reference"`` force one. The fused kernels, for CPUs and CUDA, know neither float64 nor ``alpha``.

    Returns:
        ``[T, H, dv]``, in the dtype of q. Differentiable in q, k, v, positions and alpha.

    >>> forest = Forest.windows([512], "16*")
    >>> q, k, v = torch.randn(3, 512, 8, 64).unbind(0)
    >>> attention(q, k, v, forest).shape
    torch.Size([512, 8, 64])
    """
    arguments, named = _op_arguments(forest, positions=positions, position_index=position_index, scale=scale,
                                     include_self=include_self, tie=tie, causal=causal, window=window, alpha=alpha,
                                     implementation=implementation)
    return torch.ops.ramify.attention(q, k, v, *arguments, **named)[0]


def energy(
    q: torch.Tensor,
    k: torch.Tensor,
    forest: Forest,
    **options: Unpack[AttentionOptions],
) -> torch.Tensor:
    """The energy of every tree, ``[num_trees, H]``: what attention is the gradient of.

    For a flat tree it is the mean over leaves of the log-sum-exp of their scores. ``attention(q, k, k, forest)`` of a
    tree with N leaves equals ``N / scale`` times the gradient of its energy by q. -inf where a tree has nothing to
    attend to (no leaf, or one leaf without ``include_self``). Arguments as for :func:`attention`; differentiable.

    >>> forest = Forest.windows([6, 4], "2*")
    >>> q, k = torch.randn(2, 10, 1, 8).unbind(0)
    >>> energy(q, k, forest).shape
    torch.Size([2, 1])
    """
    _check_rank(q, k)
    arguments, named = _op_arguments(forest, **options)
    return torch.ops.ramify.attention(q, k, k.new_zeros((*k.shape[:2], 0)), *arguments, **named)[1]


_MATRIX_LEAVES = 8192


def attention_matrix(
    q: torch.Tensor,
    k: torch.Tensor,
    forest: Forest,
    **options: Unpack[AttentionOptions],
) -> torch.Tensor:
    """The whole attention matrix, ``[T, H, T]``: ``matrix[i, h]`` holds the weights of leaf i. For small forests (at
    most 8,192 leaves); :func:`node_mass` has no such limit. Arguments as for :func:`attention`; differentiable.

    >>> forest = Forest.from_nested([["a", ["b", "c"]]])
    >>> q, k = torch.randn(2, 3, 1, 8).unbind(0)
    >>> rows = attention_matrix(q, k, forest, include_self=True).sum(-1)
    >>> torch.allclose(rows, torch.ones(3, 1))
    True
    """
    _check_rank(q, k)
    leaves = q.shape[0]
    if leaves > _MATRIX_LEAVES:
        raise ValueError(f"attention_matrix: {leaves} leaves give a matrix of {leaves} x {leaves} a head; at most "
                         f"{_MATRIX_LEAVES} leaves, or use node_mass")
    arguments, named = _op_arguments(forest, **options)
    identity = torch.eye(leaves, dtype=k.dtype, device=k.device)[:, None, :].expand(leaves, k.shape[1], leaves)
    return torch.ops.ramify.attention(q, k, identity, *arguments, **named)[0]


def node_mass(
    q: torch.Tensor,
    k: torch.Tensor,
    forest: Forest,
    leaf: Optional[int] = None,
    **options: Unpack[AttentionOptions],
) -> torch.Tensor:
    """The attention that a leaf pays to every node, ``[num_nodes, H]``: what to show in a picture or a report.

    The mass of a node is the sum of the weights of the leaves below it, so a root has 1. Without ``leaf`` it is the
    mean over the leaves of each tree. Linear in the forest, whatever its size. Other arguments as for
    :func:`attention`; not differentiable.

    >>> forest = Forest.from_nested([["a", ["b", "c"]]])
    >>> q, k = torch.randn(2, 3, 1, 8).unbind(0)
    >>> node_mass(q, k, forest, leaf=0).squeeze(1)[:3]  # the root, a itself, and the list: all of it goes there
    tensor([1., 0., 1.])
    """
    arguments, named = _op_arguments(forest, **options)
    return torch.ops.ramify.node_mass(q, k, *arguments, leaf, **named)


def attention_padded(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: Optional[Union[Sequence[int], torch.Tensor]],
    hierarchy: Union[Branching, Forest],
    **options: Unpack[AttentionOptions],
) -> torch.Tensor:
    """:func:`attention` for padded batches ``[B, H, N, d]``, as ``scaled_dot_product_attention`` takes them.

    Args:
        q, k, v: ``[B, H, N, d]``, ``[B, Hkv, N, d]``, ``[B, Hkv, N, dv]``.
        lengths: how many of the N rows of each sequence are real; None: all. The rest is not looked at.
        hierarchy: window sizes as for :meth:`Forest.windows`, or a Forest with ``lengths[b]`` leaves in tree b, made
            once and reused.
        options: as for :func:`attention`.

    Returns:
        ``[B, H, N, dv]``, zero in the padding.

    >>> q, k, v = torch.randn(3, 2, 8, 100, 64).unbind(0)
    >>> attention_padded(q, k, v, [100, 70], "16*").shape
    torch.Size([2, 8, 100, 64])
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"attention_padded: {name} has shape {list(tensor.shape)}; expected [batch, heads, "
                             "rows, dim]")
        if tensor.shape[0] != q.shape[0] or tensor.shape[2] != q.shape[2]:
            raise ValueError(f"attention_padded: {name} has {tensor.shape[0]} sequences of {tensor.shape[2]} rows, q "
                             f"has {q.shape[0]} of {q.shape[2]}; they must be equal")
    batch, _, rows, _ = q.shape
    lengths = [rows] * batch if lengths is None else _integers(lengths, "attention_padded: lengths").tolist()
    if len(lengths) != batch or any(not 0 <= length <= rows for length in lengths):
        raise ValueError(f"attention_padded: lengths {lengths}; expected {batch} numbers from 0 to {rows}")
    if isinstance(hierarchy, Forest):
        forest = hierarchy
        sizes = forest.tree_leaf_begin.diff().tolist()
        if sizes != lengths:
            raise ValueError(f"attention_padded: the forest's trees have {sizes} leaves, lengths are {lengths}")
    else:
        forest = Forest.windows(lengths, hierarchy).to(q.device)

    index = torch.cat([torch.arange(length) + b * rows for b, length in enumerate(lengths)] or
                      [torch.empty(0, dtype=torch.int64)]).to(q.device)

    def packed(tensor):
        return tensor.transpose(1, 2).flatten(0, 1).index_select(0, index)

    out = attention(packed(q), packed(k), packed(v), forest, **options)
    padded = out.new_zeros((batch * rows, *out.shape[1:])).index_copy(0, index, out)
    return padded.unflatten(0, (batch, rows)).transpose(1, 2)
