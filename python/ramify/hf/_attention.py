"""The attention of one layer: what transformers calls instead of its own, and how a module comes to call it.

Modules that use the attention interface look up a function by the name in their config. Those that do not (BERT and its
kin before transformers 5) call torch's ``scaled_dot_product_attention``; their calls are caught.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from typing import Any, List, Optional, Tuple

import torch
import torch.nn.functional as F
import transformers
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..functional import attention
from . import _masks
from ._hierarchy import Hierarchy

NAME = "ramify"

# What some models hand to their attention beside a mask, and what it is.
_UNSUPPORTED = {
    "position_bias": "a bias of positions", "head_mask": "a mask of heads", "softcap": "capped scores",
    "s_aux": "attention sinks", "cu_seq_lens_q": "packed sequences", "cache": "a paged cache",
}


@dataclasses.dataclass
class Settings:
    """What one call of ``enable`` asked for."""

    hierarchy: Hierarchy
    tie: str
    include_self: bool
    warned: bool = False  # that dropout is left out


@dataclasses.dataclass
class Enabled:
    """What a module is given, and what it had before."""

    settings: Settings
    config: Any
    model_implementation: Optional[str] = None  # of the model's config, where that was changed, too


# Modules


def _names_in_forward(module: torch.nn.Module) -> Tuple[str, ...]:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code.co_names if code else ()


def uses_interface(module: torch.nn.Module) -> bool:
    return "ALL_ATTENTION_FUNCTIONS" in _names_in_forward(module)


def is_attention(module: torch.nn.Module) -> bool:
    return uses_interface(module) or "scaled_dot_product_attention" in _names_in_forward(module)


def advice(model: torch.nn.Module) -> str:
    """What may help where no attention was found: before transformers 5, eager modules are classes of their own."""
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if implementation == "eager" and int(transformers.__version__.split(".")[0]) < 5:
        return f"{transformers.__version__}; load it with attn_implementation='sdpa', or take transformers 5"
    return transformers.__version__


def is_enabled(module: torch.nn.Module) -> bool:
    return "_ramify" in module.__dict__


def exact_config(module: torch.nn.Module) -> Any:
    """The config of a module without our changes; None where it has none."""
    return module._ramify.config if is_enabled(module) else getattr(module, "config", None)


def attach(module: torch.nn.Module, settings: Settings, config: Any) -> None:
    module._ramify = Enabled(settings, getattr(module, "config", None))
    if uses_interface(module):
        module.config = config
    else:
        module.forward = functools.partial(_forward_with_calls_caught, module)


def spare_the_full_mask(modules: List[torch.nn.Module], config: Any) -> None:
    """For modules that are all layers of a model: none of them needs an N x N mask, and the model makes what its own
    config asks for, so that asks for the padding alone. The other half of an encoder-decoder may need more."""
    if not uses_interface(modules[0]) or getattr(config, "is_encoder_decoder", False):
        return
    for module in modules:
        module._ramify.model_implementation = config._attn_implementation
    config._attn_implementation_internal = NAME


def detach(module: torch.nn.Module) -> None:
    enabled = module.__dict__.pop("_ramify")
    if not uses_interface(module):
        del module.forward
        return
    module.config = enabled.config
    if enabled.model_implementation is not None and module.config._attn_implementation == NAME:
        module.config._attn_implementation_internal = enabled.model_implementation


# Attention


@torch.compiler.disable  # the forest depends on the lengths, that is, on values
def interface_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
                        **options):
    """The function behind the name: ``[batch, heads, tokens, dim]`` to ``[batch, tokens, heads, dim]``."""
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if not is_enabled(module):
        return _exact_attention(module, query, key, value, attention_mask, causal, dropout=dropout, scaling=scaling,
                                is_causal=is_causal, **options)
    for name, meaning in _UNSUPPORTED.items():
        if options.get(name) is not None:
            raise ValueError(f"attention: {type(module).__name__} has {meaning} ({name}), which hierarchical attention "
                             "has not")
    window = options.get("sliding_window")
    if window is not None and window < query.shape[2]:
        raise ValueError(f"attention: {type(module).__name__} has a sliding window of {window} tokens, which "
                         f"hierarchical attention has not; these are {query.shape[2]} tokens")
    if options.get("output_attentions") or getattr(module.config, "output_attentions", False):
        _refuse_weights(module)
    out = hierarchical_attention(module, query, key, value, attention_mask, dropout, scaling, causal)
    return out.transpose(1, 2).contiguous(), None


def _exact_attention(module, query, key, value, mask, causal, **options):
    """For a model that shares its config with one whose layers are all enabled, as copies made from a config do."""
    if mask is not None and mask.dim() == 2:
        mask = (mask != 0)[:, None, None, :].expand(-1, 1, query.shape[2], -1)
        mask = mask.tril() if causal else mask
    return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, mask, **options)


def _refuse_weights(module):
    raise ValueError(f"attention: {type(module).__name__} is asked for its attention weights or for a mask of heads; "
                     "hierarchical attention makes no N x N weights: leave out output_attentions and head_mask, or "
                     "disable() the model")


def hierarchical_attention(module, query, key, value, mask, dropout, scale, is_causal):
    """``[batch, heads, tokens, dim]``, zero in the padding."""
    settings = module._ramify.settings
    batch, _, tokens, _ = query.shape
    if key.shape[2] != tokens:
        raise ValueError(f"attention: {tokens} queries and {key.shape[2]} keys; hierarchical attention needs all "
                         "tokens at once: generate with use_cache=False; there is none for cross attention")
    if dropout and not settings.warned:
        settings.warned = True
        warnings.warn(f"ramify.hf: layers with hierarchical attention train without the dropout of attention weights "
                      f"(p = {dropout}) that the model asks for", stacklevel=2)
    padding, is_causal = _masks.read(mask, batch, tokens, is_causal)
    lengths = (tokens,) * batch if padding is None else padding.lengths
    forest, index = settings.hierarchy.forest(lengths, query.device)
    if padding is not None:
        index = padding.index if index is None else padding.index[index]

    def packed(tensor):
        rows = tensor.transpose(1, 2).flatten(0, 1)
        return rows if index is None else rows.index_select(0, index)

    causal = "none"
    if is_causal:  # with untied queries the two causal forms are one, and "block" has the faster code
        causal = "block" if settings.tie == "none" else "prefix"
    out = attention(packed(query), packed(key), packed(value), forest, scale=scale, include_self=settings.include_self,
                    tie=settings.tie, causal=causal)
    if index is not None:
        out = out.new_zeros((batch * tokens, *out.shape[1:])).index_copy(0, index, out)
    return out.unflatten(0, (batch, tokens)).transpose(1, 2)


class _CaughtCalls(TorchFunctionMode):
    """Within it, ``scaled_dot_product_attention`` is the hierarchical attention of a module."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.caught = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is not F.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        self.caught = True
        return self._attention(*args, **(kwargs or {}))

    def _attention(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                   enable_gqa=False):
        return hierarchical_attention(self.module, query, key, value, attn_mask, dropout_p, scale, is_causal)


@torch.compiler.disable
def _forward_with_calls_caught(module, *args, **kwargs):
    with _CaughtCalls(module) as calls:
        out = type(module).forward(module, *args, **kwargs)
    if not calls.caught:  # the module has a slow path of its own for these
        _refuse_weights(module)
    return out
