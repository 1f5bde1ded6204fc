"""Trained models: what ``ramify train`` left in its folder, ready to predict."""

import json
import os
from typing import Any, Iterable, Mapping, Union

import torch

from . import _library

_library.load("libramify_train.so")

Record = Union[Mapping[str, Any], list, str, float, int, bool, None]


class Model:
    """A trained model. Made by :func:`load`."""

    def __init__(self, folder: Union[str, os.PathLike], device: str = "cpu", images: str = ""):
        self._predictor = torch.classes.ramify.Predictor(os.fspath(folder), device, images)

    @property
    def classes(self) -> list[str]:
        """The classes that it tells apart; empty for numbers."""
        return list(self._predictor.classes())

    @property
    def config(self) -> dict:
        """What it was trained with: data, attention, model, training."""
        return json.loads(self._predictor.config())

    def predict(self, records: Iterable[Record], batch_records: int = 64) -> list[dict]:
        """One dictionary a record: ``prediction``, and ``probabilities`` where there are classes.

        A model of labels of items gives ``predictions``, a list of such dictionaries. ``truncated`` is true where a
        record has more leaves than the model takes.

        Args:
            records: dictionaries (or anything that is JSON) as in the training data, with or without the target.
            batch_records: how many are computed together; results depend on it by rounding only.

        Raises:
            ValueError: a record cannot be read; the message has its place in the list.
        """
        if isinstance(records, (Mapping, str)):
            raise TypeError(f"records is a {type(records).__name__}; expected a list of records")
        lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records]
        results: list[dict] = []
        for begin in range(0, len(lines), batch_records):
            try:
                results += map(json.loads, self._predictor.predict(lines[begin:begin + batch_records], begin))
            except RuntimeError as error:
                raise (ValueError(str(error)) if str(error).startswith("record ") else error) from None
        return results

    def __repr__(self) -> str:
        config = self.config
        return f"<ramify.Model of {config['data']['target']!r}, {config['attention']} attention>"

    def explain(self, record: Record) -> dict:
        """The prediction for one record and its tree, with the share of attention (``mass``) on every node."""
        return json.loads(self._predictor.explain(json.dumps(record, ensure_ascii=False, allow_nan=False)))


def load(folder: Union[str, os.PathLike], device: str = "cpu", images: str = "") -> Model:
    """The best model of a run.

    Args:
        folder: where ``ramify train --out`` wrote.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        images: a .tar that image paths are looked up in; default: as in training.

    Example::

        model = ramify.load("runs/reviews")
        model.predict([{"text": "What a film!"}])[0]["prediction"]
    """
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{os.fspath(folder)}: there is no such folder; expected one that ramify train wrote")
    return Model(folder, device, images)
