"""When two frameworks' answers to one call agree: values, dtypes, shapes, strides of views, gradients, types of errors.

Values of 16 and 32 bits can be judged by a referee, the same call in double precision: an answer may then be as far from it as a
few roundings, or as a small multiple of the reference's own error. A sum in too narrow a type does not pass as "low precision".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
# Largest error in relation to max(1, |expected|), by dtype: rounding of the dtype, times what a sum's order may make of it.
_TOLERANCE: Final = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 5e-3, "complex32": 5e-3, "bfloat16": 3e-2}
_UNIT: Final = {"float32": 2.0**-24, "complex64": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # largest relative error of one rounding
_ROUNDINGS: Final = 8  # of each element's own size, and of the mean size, for what is left when terms cancel
_DOUBTFUL: Final = {"float32": 1e-2, "complex64": 1e-2, "float16": 0.05, "bfloat16": 0.1}  # from such an error on, the referee was asked something else
_MULTIPLE: Final = 4  # of the reference's largest error: a handful of elements may have been lucky


class Answer(NamedTuple):
    """What one side gave: the leaves of its result, or an error. `module` is the framework."""

    module: Any
    results: Sequence[Any]
    error: Exception | None


def unlike(ours: Answer, theirs: Answer, referee: Answer | None, tolerance: float | None, strides: bool, indices: bool = True) -> str | None:
    """How two answers differ, or None. `indices=False`: the values of whole numbers do not matter."""
    if ours.error is not None or theirs.error is not None:
        return unlike_errors(ours.error, theirs.error)
    if len(ours.results) != len(theirs.results):
        return f"{len(ours.results)} results, expected {len(theirs.results)}"
    exact = _exact_results(referee, len(theirs.results))
    for i, (x, y, z) in enumerate(zip(ours.results, theirs.results, exact, strict=True)):
        bound = math.inf if not indices and "int64" in str(getattr(y, "dtype", "")) else tolerance
        text = _unlike_results(x, y, z, ours.module, theirs.module, bound, strides)
        if text is not None:
            return f"result {i}: {text}"
    return None


def unlike_errors(ours: Exception | None, theirs: Exception | None) -> str | None:
    """How two errors differ, by the nearest type that is Python's or PyTorch's own."""
    if theirs is None:
        return f"{type(ours).__name__}: {ours}"
    if ours is None:
        return f"no error, expected {type(theirs).__name__}: {theirs}"
    kinds = [base.__name__ for base in type(ours).__mro__]
    wanted = next(base.__name__ for base in type(theirs).__mro__ if base.__module__ in ("builtins", "torch", "torch._C"))
    return None if wanted in kinds or wanted.startswith("_") else f"{kinds[0]} ({ours}), expected {wanted} ({theirs})"


def unlike_gradients(ours: Answer, theirs: Answer, referee: Answer | None, tolerance: float | None) -> str | None:
    """How two lists of gradients differ, or None; None in the place of a list: no gradient exists."""
    if theirs.error is not None:
        return None  # not differentiable there: nothing to compare with
    if ours.error is not None:
        return f"gradient: {type(ours.error).__name__}: {ours.error}"
    mine, other = ours.results, theirs.results
    if not mine or not other:
        present: Sequence[Any] = mine or other
        if not present or all(g is None or not np.any(array_of(g)) for g in present):
            return None  # zeros, or no gradient at all
        return f"gradients {'exist' if mine else 'do not exist'}, expected the opposite"
    count = max(len(mine), len(other))
    exact = _exact_results(referee, count)
    for i in range(count):
        x, y = (g[i] if i < len(g) else None for g in (mine, other))
        if x is None and y is None:
            continue
        if x is None or y is None:
            if not np.allclose(np.nan_to_num(array_of(x if y is None else y)), 0, atol=1e-9):
                return f"gradient {i}: {'none' if x is None else 'not zero'}, expected {'values' if x is None else 'none'}"
            continue
        if tuple(x.shape) != tuple(y.shape):
            return f"gradient {i}: shape {tuple(x.shape)}, expected {tuple(y.shape)}"
        if str(x.dtype) != str(y.dtype):
            return f"gradient {i}: dtype {x.dtype}, expected {y.dtype}"
        name = str(y.dtype).removeprefix("torch.")
        expected = array_of(y)
        text = _refereed(array_of(x), expected, exact[i], name)
        if text is NotImplemented:
            size = float(np.max(np.abs(expected), where=np.isfinite(expected), initial=1.0)) if expected.size else 1.0
            text = _unlike_values(array_of(x), expected, (tolerance if tolerance is not None else _TOLERANCE.get(name, 0.0)) * 10 * size)
        if text is not None:
            return f"gradient {i}: {text}"
    return None


def array_of(t: Any) -> Array:
    """The values of a tensor of any framework; bfloat16 as float32, complex32 as complex64."""
    plain, name = t.detach(), str(t.dtype)
    if str(plain.layout) != "torch.strided":
        plain = plain.to_dense()
    for resolve in ("resolve_conj", "resolve_neg"):
        plain = getattr(plain, resolve)()
    array: Array = (plain.float() if name == "torch.bfloat16" else plain.cfloat() if name == "torch.complex32" else plain).numpy(force=True)
    return array


def _exact_results(referee: Answer | None, count: int) -> Sequence[Any]:
    if referee is None or referee.error is not None or len(referee.results) != count:
        return [None] * count
    return referee.results


def _unlike_results(x: Any, y: Any, exact: Any, mine: Any, other: Any, tolerance: float | None, strides: bool) -> str | None:
    if not isinstance(y, other.Tensor):
        if isinstance(x, mine.Tensor):
            return f"a tensor, expected {y!r}"
        same = x == y or (x != x and y != y) or str(x) == str(y) or (isinstance(y, float) and math.isclose(x, y, rel_tol=1e-6))
        return None if same else f"{x!r}, expected {y!r}"
    if not isinstance(x, mine.Tensor):
        return f"{x!r}, expected a tensor"
    if str(x.dtype) != str(y.dtype):
        return f"dtype {x.dtype}, expected {y.dtype}"
    if tuple(x.shape) != tuple(y.shape):
        return f"shape {tuple(x.shape)}, expected {tuple(y.shape)}"
    if strides and y._is_view() and y.numel() > 1:
        steps = [(s, t) for s, t, n in zip(x.stride(), y.stride(), y.shape, strict=True) if n > 1]
        if any(s != t for s, t in steps):
            return f"strides {tuple(x.stride())}, expected {tuple(y.stride())}"
    if tolerance == math.inf:
        return None
    name = str(y.dtype).removeprefix("torch.")
    text = _refereed(array_of(x), array_of(y), exact, name) if tolerance is None else NotImplemented
    if text is not NotImplemented:
        return text  # type: ignore[no-any-return]
    return _unlike_values(array_of(x), array_of(y), tolerance if tolerance is not None else _TOLERANCE.get(name, 0.0))


def _refereed(got: Array, expected: Array, exact: Any, name: str) -> Any:
    """How values differ in the eyes of the referee; None if they do not, NotImplemented if it has no say."""
    unit = _UNIT.get(name)
    if unit is None or exact is None or not hasattr(exact, "detach"):
        return NotImplemented
    truth = array_of(exact)
    if truth.shape != expected.shape or truth.dtype.kind not in "fc":
        return NotImplemented
    if not truth.size:
        return None
    with np.errstate(all="ignore"):
        got, expected = got.astype(truth.dtype), expected.astype(truth.dtype)
        same = (got == expected) | (np.isnan(got) & np.isnan(expected)) | (np.abs(got - expected) <= 2 * unit * np.abs(expected))
        if np.all(same):
            return None
        finite = np.isfinite(truth)
        size = np.where(finite, np.abs(truth), 0.0)
        mean = float(size.sum() / max(finite.sum(), 1))
        theirs, mine = np.abs(expected - truth), np.abs(got - truth)
        told = finite & np.isfinite(theirs)
        least = {"float16": 2.0**-24, "bfloat16": 2.0**-133}.get(name, 2.0**-149)
        share = float(np.max(np.where(told, theirs / (size + mean + least), 0.0)))
        if share > _DOUBTFUL[name]:  # or the reference is wrong, if the referee says what we say
            agrees = same | (got == truth) | (mine / (size + mean + least) <= min(share / _MULTIPLE, _DOUBTFUL[name]))
            return None if np.all(agrees) else NotImplemented
        allowed = _ROUNDINGS * unit * (size + mean) + _MULTIPLE * share * (size + mean) + least
        good = same | (mine <= allowed) | (got == truth)
        if np.all(good):
            return None
        worst = np.nanargmax(np.where(good, 0.0, np.where(np.isfinite(mine / allowed), mine / allowed, 1e300)))
    got, expected, truth = got.reshape(-1), expected.reshape(-1), truth.reshape(-1)
    return (
        f"values differ: {got[worst]:.9g}, expected {expected[worst]:.9g}, exactly {truth[worst]:.9g} (allowed {allowed.reshape(-1)[worst]:.3g}); "
        f"{_few(got)}, expected {_few(expected)}"
    )


def _unlike_values(got: Array, expected: Array, tolerance: float) -> str | None:
    if not expected.size or tolerance == math.inf:
        return None
    if expected.dtype.kind in "biu":
        return None if np.array_equal(got, expected) else f"values {_few(got)}, expected {_few(expected)}"
    with np.errstate(all="ignore"):
        if np.allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
            return None
        worst = np.nanmax(np.abs(np.where(np.isfinite(expected), got - expected, 0)))
    return f"values differ by up to {worst:.3g}: {_few(got)}, expected {_few(expected)}"


def _few(a: Array) -> str:
    return np.array2string(a.reshape(-1)[:6], precision=6, threshold=6)
