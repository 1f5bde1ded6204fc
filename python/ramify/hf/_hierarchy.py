"""From the lengths of the sequences of a batch to their forest: windows, a grid of patches, or the user's function."""

from __future__ import annotations

import functools
from typing import Any, Optional, Tuple

import torch

from ..forest import Forest

# Tokens before the patches of an image: [CLS], a distillation token, registers. More than this is a wrong grid.
_MAX_LEADING = 8
# A forward pass asks once a layer, always for the same forest. Lengths that come back later are a bonus.
_KEPT_FORESTS = 32


class Hierarchy:
    """What ``enable`` was given as ``hierarchy`` and ``grid``, checked."""

    def __init__(self, hierarchy: Any, grid: Any, config: Any):
        self._function = hierarchy if callable(hierarchy) else None
        self._grid = _grid_shape(grid, config)
        if self._function is not None:
            if self._grid is not None:
                raise ValueError("enable: grid goes with windows, not with a function as hierarchy")
            return
        self._windows = _hashable(hierarchy)
        if self._grid is None:  # a first forest, for the library to say what is wrong with the windows
            Forest.windows([1], self._windows)
        else:
            Forest.grid_windows([(1, 1)], self._windows)

    def forest(self, lengths: Tuple[int, ...], device: torch.device) -> Tuple[Forest, Optional[torch.Tensor]]:
        """The forest of sequences of these lengths, and the order in which it takes their tokens; None: as it is."""
        if self._function is None:
            return _forest(lengths, self._windows, self._grid, device)
        forest = self._function(list(lengths))
        if not isinstance(forest, Forest):
            raise ValueError(f"attention: the function given as hierarchy returned {type(forest).__name__}; expected "
                             "a ramify.Forest")
        sizes = forest._field("tree_leaf_begin").diff().tolist()
        if sizes != list(lengths):
            raise ValueError(f"attention: the forest given as hierarchy has trees of {sizes} leaves; the sequences "
                             f"have {list(lengths)} tokens")
        return forest.to(device), None


def _hashable(hierarchy: Any) -> Any:
    """A list of sizes, or of pairs of sizes, as tuples; the forest's builders judge the rest."""
    if isinstance(hierarchy, (str, int)) or not hasattr(hierarchy, "__iter__"):
        return hierarchy
    return tuple(tuple(size) if isinstance(size, (list, tuple)) else size for size in hierarchy)


def _pair(size: Any) -> Optional[Tuple[int, int]]:
    if isinstance(size, int) and not isinstance(size, bool):
        return size, size
    if isinstance(size, (list, tuple)) and len(size) == 2 and all(isinstance(part, int) for part in size):
        return size[0], size[1]
    return None


def _grid_shape(grid: Any, config: Any) -> Optional[Tuple[int, int]]:
    if grid is None or grid is False:
        return None
    if grid is True:
        image, patch = (_pair(getattr(config, name, None)) for name in ("image_size", "patch_size"))
        if image is None or patch is None:
            raise ValueError(f"enable: {type(config).__name__} has no image_size and patch_size; give grid as (rows, "
                             "columns)")
        return image[0] // patch[0], image[1] // patch[1]
    shape = _pair(grid)
    if shape is None or isinstance(grid, int) or min(shape) < 1:
        raise ValueError(f"enable: grid is {grid!r}; expected (rows, columns), or True for those of the model's config")
    return shape


@functools.lru_cache(maxsize=_KEPT_FORESTS)
def _forest(lengths: Tuple[int, ...], windows: Any, grid: Optional[Tuple[int, int]],
            device: torch.device) -> Tuple[Forest, Optional[torch.Tensor]]:
    with torch.inference_mode(False):  # it will serve training, too
        if grid is None:
            return Forest.windows(lengths, windows).to(device), None
        trees, orders, begin = [], [], 0
        for length in lengths:
            tree, order = _image(length, windows, grid)
            trees.append(tree)
            orders.append(order + begin)
            begin += length
        return Forest.concatenate(trees).to(device), torch.cat([*orders, torch.empty(0, dtype=torch.int64)]).to(device)


def _image(length: int, windows: Any, grid: Tuple[int, int]) -> Tuple[Forest, torch.Tensor]:
    """The tree of one image, and the order of its tokens: those before the patches, then the patches by windows."""
    rows, columns = grid
    leading = length - rows * columns
    if not 0 <= leading <= _MAX_LEADING:
        raise ValueError(f"attention: {length} tokens are no grid of {rows} x {columns} patches behind at most "
                         f"{_MAX_LEADING} other tokens; give the (rows, columns) of the images as grid")
    forest, permutation = Forest.grid_windows([grid], windows)
    order = torch.cat([torch.arange(leading), permutation + leading])
    if leading == 0:
        return forest, order
    if forest.num_nodes == 1:  # one patch, which is root and leaf in one
        return Forest.from_segments([[length]]), order
    root = leading  # the grid's nodes come behind the leading leaves, its root first
    parents = forest.parents + leading
    parents[0] = -1
    return Forest.from_parents(torch.cat([torch.full((leading,), root), parents])), order
