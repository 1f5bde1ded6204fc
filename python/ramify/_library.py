"""Loads the compiled library, so that its ops appear under ``torch.ops.ramify``."""

import os
import pathlib

import torch

_NAME = "libramify_ops.so"


def _candidates():
    override = os.environ.get("RAMIFY_LIBRARY")
    if override:
        yield pathlib.Path(override)
        return
    package = pathlib.Path(__file__).resolve().parent
    yield package / "lib" / _NAME  # an installed package
    yield package.parent.parent / "build" / "release" / "lib" / _NAME  # a source tree after scripts/test


def load():
    tried = list(_candidates())
    for path in tried:
        if not path.exists():
            continue
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            raise ImportError(
                f"ramify: {path} does not load with torch {torch.__version__}; it must be built against the torch "
                f"that is installed: pip install --no-build-isolation --force-reinstall --no-deps <ramify>\n{error}"
            ) from error
        return
    raise ImportError(
        "ramify: the compiled library was not found; looked for "
        + ", ".join(str(path) for path in tried)
        + ". Run scripts/test in the source tree, or pip install --no-build-isolation ."
    )


load()


# The op has a C++ Meta kernel, but a forest keeps some arrays on the CPU whatever the device of q, and tracing refuses
# to guess the device of an op with mixed inputs. These say it.
@torch.library.register_fake("ramify::attention", allow_override=True)
def _attention_shapes(q, k, v, forest, plan, positions, position_index, alpha, scale, include_self, tie, causal,
                      implementation):
    for name, tensor in (("k", k), ("v", v), ("positions", positions), ("the forest", plan[1] if plan else None)):
        if tensor is not None and tensor.device != q.device:
            raise ValueError(f"attention: {name} is on {tensor.device}, q is on {q.device}; they must be on one device")
    energy_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return (
        q.new_empty((q.shape[0], q.shape[1], v.shape[2])),
        q.new_empty((forest[2].shape[0] - 1, q.shape[1]), dtype=energy_dtype),
    )


@torch.library.register_fake("ramify::attention_backward", allow_override=True)
def _attention_backward_shapes(grad_out, grad_energy, q, k, v, forest, plan, positions, position_index, alpha, scale,
                               include_self, tie, causal, implementation):
    def like(tensor):
        return q.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape)

    return like(q), like(k), like(v), like(positions), like(alpha)


@torch.library.register_fake("ramify::forest_field")
def _forest_field_shape(arrays, name):
    first_child, _, tree_begin = arrays
    return tree_begin.new_empty(tree_begin.shape[0] if name == "tree_leaf_begin" else first_child.shape[0] - 1)
