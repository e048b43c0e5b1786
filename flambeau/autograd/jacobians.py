"""Jacobians of a function of tensors as arrays: by finite differences, by backward passes, by tangents. What gradcheck compares.

A Jacobian has a row for each element of an input and a column for each element of an output. A complex input moves along both axes: its row is the slope
along the real one plus i times that along the imaginary one, as PyTorch's gradients are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Function = Callable[..., Any]
Array = Any  # a NumPy array


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Several results, or one, as a tuple."""
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def is_tensor(x: Any) -> bool:
    """Whether it is one of our tensors."""
    return hasattr(x, "_meta")


def is_sparse(t: Any) -> bool:
    """Whether a tensor is in a sparse layout, of coordinates or compressed."""
    return is_tensor(t) and str(t.layout).startswith("torch.sparse")


def is_number(t: Any) -> bool:
    """Whether it is a tensor of floats or complex numbers."""
    return is_tensor(t) and (t.is_floating_point() or t.is_complex())


def differentiable(results: Any) -> list[Any]:
    """The tensors among results that have a history."""
    return [t for t in as_tuple(results) if is_tensor(t) and t.requires_grad]


def dense(t: Any) -> Any:
    """A tensor's values in strided layout, outside of the history."""
    t = t.detach()
    return t.to_dense() if is_sparse(t) else t


def flat(t: Any) -> Array:
    """The elements of a tensor as an array of doubles or complex doubles."""
    values = dense(t).reshape(-1)
    return np.asarray(values.tolist(), dtype=np.complex128 if values.dtype.is_complex else np.float64).reshape(-1)


def places(x: Any, masked: bool) -> list[int]:
    """The elements of an input that are moved: of a sparse one those that it has, where the others are masked."""
    if not (masked and is_sparse(x)):
        return list(range(x.numel()))
    import flambeau as torch

    there = x.detach() if x.is_sparse else x.detach().to_sparse()
    marks = torch.sparse_coo_tensor(there._indices(), torch.ones_like(there._values()), x.shape).to_dense() != 0
    return [i for i, mark in enumerate(marks.reshape(-1).tolist()) if mark]


def moved(function: Function, inputs: Sequence[Any], which: int, to: Any) -> list[Any]:
    """The results, as values, with other numbers in one input: written into the very tensor, as the function may hold it too, and taken back."""
    x = inputs[which]
    if is_sparse(x):  # whose elements are not all there to be written to
        like = to.to_sparse(x.sparse_dim()) if x.is_sparse else to.to_sparse(layout=x.layout)
        return _values(function(*[like.requires_grad_() if i == which else t for i, t in enumerate(inputs)]))
    kept = x.detach().clone()
    x.data.copy_(to)
    try:
        return _values(function(*inputs))  # with a history: the function may put hooks on what it makes
    finally:
        x.data.copy_(kept)


def _values(results: Any) -> list[Any]:
    return [t.detach().clone() for t in as_tuple(results) if is_tensor(t)]


def slopes(function: Function, inputs: Sequence[Any], which: int, step: Any, eps: float, place: int | None = None) -> list[Array]:
    """How the results change along a step of one input, for a length of one: central differences, for each result an array."""
    at = dense(inputs[which])
    before, after = (moved(function, inputs, which, at + sign * eps * step) for sign in (-1, 1))
    for a, b in zip(before, after, strict=True):
        where = f"on index {place} by {eps}" if place is not None else f"by {eps}"
        for what in ("shape", "dtype"):
            one, other = getattr(a, what), getattr(b, what)
            if one != other:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are perturbed {where}, but got {what}s {one} and {other}."
                )
    return [(flat(b) - flat(a)) / (2 * eps) for a, b in zip(before, after, strict=True)]


def numeric(function: Function, inputs: Sequence[Any], which: int, eps: float, masked: bool, forward: bool = False) -> list[Array]:
    """The Jacobian of each result with respect to one input, by moving each of its elements; complex results are complex columns.

    `forward`: along the real axis only, as tangents have it.
    """
    import flambeau as torch

    x = inputs[which]
    found: list[Any] = []
    for i in places(x, masked):
        for axis in (1,) if forward or not x.dtype.is_complex else (1, 1j):
            step = torch.zeros(x.numel(), dtype=x.dtype)
            step[i] = axis
            changes = slopes(function, inputs, which, step.reshape(x.shape), eps, i)
            if not found:
                found = [np.zeros((x.numel(), len(c)) + (2,) * x.dtype.is_complex, dtype=np.complex128) for c in changes]
            for row, change in zip(found, changes, strict=True):
                row[(i, slice(None), *((int(axis == 1j),) if x.dtype.is_complex else ()))] = change
    if not found:
        found = [np.zeros((x.numel(), t.numel()) + (2,) * x.dtype.is_complex, dtype=np.complex128) for t in _values(function(*inputs))]
    return found


def backward(output: Any, inputs: Sequence[Any], part: complex) -> list[list[Any]]:
    """For each element of a result the gradients of its real part (`part` 1) or imaginary one (1j), as tensors or None, of each input."""
    import flambeau as torch

    rows = []
    for j in range(output.numel()):
        seed = torch.zeros(output.numel(), dtype=output.dtype)
        seed[j] = part
        rows.append(list(torch.autograd.grad([output], list(inputs), [seed.reshape(output.shape)], retain_graph=True, allow_unused=True)))
    return rows


def from_rows(rows: list[list[Any]], which: int, x: Any) -> tuple[Array, bool, bool]:
    """The Jacobian with respect to one input, whether its gradients have the input's sizes, and its dtype."""
    result = np.zeros((x.numel(), len(rows)), dtype=np.complex128)
    sizes = kinds = True
    for j, row in enumerate(rows):
        g = row[which]
        if g is None:
            continue
        if g.shape != x.shape:
            sizes = False
            continue
        kinds = kinds and g.dtype is x.dtype
        result[:, j] = flat(g)
    return result, sizes, kinds


def tangents(function: Function, inputs: Sequence[Any], which: int, directions: Sequence[Any], check_dtypes: bool) -> list[Array]:
    """The derivative of each result of floats along each direction of one input, by dual numbers: a row for each direction."""
    import flambeau as torch
    from flambeau.autograd import forward_ad

    found: list[list[Any]] = []
    with forward_ad.dual_level():
        for direction in directions:
            duals = [forward_ad.make_dual(t.detach(), direction if i == which else torch.zeros_like(t)) if is_tensor(t) and t.requires_grad else t
                     for i, t in enumerate(inputs)]  # fmt: skip
            row = []
            for result in filter(is_number, as_tuple(function(*duals))):
                value, tangent = forward_ad.unpack_dual(result)
                if check_dtypes and tangent is not None and value.is_complex() != tangent.is_complex():
                    from flambeau.autograd.gradcheck import GradcheckError

                    raise GradcheckError("Forward AD gradient has dtype mismatch.")
                row.append(np.zeros(value.numel()) if tangent is None else flat(tangent))
            found.append(row)
    return [np.stack(column) for column in zip(*found, strict=True)] if found else []
