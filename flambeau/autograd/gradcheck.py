"""Numeric checks of gradients: every input element is moved by a small step, and the change of the outputs compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class GradcheckError(RuntimeError):
    """The numeric and the analytic gradient differ."""


def _outputs(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    result = function(*inputs)
    return [t for t in (result if isinstance(result, (tuple, list)) else (result,)) if hasattr(t, "_meta")]


def _moved(function: Callable[..., Any], inputs: Sequence[Any], which: int, to: Any) -> list[Any]:
    """The outputs, as values, with other numbers in one input: written into the very tensor, as the function may hold it too, and taken back."""
    from flambeau.autograd.modes import no_grad

    x = inputs[which]
    kept = x.detach().clone()
    with no_grad():
        x.data.copy_(to)
    try:
        return [t.detach().clone() for t in _outputs(function, inputs)]  # gradients on: the function may ask which of its results need them
    finally:
        with no_grad():
            x.data.copy_(kept)


def _numeric(function: Callable[..., Any], inputs: Sequence[Any], which: int, eps: float) -> list[list[list[complex]]]:
    """jacobian[output][input element][output element] by central differences; a complex input moves along both axes."""
    jacobian: list[list[list[complex]]] = []
    x = inputs[which]
    flat = x.detach().clone().reshape(-1)
    values = flat.tolist()

    def at(i: int, step: complex) -> list[list[complex]]:
        moved = list(values)
        moved[i] = moved[i] + step
        return [_numbers(t) for t in _moved(function, inputs, which, x.new_tensor(moved).reshape(x.shape))]

    for i in range(len(values)):
        plus, minus = at(i, eps), at(i, -eps)
        change = [[(p - m) / (2 * eps) for p, m in zip(a, b, strict=True)] for a, b in zip(plus, minus, strict=True)]
        if x.dtype.is_complex:
            plus, minus = at(i, 1j * eps), at(i, -1j * eps)
            other = [[(p - m) / (2 * eps) for p, m in zip(a, b, strict=True)] for a, b in zip(plus, minus, strict=True)]
            change = [[(a, b) for a, b in zip(c, o, strict=True)] for c, o in zip(change, other, strict=True)]  # type: ignore[misc]
        for o, part in enumerate(change):
            if len(jacobian) <= o:
                jacobian.append([])
            jacobian[o].append(part)
    return jacobian


def _numbers(t: Any) -> list[Any]:
    flat = t.detach().reshape(-1).tolist()
    return flat if isinstance(flat, list) else [flat]


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False, check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:  # fmt: skip
    """Compare the gradients of `func` at `inputs` (double precision, requires_grad) with finite differences.

    `fast_mode` compares one number for each pair of input and output, the Jacobian between two random directions, so its time does not grow with
    their sizes. If that differs, every entry is compared, to say which.
    """
    from flambeau.autograd.engine import grad
    from flambeau.ops.creation import zeros_like

    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    wanted = [i for i, t in enumerate(inputs) if hasattr(t, "_meta") and t.requires_grad]
    if not wanted:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    if fast_mode and all(_agrees_along_directions(func, inputs, which, eps, atol, rtol) for which in wanted):
        return True
    for which in wanted:
        x = inputs[which]
        numeric = _numeric(func, inputs, which, eps)
        outputs = _outputs(func, inputs)
        for o, out in enumerate(outputs):
            if not out.requires_grad:
                if any(abs(v) > atol for row in numeric[o] for v in row if not isinstance(v, tuple)):
                    return _fail(raise_exception, o, which, "Numerical gradient for function expected to be zero, as the output has no history")
                continue
            count = out.numel()
            for j in range(count):
                for axis in (1, 1j) if out.dtype.is_complex else (1,):
                    seed = zeros_like(out).detach().reshape(-1)
                    seed[j] = axis
                    (g,) = grad([out], [x], [seed.reshape(out.shape)], True, False, True)
                    analytic = _numbers(zeros_like(x) if g is None else g)
                    for i, a in enumerate(analytic):
                        n = numeric[o][i][j]
                        n = _projected(n, axis, x.dtype.is_complex)
                        if not _close(a, n, atol, rtol):
                            return _fail(
                                raise_exception, o, which,
                                f"Jacobian mismatch for output {o} with respect to input {which}, at input element {i}, output element {j}: "
                                f"numerical {n}, analytical {a}",
                            )  # fmt: skip
    return True


def _direction(t: Any, generator: Any) -> Any:
    """A vector of length one in the shape of t, random, without negative parts: tolerances of its entries add up as the entries do."""
    import flambeau as torch

    shape = tuple(t.shape)
    if t.dtype.is_complex:
        parts = [torch.rand(shape, dtype=t.real.dtype, generator=generator) for _ in range(2)]
        found = torch.complex(*parts)
    else:
        found = torch.rand(shape, dtype=t.dtype, generator=generator)
    return found / found.abs().square().sum().sqrt().clamp(min=1e-30)


def _agrees_along_directions(function: Callable[..., Any], inputs: Sequence[Any], which: int, eps: float, atol: float, rtol: float) -> bool:
    """Whether the outputs change along a random direction of one input as the gradients of random sums of the outputs say."""
    import flambeau as torch
    from flambeau.autograd.engine import grad

    x, generator = inputs[which], torch.Generator()
    u = _direction(x, generator)

    def at(step: float) -> list[Any]:
        return _moved(function, inputs, which, x.detach() + step * u)

    moved = [(p - m) / (2 * eps) for p, m in zip(at(eps), at(-eps), strict=True)]
    for out, change in zip(_outputs(function, inputs), moved, strict=True):
        if not (out.dtype.is_floating_point or out.dtype.is_complex):
            continue
        v = _direction(out, generator)
        numeric = (v.conj() * change).sum().real.item()
        analytic = 0.0
        if out.requires_grad:
            (g,) = grad([out], [x], [v], True, False, True)
            analytic = 0.0 if g is None else (g.to_dense() if g.is_sparse else g).conj().mul(u).sum().real.item()
        if not _close(analytic, numeric, atol * u.abs().sum().item() * v.abs().sum().item(), rtol):
            return False
    return True


def _projected(n: Any, axis: Any, complex_input: bool) -> Any:
    """The numeric gradient of Re(conj(axis) * output) with respect to the input, in PyTorch's convention."""
    if complex_input:
        a, b = n
        return complex((a * axis.conjugate()).real, (b * axis.conjugate()).real)
    return (n * axis.conjugate()).real if isinstance(n, complex) or isinstance(axis, complex) else n


def _close(a: Any, b: Any, atol: float, rtol: float) -> bool:
    if a != a or b != b:
        return (a != a) and (b != b)
    return bool(abs(a - b) <= atol + rtol * abs(b))


def _fail(raise_exception: bool, output: int, which: int, text: str) -> bool:
    if raise_exception:
        raise GradcheckError(f"{text} (output {output} with respect to input {which})")
    return False


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5,
                  rtol: float = 1e-3, raise_exception: bool = True, fast_mode: bool = False, **_: Any) -> bool:  # fmt: skip
    """gradcheck of the gradients themselves."""
    from flambeau.autograd.engine import grad
    from flambeau.ops.random import randn

    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    outputs = [t for t in _outputs(func, inputs) if t.requires_grad]
    if grad_outputs is None:
        seeds = [randn(tuple(t.shape), dtype=t.dtype).requires_grad_() for t in outputs]
    else:
        seeds = list(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else [grad_outputs]
    count = len(inputs)

    def first(*args: Any) -> tuple[Any, ...]:
        xs, gs = args[:count], args[count:]
        tracked = list(xs)
        wanted = [t.requires_grad_() if not t.requires_grad else t for t, x in zip(tracked, inputs, strict=True)
                  if hasattr(t, "_meta") and x.requires_grad]  # fmt: skip
        from flambeau.autograd.modes import enable_grad

        with enable_grad():
            outs = [t for t in _outputs(func, tracked) if t.requires_grad]
            found = grad(outs, wanted, list(gs), True, True, True)
        return tuple([g for g in found if g is not None])

    return gradcheck(first, (*inputs, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, fast_mode=fast_mode)


from flambeau.ops.guard import guard as _guard  # noqa: E402 - both functions are there now

_guard("autograd", globals())
