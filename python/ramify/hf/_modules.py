"""Finds the attention layers of a model and their numbers."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Union

import torch

from . import _attention

_CROSS = re.compile("cross_?att|encoder_attn|enc_?dec_?att", re.IGNORECASE)


class Stack(NamedTuple):
    """The attention layers of a model, and the config that they share."""

    layers: Dict[int, torch.nn.Module]
    config: Any


def find(model: torch.nn.Module) -> Stack:
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"enable: model is {type(model).__name__}; expected a model of transformers")
    kind = type(model).__name__
    found = {name: module for name, module in model.named_modules() if _attention.is_attention(module)}
    if not found:
        raise ValueError(f"enable: {kind} has no attention that can be replaced: it does not use the attention "
                         f"interface of transformers {_attention.advice(model)}")
    for name, module in found.items():
        if _CROSS.search(f"{name} {type(module).__name__}"):
            raise ValueError(f"enable: {kind} has cross attention ({name}), which looks at another sequence; enable "
                             "its encoder alone, such as model.get_encoder()")
    configs = {name: _config(model, name) for name in found}
    stacks: Dict[int, List[str]] = {}
    for name, config in configs.items():
        stacks.setdefault(id(config), []).append(name)
    if len(stacks) > 1:
        parts = " and ".join(_common_part(names) for names in stacks.values())
        raise ValueError(f"enable: {kind} has several stacks of layers, {parts}; enable one of these parts")
    return Stack(dict(zip(_numbers(list(found), kind), found.values())), next(iter(configs.values())))


def _config(model: torch.nn.Module, name: str) -> Any:
    """The config of a module, or of the nearest around it that has one."""
    parts = name.split(".") if name else []
    for end in range(len(parts), -1, -1):
        config = _attention.exact_config(model.get_submodule(".".join(parts[:end])))
        if config is not None:
            return config
    return None


def _common_part(names: List[str]) -> str:
    """The path that all names begin with, without the number of a layer."""
    common = []
    for parts in zip(*(name.split(".") for name in names)):
        if len(set(parts)) > 1 or parts[0].isdigit():
            break
        common.append(parts[0])
    return ".".join(common) or names[0]


def _numbers(names: List[str], kind: str) -> List[int]:
    """The layers' numbers: the place in their paths where these count, ``encoder.layer.7.attention.self``."""
    places = list(zip(*(name.split(".") for name in names)))
    counting = [place for place in places if all(part.isdigit() for part in place)]
    varying = [place for place in counting if len(set(place)) > 1]
    if not varying:
        varying = counting[-1:] or [("0",)]
    numbers = [int(part) for part in varying[0]]
    if len(varying) > 1 or len(set(numbers)) < len(names):
        raise ValueError(f"enable: the layers of {kind} cannot be numbered ({', '.join(names[:3])}, …); enable a part "
                         "that has one attention a layer")
    return numbers


def choose(found: Dict[int, torch.nn.Module], layers: Union[str, Iterable[int]]) -> List[torch.nn.Module]:
    if isinstance(layers, str) and layers == "all":
        return list(found.values())
    if isinstance(layers, (str, bool)) or not hasattr(layers, "__iter__"):
        raise ValueError(f"enable: layers is {layers!r}; expected numbers from 0, such as [7, 9, 11], or 'all'")
    layers = list(layers)
    if not layers:
        raise ValueError("enable: layers is empty; name at least one layer, or disable() the model")
    for layer in layers:
        if isinstance(layer, bool) or layer not in found:
            has = f"0 to {len(found) - 1}" if list(found) == list(range(len(found))) else ", ".join(map(str, found))
            raise ValueError(f"enable: there is no layer {layer!r}; the model has attention in layers {has}")
    return [found[layer] for layer in dict.fromkeys(layers)]
