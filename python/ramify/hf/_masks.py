"""What an attention mask of transformers says: which tokens are real, and whether attention is causal.

A mask is made once for all layers, in the form that the model's own attention wants: nothing, ``[batch, tokens]``, or
``[batch, 1, tokens, tokens]`` of booleans or of numbers to add. The last form can hold anything; here it may hold
padding and causality alone.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import masking_utils

# What is added to a score to mask it: the least number of the dtype, -inf, or -10000 in old models.
_MASKED = -1e4

_PLAIN = tuple(getattr(masking_utils, name) for name in ("causal_mask_function", "bidirectional_mask_function")
               if hasattr(masking_utils, name))  # 4.57 has the first only


class Padding(NamedTuple):
    """The real tokens of a padded batch."""

    lengths: Tuple[int, ...]  # how many each sequence has
    index: torch.Tensor  # [sum of lengths]: their rows in [batch * tokens]


# Layers share a mask: what it says is read once, for as long as it lives.
_read = WeakTensorKeyDictionary()


def padding_mask(*arguments, **options) -> Optional[torch.Tensor]:
    """The mask of a model of which all layers are hierarchical: ``[batch, tokens]``, as transformers gives it to
    flash attention. Patterns other than plain ones, and caches, keep the full form, which says what they are."""
    queries = options.get("q_length", options.get("cache_position"))
    queries = queries.shape[0] if isinstance(queries, torch.Tensor) and queries.dim() else queries
    if not arguments and options.get("mask_function") in _PLAIN and queries == options.get("kv_length"):
        return options.get("attention_mask")
    return masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](*arguments, **options)


def read(mask: Optional[torch.Tensor], batch: int, tokens: int, is_causal: bool) -> Tuple[Optional[Padding], bool]:
    """The padding (None: all tokens are real) and whether attention is causal, which only a full mask says itself."""
    if mask is None:
        return None, is_causal
    if not isinstance(mask, torch.Tensor):
        raise ValueError(f"attention: the mask is a {type(mask).__name__}, which hierarchical attention does not read; "
                         "load the model with attn_implementation='sdpa'")
    # Tensors of inference mode count no changes; the model has just made them, and nothing changes them.
    asked = (0 if mask.is_inference() else mask._version, batch, tokens, is_causal)
    known = _read.get(mask)
    if known is None or known[0] != asked:
        with torch.inference_mode(False), torch.no_grad():
            known = _read[mask] = asked, _read_now(mask, batch, tokens, is_causal)
    return known[1]


def _read_now(mask, batch, tokens, is_causal):
    if mask.dim() == 2 and mask.shape == (batch, tokens):
        real = mask != 0
    elif mask.dim() == 4 and mask.shape[0] in (1, batch) and mask.shape[2] in (1, tokens) and mask.shape[3] == tokens:
        real, is_causal = _open(mask)
        real = real.expand(batch, tokens)
    else:
        raise ValueError(f"attention: the mask has shape {list(mask.shape)}; expected the padding of {batch} sequences "
                         f"of {tokens} tokens")
    lengths = tuple(real.sum(-1).tolist())
    if all(length == tokens for length in lengths):
        return None, is_causal
    return Padding(lengths, real.flatten().nonzero().flatten()), is_causal


def _open(mask: torch.Tensor) -> Tuple[torch.Tensor, bool]:
    """The real tokens ``[batch, tokens]`` of a full mask, and whether it is causal; an error where it says more."""
    keep = mask if mask.dtype == torch.bool else mask == 0
    real = keep[:, 0, -1]  # the last row sees all there is, causal or not
    if mask.dtype == torch.bool or bool((keep | (mask <= _MASKED)).all()):
        every_row = real[:, None, None, :].expand_as(keep)
        if _same(keep, every_row):
            return real, False
        if _same(keep, every_row.tril()):
            return real, True
    raise ValueError("attention: the mask is not just padding; hierarchical attention takes no masks of your own, "
                     "biases, sliding windows or packed sequences: disable() the model, or leave out such layers")


def _same(keep: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether all rows are equal. One that sees no token may be open to all instead: some softmaxes need that."""
    if torch.equal(keep, expected):
        return True
    return bool(((keep == expected).all(-1) | (keep.all(-1) & ~expected.any(-1))).all())
