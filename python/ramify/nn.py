"""The encoder as ``torch.nn`` modules.

The computation is that of the C++ library, which the command line trains with; parameters and names in ``state_dict``
are the same, so a model of one is a model of the other.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from . import _library
from .forest import Forest

_library.load("libramify_nn.so")

__all__ = ["Encoder", "Layer", "Leaves", "Modality", "Model"]


class Modality(NamedTuple):
    """A kind of leaves.

    ``feature`` is ``"ids"`` (rows of a learned table), ``"numbers"`` (``bias[field] + value * slope[field]``) or
    ``"dense"`` (the vector itself). ``size`` is the number of rows, of fields, or the width of the vector; ``width``
    that of the learned vectors, by default ``token_width`` of the config.
    """

    feature: str
    size: int
    width: int = 0


class Leaves(NamedTuple):
    """The leaves of one modality in a batch, n of them.

    ``leaf`` ``[n]`` int64: their numbers, ascending; None where the modality has all leaves. ``id`` ``[n]`` int64: row
    of the table, or field. ``value``: ``[n]`` for numbers, ``[n, width]`` for dense.
    """

    leaf: Optional[torch.Tensor] = None
    id: Optional[torch.Tensor] = None
    value: Optional[torch.Tensor] = None


def _forest_handle(forest: Forest):
    """The library's own forest, made once for each of Python's."""
    if not isinstance(forest, Forest):
        raise ValueError(f"forest is {type(forest).__name__}; expected a ramify.Forest")
    if "_handle" not in forest.__dict__:
        forest.__dict__["_handle"] = torch.classes.ramify.Forest(*forest._arrays, str(forest.device))
    return forest._handle


class _Module(torch.nn.Module):
    """A module of the library. Its tensors live here, as parameters and buffers of ordinary submodules; each call hands
    them over, so that whatever torch does to them (``to``, ``load_state_dict``, ``functional_call``, optimisers) holds.
    """

    def __init__(self):
        super().__init__()
        self._handle = self._make()
        self._slots: List[Tuple[torch.nn.Module, str]] = []
        for is_buffer in (False, True):
            for name, tensor in zip(self._handle.names(is_buffer), self._handle.tensors(is_buffer)):
                *folders, last = name.split(".")
                module = self
                for folder in folders:
                    if folder not in module._modules:
                        module.add_module(folder, torch.nn.Module())
                    module = module._modules[folder]
                if is_buffer:
                    module.register_buffer(last, tensor.detach().clone())
                else:
                    module.register_parameter(last, torch.nn.Parameter(tensor.detach(), tensor.requires_grad))
                self._slots.append((module, last))

    def _make(self):
        raise NotImplementedError

    def _tensors(self) -> List[torch.Tensor]:
        return [getattr(module, name) for module, name in self._slots]

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["_handle"]
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        generator = torch.get_rng_state()  # what a new handle draws is replaced by the tensors here
        self._handle = self._make()
        torch.set_rng_state(generator)


class Layer(_Module):
    """One layer of the hierarchical transformer encoder: projections of ``x`` to queries, keys and values, LayerNorm of
    each head of the first two, hierarchical attention, the queries added, a linear map, a non-linearity.

    Args:
        in_width: of ``x``.
        width: of the result.
        heads, head_dim: of the attention.
        position_width: of position vectors; 0 for a layer without.
        position_head_dim: of what they are projected to, a head; by default ``head_dim``.
        attention: ``"hierarchical"``, or ``"none"`` for no mixing.
        tie, include_self: as for :func:`ramify.attention`.
        alpha: as there, or ``"learned"``, one a level.
        inner: ``"exact"``, or ``"favor:N"`` for N random features in very wide families.
        normalize_values: LayerNorm on values, too.
        activation: ``"gelu"``, ``"relu"`` or ``"none"``.

    >>> forest = Forest.windows([100, 60], "16*")
    >>> layer = Layer(32, 64, heads=2, head_dim=16, position_width=8)
    >>> layer(torch.randn(160, 32), forest, positions=torch.randn(16, 8)).shape
    torch.Size([160, 64])
    """

    def __init__(self, in_width: int, width: int, heads: int, head_dim: int, *, position_width: int = 0,
                 position_head_dim: int = 0, attention: str = "hierarchical", tie: str = "block",
                 include_self: bool = False, alpha: Union[float, str] = 1.0, inner: str = "exact",
                 normalize_values: bool = False, activation: str = "gelu"):
        layer = dict(heads=heads, head_dim=head_dim, width=width, position_head_dim=position_head_dim,
                     attention=attention, tie=tie, include_self=include_self, alpha=alpha, inner=inner,
                     normalize_values=normalize_values)
        self._description = (json.dumps({"layers": [layer], "activation": activation}), in_width, position_width)
        super().__init__()

    def _make(self):
        return torch.classes.ramify.Layer(*self._description)

    def forward(self, x: torch.Tensor, forest: Forest, positions: Optional[torch.Tensor] = None,
                position_index: Optional[torch.Tensor] = None) -> torch.Tensor:
        """``x`` ``[T, in_width]``, a row a leaf of the forest; ``positions`` ``[P, position_width]`` and
        ``position_index`` ``[num_nodes]``, -1 for none, by default each node's place in its family. Returns
        ``[T, width]``.
        """
        handle = _forest_handle(forest)
        if positions is not None and position_index is None:
            position_index = forest._field("sibling_index")
        return self._handle.forward(self._tensors(), self.training, handle, x, positions, position_index)

    def extra_repr(self) -> str:
        config, in_width, position_width = self._description
        return f"in_width={in_width}, position_width={position_width}, {json.loads(config)['layers'][0]}"


_POSITIONS = ("keys", "key_token_begin", "key_tokens", "places", "cells", "graph", "index")

LeafInputs = Mapping[str, Union[Leaves, torch.Tensor]]


class _WithEncoder(_Module):
    def __init__(self, config: Mapping[str, Any], modalities: Mapping[str, Union[Modality, Tuple[str, int]]], *,
                 domains: Sequence[str] = (), num_keys: int = 0, graph_features: int = 0, key_table: str = "token",
                 outputs: int = 0):
        self._modalities = {name: Modality(*modality) for name, modality in modalities.items()}
        self._description = json.dumps({
            "config": dict(config),
            "modalities": [{"name": name, **modality._asdict()} for name, modality in self._modalities.items()],
            "domains": list(domains), "num_keys": num_keys, "graph_features": graph_features, "key_table": key_table,
            "outputs": outputs,
        })
        super().__init__()

    @property
    def config(self) -> Dict[str, Any]:
        """Every option of the encoder, those that were not given, too."""
        return json.loads(torch.ops.ramify.encoder_config(json.dumps(json.loads(self._description)["config"])))

    def _inputs(self, forest: Forest, leaves: LeafInputs, positions: Optional[Mapping[str, torch.Tensor]]):
        unknown = [name for name in leaves if name not in self._modalities]
        unknown += [name for name in positions or () if name not in _POSITIONS]
        if unknown:
            raise ValueError(f"encoder: {unknown[0]!r} is neither a modality ({', '.join(self._modalities)}) nor a "
                             f"field of positions ({', '.join(_POSITIONS)})")
        fields: List[Optional[torch.Tensor]] = []
        for name, modality in self._modalities.items():
            given = leaves.get(name, Leaves())
            if isinstance(given, torch.Tensor):
                given = Leaves(value=given) if modality.feature == "dense" else Leaves(id=given)
            fields.extend(given)
        return _forest_handle(forest), fields, [(positions or {}).get(name) for name in _POSITIONS]

    def node_mass(self, forest: Forest, leaves: LeafInputs, positions: Optional[Mapping[str, torch.Tensor]] = None,
                  layer: int = 0) -> torch.Tensor:
        """``[num_nodes]``: the share of its tree's attention that each node receives in a layer, the mean over heads
        and over the leaves that look."""
        return self._handle.node_mass(self._tensors(), *self._inputs(forest, leaves, positions), layer)

    def _set_table(self, leaves: torch.nn.Module, modality: str, values: torch.Tensor, trainable: bool) -> None:
        if self._modalities.get(modality, Modality("", 0)).feature != "ids":
            raise ValueError(f"set_table: no modality of ids is called {modality!r}")
        old = leaves._modules[modality].table
        if values.shape != old.shape:
            raise ValueError(f"set_table: vectors of {modality} have shape {list(values.shape)}; expected "
                             f"{list(old.shape)}")
        copied = values.detach().to(old, copy=True)
        leaves._modules[modality].table = torch.nn.Parameter(copied, requires_grad=trainable)

    def extra_repr(self) -> str:
        return f"modalities={', '.join(self._modalities)}"


class Encoder(_WithEncoder):
    """The hierarchical transformer encoder: vectors of leaves by modality, position vectors by domain, layers.

    Args:
        config: the options under ``model`` in ``configs/*.json``; what is left out has its default.
        modalities: :class:`Modality` by name.
        domains: which positions occur: ``"key"``, ``"sequence"``, ``"grid"``, ``"graph"``.
        num_keys: how many keys there are, for the domain ``"key"``.
        graph_features: width of the features of nodes of graphs.
        key_table: the modality whose table keys are made of, with ``"keys": "tokens"`` in the config.

    >>> forest = Forest.from_segments([[3, 2], [2]])  # one text of two sentences
    >>> encoder = Encoder({"layers": [{"width": 48}]}, {"token": ("ids", 1000)}, domains=["sequence"])
    >>> positions = {"places": torch.arange(3), "index": torch.tensor([-1, 0, 1, 0, 1, 2, 0, 1])}
    >>> encoder(forest, {"token": torch.tensor([4, 81, 5, 7, 2])}, positions).shape
    torch.Size([5, 48])
    """

    def __init__(self, config: Mapping[str, Any], modalities: Mapping[str, Union[Modality, Tuple[str, int]]], *,
                 domains: Sequence[str] = (), num_keys: int = 0, graph_features: int = 0, key_table: str = "token"):
        super().__init__(config, modalities, domains=domains, num_keys=num_keys, graph_features=graph_features,
                         key_table=key_table)

    def _make(self):
        return torch.classes.ramify.Encoder(self._description)

    def forward(self, forest: Forest, leaves: LeafInputs,
                positions: Optional[Mapping[str, torch.Tensor]] = None) -> torch.Tensor:
        """One row a leaf, ``[T, width]``; behind local pooling, that of the pooled leaf that holds it.

        ``leaves`` has a :class:`Leaves` for each modality that occurs, or just the tensor of ids or vectors where one
        modality has all leaves. ``positions`` holds the distinct positions, one row each, numbered through in this
        order: ``keys`` ``[n]`` int64 (-1: unknown; with ``key_tokens`` and ``key_token_begin`` where keys are made of
        tokens), ``places`` ``[n]`` int64, ``cells`` ``[n, 2]``, ``graph`` ``[n, graph_features]``; and ``index``
        ``[num_nodes]``: the row of each node, -1 for none.
        """
        return self._handle.forward(self._tensors(), self.training, *self._inputs(forest, leaves, positions))

    def set_table(self, modality: str, values: torch.Tensor, trainable: bool = True) -> None:
        """Gives a modality of ids its vectors, ``[size, width]``."""
        self._set_table(self.leaves, modality, values, trainable)


class Model(_WithEncoder):
    """An encoder and a head: a row of outputs for each range of leaves, for instance each tree.

    Arguments as for :class:`Encoder`, and the number of outputs. The parameters are named as in a model of the command
    line.

    >>> forest = Forest.from_segments([[3, 2, 4], [2, 1]])  # two texts, of two sentences and of one
    >>> model = Model({}, {"token": ("ids", 1000)}, outputs=3)
    >>> model(forest, {"token": torch.randint(1000, (9,))}).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: Mapping[str, Any], modalities: Mapping[str, Union[Modality, Tuple[str, int]]], *,
                 outputs: int, domains: Sequence[str] = (), num_keys: int = 0, graph_features: int = 0,
                 key_table: str = "token"):
        super().__init__(config, modalities, domains=domains, num_keys=num_keys, graph_features=graph_features,
                         key_table=key_table, outputs=outputs)

    def _make(self):
        return torch.classes.ramify.Model(self._description)

    def forward(self, forest: Forest, leaves: LeafInputs, positions: Optional[Mapping[str, torch.Tensor]] = None,
                ranges: Optional[Tuple[torch.Tensor, torch.Tensor]] = None) -> torch.Tensor:
        """``[n, outputs]``. ``ranges``: the begins and ends of n ranges of leaves, int64; by default the trees."""
        inputs = self._inputs(forest, leaves, positions)
        if ranges is None:
            begin = forest._field("tree_leaf_begin")
            ranges = begin[:-1], begin[1:]
        return self._handle.forward(self._tensors(), self.training, *inputs, *ranges)

    def set_table(self, modality: str, values: torch.Tensor, trainable: bool = True) -> None:
        """Gives a modality of ids its vectors, ``[size, width]``."""
        self._set_table(self.encoder.leaves, modality, values, trainable)
