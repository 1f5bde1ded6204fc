"""Hierarchical attention inside models of Hugging Face's transformers, in the layers that one chooses.

:func:`enable` changes the attention of a model in place and :func:`disable` takes it back; parameters, ``state_dict``
and ``save_pretrained`` are those of the model as it was. It goes through the attention interface of transformers, so
any model that uses it will do: nothing here knows an architecture by name.
"""

from __future__ import annotations

import copy
from typing import Callable, Iterable, List, Sequence, Tuple, TypeVar, Union

import torch

try:
    import transformers
except ImportError as error:
    raise ImportError("ramify.hf: transformers is not installed: pip install 'transformers>=4.57'") from error

if tuple(int(part) for part in transformers.__version__.split(".")[:2]) < (4, 57):
    raise ImportError(f"ramify.hf: transformers {transformers.__version__} is too old: "
                      "pip install 'transformers>=4.57'")

from ..forest import Branching, Forest
from . import _attention, _masks, _modules
from ._hierarchy import Hierarchy

__all__ = ["disable", "enable"]

Model = TypeVar("Model", bound=torch.nn.Module)

transformers.AttentionInterface.register(_attention.NAME, _attention.interface_attention)
transformers.AttentionMaskInterface.register(_attention.NAME, _masks.padding_mask)


def enable(
    model: Model,
    hierarchy: Union[Branching, Sequence[Tuple[int, int]], Callable[[List[int]], Forest]],
    layers: Union[str, Iterable[int]] = "all",
    *,
    tie: str = "block",
    include_self: bool = True,
    grid: Union[None, bool, Tuple[int, int]] = None,
) -> Model:
    """Gives the chosen layers of a model hierarchical attention, and returns the model. Calling it again replaces what
    an earlier call chose.

    Every sequence is one tree over its real tokens, wherever the padding is; [CLS], [SEP] and the like are leaves as
    all others. Causal models stay causal: row i depends on nothing behind i.

    Args:
        model: a model of transformers with one stack of self-attention layers, or that part of a larger one.
        hierarchy: window sizes from the bottom up, ``(2, 4, 8, 16)`` or ``"16*"``, as for :meth:`Forest.windows`. With
            ``grid``, windows of patches, ``(2, 7)`` or ``"2x2,7x7"``, as for :meth:`Forest.grid_windows`. Or a function
            of the sequences' lengths that returns their Forest, for a structure of your own such as sentences; it is
            called in every chosen layer, so it should return a forest that is ready.
        layers: numbers from 0, or ``"all"``. All other layers keep their attention.
        tie: ``"block"`` or ``"none"``, as for :func:`ramify.attention`; ``"none"`` is closer to the model's own.
        include_self: whether a token attends to itself. Causal models need it.
        grid: for models of images: the ``(rows, columns)`` of patches, or True to take them from the model's config.
            Tokens before the patches ([CLS], registers) are leaves beside the uppermost windows.

    >>> from transformers import BertConfig, BertModel
    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64))
    >>> model = enable(model.eval(), hierarchy=(2, 4, 8, 16), layers=[1, 3])
    >>> model(input_ids=torch.arange(100)[None]).last_hidden_state.shape
    torch.Size([1, 100, 32])
    >>> model = disable(model)
    """
    if tie not in ("block", "none"):
        raise ValueError(f"enable: tie is {tie!r}; expected 'block' or 'none'")
    stack = _modules.find(model)
    chosen = _modules.choose(stack.layers, layers)
    settings = _attention.Settings(Hierarchy(hierarchy, grid, stack.config), tie, include_self)

    disable(model)
    # Layers read the name of their attention from a config that the whole model shares: these get one of their own.
    config = copy.copy(stack.config)
    if config is not None:
        config._attn_implementation_internal = _attention.NAME
    for module in chosen:
        _attention.attach(module, settings, config)
    if len(chosen) == len(stack.layers):
        _attention.spare_the_full_mask(chosen, stack.config)
    return model


def disable(model: Model) -> Model:
    """Gives all layers the attention back that they had, and returns the model."""
    for module in model.modules():
        if _attention.is_enabled(module):
            _attention.detach(module)
    return model
