"""The memory of attention while a sequence grows."""

from __future__ import annotations

from typing import Optional, Sequence

import torch

from . import _library

_library.load("libramify_cache.so")

__all__ = ["HierarchicalCache"]


class HierarchicalCache:
    """What later tokens can still see of a sequence, for one layer: O(b log N) rows a head instead of N.

    Args:
        heads, dim: of queries. ``key_heads`` (default: ``heads``) and ``value_dim`` (default: ``dim``) of the rest.
        hierarchy: windows from the bottom up, as for :meth:`Forest.windows`. A ``0`` is a level whose nodes only
            :meth:`close` ends, such as sentences: ``"0,16*"``.
        tie: ``"none"``, rows of ``attention(tie="none", causal="block")``; or ``"block"``, of ``causal="prefix"``.
        window: with ``tie="none"``, so many tokens before the last are seen one by one.
        scale: of scores; default ``dim ** -0.5``.
        owner: a name of what the numbers belong to, such as a model and a layer; bytes of another are refused.
        sequences: how many there are in the batch.

    Numbers are float32 on the CPU. A call that raises ``ValueError`` has changed nothing.

    >>> cache = HierarchicalCache(heads=2, dim=8)
    >>> q, k, v = torch.randn(3, 1, 100, 2, 8)
    >>> cache.append(q, k, v).shape  # the rows of attention over all that came so far
    torch.Size([1, 100, 2, 8])
    >>> cache.tokens()
    100
    """

    def __init__(self, heads: int, dim: int, *, key_heads: Optional[int] = None, value_dim: Optional[int] = None,
                 hierarchy: str = "16*", tie: str = "none", window: int = 0, scale: Optional[float] = None,
                 owner: str = "", sequences: int = 1):
        if tie not in ("none", "block"):
            raise ValueError(f"cache: tie is {tie!r}; expected 'none' or 'block'")
        shape = [heads, heads if key_heads is None else key_heads, dim, dim if value_dim is None else value_dim]
        self._cache = torch.classes.ramify.HierarchicalCache(shape, hierarchy, tie, window, scale, owner, sequences)

    @classmethod
    def _of(cls, handle) -> HierarchicalCache:
        cache = cls.__new__(cls)
        cache._cache = handle
        return cache

    def append(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sequence: Optional[int] = None) -> torch.Tensor:
        """Adds n tokens to each of S sequences, or to one of them: ``[S, n, H, d]`` -> ``[S, n, H, dv]``, the rows that
        causal attention over the whole sequences would have for these tokens. Without gradients."""
        return self._cache.append(q, k, v, sequence)

    def look(self, q: torch.Tensor) -> torch.Tensor:
        """The rows of queries that are no tokens and stay out of the cache. Needs ``tie="none"``."""
        return self._cache.look(q)

    def close(self, level: int = 1, sequence: Optional[int] = None) -> None:
        """Ends the open nodes up to this level (1 holds tokens): the next token begins new ones."""
        self._cache.close(level, sequence)

    def roll_back(self, tokens: int) -> None:
        """Forgets the last tokens of every sequence, at most :meth:`max_roll_back`."""
        self._cache.roll_back(tokens)

    def max_roll_back(self) -> int:
        """How many tokens are open still; older ones are pooled and cannot be taken apart."""
        return self._cache.max_roll_back()

    def fork(self) -> HierarchicalCache:
        """A copy that goes on by itself."""
        return self._of(self._cache.fork())

    def reorder(self, sequences: Sequence[int]) -> None:
        """Sequence i becomes a copy of what was ``sequences[i]``; another number of them is possible."""
        self._cache.reorder([int(s) for s in sequences])

    @property
    def num_sequences(self) -> int:
        return self._cache.num_sequences()

    def tokens(self, sequence: int = 0) -> int:
        return self._cache.tokens(sequence)

    def bytes(self) -> int:
        """Memory of all numbers of all sequences."""
        return self._cache.bytes()

    def to_bytes(self) -> bytes:
        """Everything, with a checksum."""
        return self._cache.serialize().numpy().tobytes()

    def restore(self, data: bytes) -> HierarchicalCache:
        """The cache that gave ``data``, which must have had the options of this one."""
        return self._of(self._cache.restore(_tensor_of(data)))

    @classmethod
    def from_bytes(cls, data: bytes) -> HierarchicalCache:
        """The cache that gave ``data``, with the options it had."""
        return cls._of(torch.classes.ramify.HierarchicalCache.restored(_tensor_of(data)))

    def __reduce__(self):
        return (HierarchicalCache.from_bytes, (self.to_bytes(),))

    def __repr__(self) -> str:
        return f"HierarchicalCache({self.num_sequences} sequences, {self.tokens()} tokens, {self.bytes()} bytes)"


def _tensor_of(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
