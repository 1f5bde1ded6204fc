"""Loads the compiled library, so that its ops appear under ``torch.ops.ramify``."""

import os
import pathlib

import torch

_OPS = "libramify_ops.so"


def _candidates(name):
    override = os.environ.get("RAMIFY_LIBRARY")
    if override:
        yield pathlib.Path(override) if name == _OPS else pathlib.Path(override).with_name(name)
        return
    package = pathlib.Path(__file__).resolve().parent
    yield package / "lib" / name  # an installed package
    yield package.parent.parent / "build" / "release" / "lib" / name  # a source tree after scripts/test


def load(name):
    """Loads one of the compiled libraries, so that torch knows what is registered in it."""
    path = path_of(name)
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"ramify: {path} does not load with torch {torch.__version__}; it must be built against the torch "
            f"that is installed: pip install --no-build-isolation --force-reinstall --no-deps <ramify>\n{error}"
        ) from error


def path_of(name):
    """Where a compiled library is; ``RAMIFY_LIBRARY`` names that of the ops, and the others lie next to it."""
    tried = list(_candidates(name))
    for path in tried:
        if path.exists():
            return path
    raise ImportError(
        "ramify: the compiled library was not found; looked for "
        + ", ".join(str(path) for path in tried)
        + ". Run scripts/test in the source tree, or pip install --no-build-isolation ."
    )


load(_OPS)


_FUSED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_FUSED_MAX_DIM = 512
_CUDA_MAX_DIM = 256
_FUSED_MAX_POSITION_DIM = 1024


def _padded(count):
    return (count + 15) // 16 * 16


def _saved_size_on_cuda(q, k, v, plan, positions, alpha, tie, causal, window):
    """The same for src/kernels/cuda/attention.cu."""
    tied, dims = tie == "block", (q.shape[2], v.shape[2])
    if (not torch.ops.ramify.has_cuda_kernels() or q.dtype not in _FUSED_DTYPES or alpha is not None or window > 0
            or max(dims) > _CUDA_MAX_DIM):
        return 0
    groves = (tied and causal != "prefix" and q.dtype != torch.float32 and q.shape[1] == k.shape[1] and dims == (64, 64)
              and (positions is None or positions.shape[2] == 0))
    rows = plan[6 if groves else 5].shape[0] * q.shape[1]
    means = _padded(rows * dims[0]) + _padded(rows * dims[1])
    leaves = _padded(2 * q.shape[0] * q.shape[1])
    size = (2 if tied else 1) * means + _padded(rows) + leaves
    if tied:
        size += _padded(2 * rows) + _padded(rows)
    if groves:
        places = plan[7].shape[0] * q.shape[1]
        size += _padded(3 * 64 * places) + _padded(64 * places) + 2 * _padded(places) + _padded(32 * q.shape[0] * q.shape[1])
        size += _padded(32 * plan[8].shape[0] * q.shape[1])
    return size


def _saved_size(q, k, v, plan, positions, alpha, tie, causal, implementation, save, window):
    """How many numbers the fused kernels keep for backward: what src/kernels/cpu/layout.cc counts, for traced shapes."""
    if not save or not plan or implementation not in ("auto", "fused"):
        return 0
    if q.device.type == "cuda":
        return _saved_size_on_cuda(q, k, v, plan, positions, alpha, tie, causal, window)
    if q.device.type != "cpu":
        return 0
    if (q.dtype not in _FUSED_DTYPES or alpha is not None or q.shape[2] > _FUSED_MAX_DIM
            or v.shape[2] > _FUSED_MAX_DIM
            or (positions is not None and positions.shape[2] > _FUSED_MAX_POSITION_DIM) or torch.ops.ramify.cpu_target() == "none"):
        return 0

    inner, crown_slots, weights, wide_members = (part.shape[0] for part in plan[5:9])
    heads, key_heads, dim, value_dim = q.shape[1], k.shape[1], _padded(q.shape[2]), _padded(v.shape[2])
    leaf_queries = _padded(inner * key_heads * dim) + _padded(inner * key_heads * value_dim) + _padded(q.shape[0] * heads)
    if tie == "none":
        return leaf_queries
    if causal == "prefix":
        return _padded(inner * heads * dim) + _padded(inner * heads) + leaf_queries
    return (_padded(weights * heads) + _padded(inner * heads * 2) + _padded(crown_slots * heads * dim)
            + _padded(crown_slots * key_heads * dim) + _padded(crown_slots * key_heads * value_dim)
            + _padded(wide_members * heads * value_dim) + _padded(wide_members * heads))


# The op has a C++ Meta kernel, but a forest keeps some arrays on the CPU whatever the device of q, and tracing refuses
# to guess the device of an op with mixed inputs. These say it.
@torch.library.register_fake("ramify::attention", allow_override=True)
def _attention_shapes(q, k, v, forest, plan, positions, position_index, alpha, scale, include_self, tie, causal,
                      implementation, save=False, window=0):
    for name, tensor in (("k", k), ("v", v), ("positions", positions), ("the forest", plan[1] if plan else None)):
        if tensor is not None and tensor.device != q.device:
            raise ValueError(f"attention: {name} is on {tensor.device}, q is on {q.device}; they must be on one device")
    energy_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    saved_size = _saved_size(q, k, v, plan, positions, alpha, tie, causal, implementation, save, window)
    return (
        q.new_empty((q.shape[0], q.shape[1], v.shape[2])),
        q.new_empty((forest[2].shape[0] - 1, q.shape[1]), dtype=energy_dtype),
        q.new_empty(saved_size, dtype=torch.float32),
    )


@torch.library.register_fake("ramify::attention_backward", allow_override=True)
def _attention_backward_shapes(grad_out, grad_energy, q, k, v, forest, plan, positions, position_index, alpha, scale,
                               include_self, tie, causal, implementation, saved=None, window=0):
    def like(tensor):
        return q.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape)

    return like(q), like(k), like(v), like(positions), like(alpha)


@torch.library.register_fake("ramify::forest_field")
def _forest_field_shape(arrays, name):
    first_child, _, tree_begin = arrays
    return tree_begin.new_empty(tree_begin.shape[0] if name == "tree_leaf_begin" else first_child.shape[0] - 1)
