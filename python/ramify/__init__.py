"""Attention over nested data: hierarchical self-attention for packed batches of trees."""

from .forest import Forest
from .functional import attention, attention_matrix, attention_padded, energy, node_mass

__all__ = ["Forest", "attention", "attention_matrix", "attention_padded", "energy", "node_mass"]
__version__ = "0.1.0"
