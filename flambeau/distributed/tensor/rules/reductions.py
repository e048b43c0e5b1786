"""Reductions, norms, and what is computed along a dim: softmax, sums up to each element, sorting."""

from __future__ import annotations

import math
from typing import Any, Final

import flambeau
from flambeau.distributed.tensor.calls import Call, Rule
from flambeau.distributed.tensor.placement_types import Partial, Shard
from flambeau.distributed.tensor.rules.letters import WHOLE, by_letters, names


def _dims(x: Any, dim: Any) -> list[int]:
    ndim = len(x._layout.shape)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(ndim))
    return [d % max(1, ndim) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]


def _left(letters: str, gone: list[int], keepdim: bool) -> str:
    return "".join([WHOLE if d in gone else letter for d, letter in enumerate(letters) if keepdim or d not in gone])


def sum_(c: Call, x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Rule:
    """Of parts: parts of a sum."""
    letters = names(len(x._layout.shape))
    gone = _dims(x, dim)
    return Rule(by_letters([letters], _left(letters, gone, keepdim), [[0]]), strided=True)


def mean(c: Call, x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """Of equal parts: their mean; of others the sum, divided by the whole's size."""
    gone = _dims(x, dim)
    if any(isinstance(p, Shard) and p.dim in gone and not c.even(x._layout.shape[p.dim]) for p in x._layout.placements):
        return x.sum(gone, keepdim, **kwargs) / math.prod([x._layout.shape[d] for d in gone])
    return _of_parts(x, gone, keepdim, "avg", lambda d: c.even(x._layout.shape[d]), True)


def _of_parts(x: Any, gone: list[int], keepdim: bool, op: str, fits: Any, linear: bool) -> Rule:
    letters = names(len(x._layout.shape))
    left = _left(letters, gone, keepdim)
    ways = by_letters([letters], left, [[0]] if linear else [], sums=False)
    ways += [((Shard(d),), Partial(op)) for d in gone if fits(d)]
    return Rule(ways)


def extreme(c: Call, x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Rule:
    """amax and amin; max and min of all elements. Along a dim max and min give indices: the dim is whole."""
    gone = _dims(x, dim)
    if dim is not None and c.name in ("max", "min"):
        return reduced(c, x, dim, keepdim)
    full = all(x._layout.shape[d] and c.even(x._layout.shape[d]) for d in gone)  # no process has nothing
    return _of_parts(x, gone, keepdim, "max" if "max" in c.name else "min", lambda d: full, False)


def reduced(c: Call, x: Any, dim: Any = None, keepdim: bool = False, *args: Any, **kwargs: Any) -> Rule:
    """Over dims that are whole."""
    letters = names(len(x._layout.shape))
    gone = _dims(x, dim)
    whole = "".join([WHOLE if d in gone else letter for d, letter in enumerate(letters)])
    return Rule(by_letters([whole], _left(letters, gone, bool(keepdim))))


def along(c: Call, x: Any, *args: Any, dim: Any = None, **kwargs: Any) -> Rule:
    """Along a dim, which is whole."""
    place = dim if dim is not None else args[0] if args and isinstance(args[0], int) else -1
    ndim = len(x._layout.shape)
    letters = "".join([WHOLE if d == place % max(1, ndim) else letter for d, letter in enumerate(names(ndim))])
    return Rule(by_letters([letters] * len(c.tensors), letters))


def topk(c: Call, x: Any, k: int, dim: int = -1, *args: Any, **kwargs: Any) -> Rule:
    """Along a dim, which is whole."""
    return along(c, x, dim=dim)


def norm(c: Call, x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None, ord: Any = None) -> Any:
    """Of vectors, from sums of powers."""
    p = p if ord is None else ord
    p = 2.0 if p is None or p == "fro" else p
    if isinstance(p, str):
        raise NotImplementedError(f"{c.name}(): p={p!r} is not there for DTensors: {c.placed()}")
    gone = _dims(x, dim)
    x = x if dtype is None else x.to(dtype)
    if p in (math.inf, -math.inf):
        return x.abs().amax(gone, keepdim) if p > 0 else x.abs().amin(gone, keepdim)
    if p == 0:
        return (x != 0).to(x.dtype).sum(gone, keepdim)
    if p == 2:
        return (x * x).sum(gone, keepdim).sqrt()
    return x.abs().pow(p).sum(gone, keepdim).pow(1.0 / p)


def vector_norm(c: Call, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """norm() with its arguments in another order."""
    return norm(c, x, ord, dim, keepdim, dtype)


def total_norm(func: Any, tensors: Any, norm_type: float) -> Any:
    """The norm of all elements of all tensors (nn.utils.clip_grad_norm_): each mesh adds up once."""
    from flambeau.distributed.tensor.api import DTensor

    powers: dict[Any, list[Any]] = {}
    for t in tensors:
        mesh = t._layout.mesh if isinstance(t, DTensor) else None
        power = t.abs().amax() if norm_type == math.inf else (t * t).sum() if norm_type == 2.0 else t.abs().pow(norm_type).sum()
        powers.setdefault((mesh, getattr(power, "placements", None)), []).append(power)
    sums = []
    for each in powers.values():
        joined = flambeau.stack(each)
        sums.append(joined.amax() if norm_type == math.inf else joined.sum())
    sums = [s.redistribute(placements=s._layout.gradient().placements) if isinstance(s, DTensor) else s for s in sums]
    meshes = {s._layout.mesh if isinstance(s, DTensor) else None for s in sums}
    if len(meshes) > 1:
        sums = [s.to_local() if isinstance(s, DTensor) else s for s in sums]
    joined = flambeau.stack(sums)
    if norm_type == math.inf:
        return joined.amax()
    return joined.sum().sqrt() if norm_type == 2.0 else joined.sum().pow(1.0 / norm_type)


_REDUCED: Final = "prod any all argmax argmin var std var_mean std_mean median nanmedian mode logsumexp nansum nanmean count_nonzero aminmax".split()
_ALONG: Final = "softmax log_softmax softmin cumsum cumprod cummax cummin logcumsumexp sort argsort glu normalize".split()

RULES: Final[dict[str, Any]] = {
    "sum": sum_, "mean": mean, "amax": extreme, "amin": extreme, "max": extreme, "min": extreme, "norm": norm, "vector_norm": vector_norm, "topk": topk,
    **dict.fromkeys(_REDUCED, reduced), **dict.fromkeys(_ALONG, along),
}  # fmt: skip
DIRECT: Final[dict[str, Any]] = {"total_norm": total_norm}
