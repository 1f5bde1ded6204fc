"""Attention over nested data: hierarchical self-attention for packed batches of trees."""

import importlib

from .forest import Forest
from .functional import attention, attention_matrix, attention_padded, energy, node_mass

__all__ = ["Forest", "HierarchicalCache", "Model", "attention", "attention_matrix", "attention_padded", "energy", "load",
           "node_mass"]
__version__ = "0.1.0"


def __getattr__(name):
    # loaded only for those who use them: they need libraries of their own, or transformers
    if name in ("hf", "nn"):
        return importlib.import_module(f".{name}", __name__)
    if name == "HierarchicalCache":
        return importlib.import_module(".cache", __name__).HierarchicalCache
    if name in ("load", "Model"):
        return getattr(importlib.import_module(".model", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
