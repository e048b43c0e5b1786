"""vmap: a function of samples as a function of batches."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from flambeau.func.batch import VmapLevel
from flambeau.func.levels import leaves_no_level, levels
from flambeau.func.steps import REPLACED
from flambeau.tensor import Tensor
from flambeau.trace.programs import program_around
from flambeau.utils._pytree import TreeSpec, _broadcast_to_and_flatten, tree_flatten, tree_map_, tree_unflatten

InDims = int | tuple[Any, ...]


def name_of(func: Any) -> str:
    """How messages call a function."""
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return repr(func)


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable[..., Any]:
    """A function that applies `func` to every slice of its arguments and stacks the results.

    `in_dims`: the dim that is sliced, one for all or a structure as the arguments' (None: not sliced). `out_dims`: where the new dim of
    each result goes. `randomness`: whether random operations inside fail ("error"), draw once for all samples ("same") or for each
    ("different"). `chunk_size`: so many slices at a time, to save memory. ValueError for dims that do not fit the arguments;
    RuntimeError for operations inside that ask for the value of one sample.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return _apply(func, in_dims, out_dims, randomness, chunk_size, args, kwargs)

    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(func, attribute):
            setattr(wrapped, attribute, getattr(func, attribute))
    wrapped.__wrapped__ = func  # type: ignore[attr-defined]
    return wrapped


def _apply(func: Any, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not isinstance(out_dims, int):
        tree_map_(lambda x: _check_out_dim(x, func, out_dims), out_dims)
    size, flat_dims, flat_args, spec = REPLACED.get("_process_batched_inputs", processed)(in_dims, args, func)
    if chunk_size is None or chunk_size >= size:
        return _flat(func, size, flat_dims, flat_args, spec, out_dims, randomness, kwargs)
    parts = []
    for start in range(0, size, chunk_size):
        length = min(chunk_size, size - start)
        chunk = [a if d is None else a.narrow(d, start, length) for a, d in zip(flat_args, flat_dims, strict=True)]
        parts.append(_flat(func, length, flat_dims, chunk, spec, out_dims, randomness, kwargs))
    return _joined(parts, out_dims)


def processed(in_dims: Any, args: tuple[Any, ...], func: Any) -> tuple[int, list[int | None], list[Any], TreeSpec]:
    """How many samples there are, the dims that are sliced, the arguments' leaves, and their structure."""
    dims, flat, spec = _inputs(func, in_dims, args)
    return _batch_size(dims, flat), dims, flat, spec


def mapped_size(func: Callable[..., Any], in_dims: Any, args: tuple[Any, ...]) -> int:
    """How many samples vmap of a function takes of these arguments."""
    return processed(in_dims, args, func)[0]


def _joined(parts: list[Any], out_dims: Any) -> Any:
    """The results of chunks, one after another along the dims that vmap gave them."""
    from flambeau.ops.concatenated import cat

    flat = [tree_flatten(p)[0] for p in parts]
    spec = tree_flatten(parts[0])[1]
    dims = _broadcast_to_and_flatten(out_dims, spec)
    assert dims is not None
    return tree_unflatten([columns[0] if d is None else cat(columns, d) for columns, d in zip(zip(*flat, strict=True), dims, strict=True)], spec)


def _check_out_dim(x: Any, func: Any, out_dims: Any) -> None:
    if not isinstance(x, int) and x is not None:
        raise ValueError(
            f"vmap({name_of(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints representing "
            "where in the outputs the vmapped dimension should appear."
        )


def _inputs(func: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[list[int | None], list[Any], TreeSpec]:
    name = name_of(func)
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no "
            "inputs. The latter is unsupported."
        )
    flat_args, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    for i, (arg, dim) in enumerate(zip(flat_args, dims, strict=True)):
        head = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={dim} for "
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(f"{head}an input but in_dim must be either an integer dimension or None.")
        if not isinstance(arg, Tensor):
            raise ValueError(
                f"{head}an input but the input is of type {type(arg)}. We cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -arg.dim() <= dim < arg.dim():
            raise ValueError(
                f"{head}some input, but that input is a Tensor of dimensionality {arg.dim()} so expected in_dim to satisfy "
                f"-{arg.dim()} <= in_dim < {arg.dim()}."
            )
        dims[i] = dim % arg.dim()
    return dims, flat_args, spec


def _batch_size(dims: list[int | None], args: list[Any]) -> int:
    sizes = [a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(s != sizes[0] for s in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")
    return sizes[0]  # type: ignore[no-any-return]


@leaves_no_level
def _flat(func: Any, size: int, dims: list[int | None], args: list[Any], spec: TreeSpec, out_dims: Any, randomness: str, kwargs: dict[str, Any]) -> Any:
    """One pass of the function over all samples."""
    program = program_around("torch.func.vmap", args)
    with _level(size, randomness) if program is None else program.mapping(size, randomness) as level:
        if REPLACED and program is None:
            inner = REPLACED.get("_create_batched_inputs", entered)(dims, args, level.number, spec)
            return REPLACED.get("_unwrap_batched", left)(func(*inner, **kwargs), out_dims, level.number, size, func)
        entering = [a if d is None else level.enter(a, d) for a, d in zip(args, dims, strict=True)]
        return _left(func(*tree_unflatten(entering, spec), **kwargs), out_dims, level, func)


def left(results: Any, out_dims: Any, number: int, size: int, func: Any) -> Any:
    """What a function gives to the active vmap of this number, with all of the samples, of which there are `size`."""
    level = vmap_level(number)
    assert level.size == size
    return _left(results, out_dims, level, func)


def _left(results: Any, out_dims: Any, level: VmapLevel, func: Any) -> Any:
    flat, out_spec = tree_flatten(results)
    found: Any
    if isinstance(results, Tensor):
        single = isinstance(out_dims, tuple) and len(out_dims) == 1
        found = list(out_dims) if single else [out_dims] if isinstance(out_dims, int) or out_dims is None else None
    else:
        found = _broadcast_to_and_flatten(out_dims, out_spec)
    if found is None:
        raise ValueError(
            f"vmap({name_of(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`. "
            f"out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {out_spec}."
        )
    return tree_unflatten([_leave(level, t, d, func) for t, d in zip(flat, found, strict=True)], out_spec)


class _Former(threading.local):
    """The levels that this thread has had, by their numbers."""

    def __init__(self) -> None:
        self.levels: dict[int, VmapLevel] = {}


_former = _Former()


def _level(size: int, randomness: str) -> VmapLevel:
    """A new level; once a package has replaced steps, the one before of its number: tensordict keeps what it has made for a vmap for the next one of this
    number, as PyTorch knows levels by their numbers."""
    made = VmapLevel(size, randomness)
    if not REPLACED:
        return made
    former = _former.levels.setdefault(made.number, made)
    vars(former).update(vars(made))
    return former


def vmap_level(number: int) -> VmapLevel:
    """The active vmap of this number."""
    found = next((level for level in levels() if level.number == number), None)
    if not isinstance(found, VmapLevel):
        raise RuntimeError(f"there is no active vmap of level {number}")
    return found


def entered(dims: list[int | None], args: list[Any], number: int, spec: TreeSpec) -> Any:
    """The arguments as one sample of the active vmap of this number sees them."""
    level = vmap_level(number)
    enter = REPLACED.get("_add_batch_dim")
    return tree_unflatten([a if d is None else level.enter(a, d) if enter is None else enter(a, d, number) for a, d in zip(args, dims, strict=True)], spec)


def _leave(level: VmapLevel, t: Any, dim: int | None, func: Any) -> Any:
    name = name_of(func)
    if dim is None:
        if level.mine(t):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return t
    if not isinstance(t, Tensor):
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(t)}. Did you mean to set out_dims= to None for output?")
    ndim = t.dim() + 1
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return level.leave(t, dim % ndim)
