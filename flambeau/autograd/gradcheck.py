"""Numeric checks of gradients: inputs are moved by small steps, and the changes of the outputs are compared with what backward passes and tangents say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.autograd.gradcheck_options import (
    GradcheckError as GradcheckError,
)
from flambeau.autograd.gradcheck_options import (
    batched_backward,
    batched_forward,
    check_inputs,
    check_outputs,
    multiplied_by_grad_output,
    undefined_backward,
    undefined_forward,
)
from flambeau.autograd.jacobians import (
    Function,
    as_tuple,
    backward,
    dense,
    differentiable,
    flat,
    from_rows,
    is_number,
    is_tensor,
    numeric,
    slopes,
    tangents,
)
from flambeau.trace.once import warn_here
from flambeau.upward import upward

_NONDETERMINISTIC = """

If the operation is not deterministic by nature, give `nondet_tol`, the greatest difference of two runs that is no error."""


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False, check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:  # fmt: skip
    """Compare the gradients of `func` at `inputs` (double precision, requires_grad) with finite differences.

    `fast_mode` compares one number for each pair of input and output, the Jacobian between two random directions, so its time does not grow with
    their sizes. If that differs, every entry is compared, to say which. `masked`: of sparse inputs only the elements that are there are looked at.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    given = as_tuple(inputs)
    check_inputs(given)
    check = _Check(func, given, eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode, bool(masked))
    try:
        results = func(*given)
        outputs = differentiable(results)
        check_outputs(outputs)
        if check_backward_ad:
            check.backward(results, outputs)
        if check_forward_ad:
            check.forward(outputs)
            if check_undefined_grad:
                undefined_forward(func, given)
        if check_batched_forward_grad:
            batched_forward(func, given)
        if check_backward_ad:
            wanted = [given[i] for i in check.wanted]
            if check_batched_grad:
                for i, output in enumerate(outputs):
                    batched_backward(output, wanted, i)
            multiplied_by_grad_output(outputs, wanted, bool(masked))
            if check_undefined_grad:
                undefined_backward(func, given, wanted)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


class _Check:
    """One call of gradcheck: the function, where it is looked at, and how nearly numbers must agree."""

    def __init__(self, function: Function, inputs: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float, dtypes: bool, fast: bool,
                 masked: bool) -> None:  # fmt: skip
        self.function, self.inputs = function, inputs
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol
        self.dtypes, self.fast, self.masked = dtypes, fast, masked
        self.wanted = [i for i, t in enumerate(inputs) if is_tensor(t) and t.requires_grad]

    def backward(self, results: Any, outputs: Sequence[Any]) -> None:
        """The gradients of backward passes, of the imaginary parts of complex results before the real ones."""
        tensors = [t for t in as_tuple(results) if is_tensor(t)]
        if not outputs:
            self._no_history()
        kept = [k for k, t in enumerate(tensors) if t.requires_grad]
        some_complex = any(t.is_complex() for t in outputs)
        for part in (1j, 1) if some_complex else (1,):
            looked_at = [(o, t, kept[o]) for o, t in enumerate(outputs) if t.is_complex() or part == 1]
            if not self.fast or not self._backward_fast(looked_at, part):
                self._backward_slow(looked_at, part)

    def _no_history(self) -> None:
        for which in self.wanted:
            if any(np.any(j != 0) for j in numeric(self.function, self.inputs, which, self.eps, self.masked)):
                raise GradcheckError("Numerical gradient for function expected to be zero")

    def _backward_slow(self, looked_at: Sequence[tuple[int, Any, int]], part: complex) -> None:
        inputs = [self.inputs[i] for i in self.wanted]
        expected = [numeric(self.function, self.inputs, i, self.eps, self.masked) for i in self.wanted]
        for o, output, k in looked_at:
            first, second = backward(output, inputs, part), backward(output, inputs, part)
            found = [from_rows(first, w, x) for w, x in enumerate(inputs)]
            again = [from_rows(second, w, x)[0] for w, x in enumerate(inputs)]
            self._refuse([sizes for _, sizes, _ in found], [kinds for *_, kinds in found], [(a, b) for (a, *_), b in zip(found, again, strict=True)])
            for w, (analytic, *_) in enumerate(found):
                self._compare(analytic, _of_part(expected[w][k], part, inputs[w]), o, w, output.is_complex(), part)

    def _refuse(self, sizes: list[bool], kinds: list[bool], runs: list[tuple[Any, Any]]) -> None:
        if self.dtypes and not all(kinds):
            raise GradcheckError("Gradient has dtype mismatch")
        if not all(sizes):
            raise GradcheckError("Analytical gradient has incorrect size")
        if any(a.size and np.abs(a - b).max() > self.nondet_tol for a, b in runs):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values, although "
                f"analytical gradient matches numerical gradient.The tolerance for nondeterminism was {self.nondet_tol}." + _NONDETERMINISTIC
            )

    def _compare(self, analytic: Any, expected: Any, output: int, which: int, of_complex: bool, part: complex, forward: bool = False) -> None:
        if np.allclose(analytic, expected, rtol=self.rtol, atol=self.atol, equal_nan=True):
            return
        far = np.abs(analytic - expected) - self.rtol * np.abs(expected)
        i, j = (int(n) for n in np.unravel_index(np.argmax(np.nan_to_num(far, nan=np.inf)), far.shape))
        half = "imaginary" if part == 1j else "real"
        prefix = f"While considering the {half} part of complex {'inputs' if forward else 'outputs'} only, " if of_complex else ""
        raise GradcheckError(
            f"{prefix}Jacobian {'computed with forward mode ' if forward else ''}mismatch for output {output} with respect to input {which},\n"
            f"at input element {i}, output element {j}: numerical {_shown(expected[i, j])}, analytical {_shown(analytic[i, j])}\n"
            f"numerical:{_shown(expected)}\nanalytical:{_shown(analytic)}\n"
        )

    def _backward_fast(self, looked_at: Sequence[tuple[int, Any, int]], part: complex) -> bool:
        """Whether the results change along a random direction of each input as the gradients of random sums of them say."""
        import flambeau as torch

        generator = torch.Generator()
        inputs = [self.inputs[i] for i in self.wanted]
        weights = [direction(output, generator, self.masked) * part for _, output, _ in looked_at]
        gradients = []
        for (_, output, _), v in zip(looked_at, weights, strict=True):
            runs = [list(torch.autograd.grad([output], inputs, [v.reshape(output.shape)], retain_graph=True, allow_unused=True)) for _ in range(2)]
            known = [(g, again, x) for g, again, x in zip(*runs, inputs, strict=True) if g is not None]
            sizes, kinds = [g.shape == x.shape for g, _, x in known], [g.dtype is x.dtype for g, _, x in known]
            self._refuse(sizes, kinds, [(flat(g), flat(again)) for g, again, _ in known])
            gradients.append(runs[0])
        for w, i in enumerate(self.wanted):
            u = direction(inputs[w], generator, self.masked)
            changes = slopes(self.function, self.inputs, i, u, self.eps)
            for (*_, k), v, found in zip(looked_at, weights, gradients, strict=True):
                expected = float((flat(v).conj() * changes[k]).sum().real)
                g = found[w]
                analytic = 0.0 if g is None else float((flat(g).conj() * flat(u)).sum().real)
                allowed = self.atol * float(np.abs(flat(u)).sum() * np.abs(flat(v)).sum()) + self.rtol * abs(expected)
                if not (abs(analytic - expected) <= allowed or (np.isnan(analytic) and np.isnan(expected))):
                    return False
        return True

    def forward(self, outputs: Sequence[Any]) -> None:
        """The tangents, of complex inputs along the imaginary axis before the real one."""
        if not outputs:
            return self._no_history()
        some_complex = any(self.inputs[i].is_complex() for i in self.wanted)
        for part in (1j, 1) if some_complex else (1,):
            for w, i in enumerate(self.wanted):
                x = self.inputs[i]
                if part == 1 or x.is_complex():
                    self._forward(w, i, x, part)
        return None

    def _forward(self, w: int, which: int, x: Any, part: complex) -> None:
        import flambeau as torch

        if self.fast:
            u = direction(x.real if x.is_complex() else x, torch.Generator(), self.masked).to(x.dtype) * part
            along = [u.reshape(x.shape)]
            moved = [[c] for c in slopes(self.function, self.inputs, which, along[0], self.eps)]
        else:
            along = []
            for i in range(x.numel()):
                step = torch.zeros(x.numel(), dtype=x.dtype)
                step[i] = part
                along.append(step.reshape(x.shape))
            rows = [slopes(self.function, self.inputs, which, step, self.eps, i) for i, step in enumerate(along)]
            moved = [list(column) for column in zip(*rows, strict=True)]
        given = [dense(t).requires_grad_(t.requires_grad) if is_tensor(t) else t for t in self.inputs]
        results = [t for t in as_tuple(self.function(*self.inputs)) if is_tensor(t)]
        numbers = [k for k, t in enumerate(results) if is_number(t)]
        for o, analytic in enumerate(tangents(self.function, given, which, along, self.dtypes)):
            self._compare(analytic, np.stack(moved[numbers[o]]), o, w, x.is_complex(), part, forward=True)  # no results where there are no steps


def _of_part(jacobian: Any, part: complex, x: Any) -> Any:
    """Of a numeric Jacobian the slopes of the real or of the imaginary parts of a result, in PyTorch's convention."""
    found = jacobian.imag if part == 1j else jacobian.real
    return found[..., 0] + 1j * found[..., 1] if x.dtype.is_complex else found


def _shown(numbers: Any) -> Any:
    return numbers.real if not np.any(np.imag(numbers)) else numbers


def direction(t: Any, generator: Any, masked: bool) -> Any:
    """A vector of length one in the shape of t, random, without negative parts: tolerances of its entries add up as the entries do."""
    import flambeau as torch

    shape = tuple(t.shape)
    if t.dtype.is_complex:
        parts = [torch.rand(shape, dtype=torch.float64, generator=generator) for _ in range(2)]
        found = torch.complex(*parts).to(t.dtype)
    else:
        found = torch.rand(shape, dtype=torch.float64, generator=generator).to(t.dtype)
    if masked and t.layout is not torch.strided:
        found = found * (dense(t) != 0)
    return found / found.abs().square().sum().sqrt().clamp(min=1e-30)


@upward
def make_tensor(*shape: Any, dtype: Any, **kwargs: Any) -> Any:
    """A tensor of random values (testing/creation.py)."""
    raise NotImplementedError


def gradgradcheck(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
    fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """`gradcheck` of the gradients of `func`, a function of `inputs` (tensors of float64, any shapes), themselves.

    `grad_outputs`: what the results' gradients begin from, a tensor of each result's shape; random without it, and not contiguous with
    `gen_non_contig_grad_outputs`. `check_rev_over_rev`: by a backward pass through the backward pass; `check_fwd_over_rev`: by tangents through it.
    `eps`, `atol`, `rtol`, `raise_exception`, `nondet_tol`, `check_undefined_grad`, `check_grad_dtypes`, `check_batched_grad`, `fast_mode` and `masked` are
    those of `gradcheck`. Errors: GradcheckError where a second gradient is wrong (False with `raise_exception=False`).
    """
    from flambeau.autograd.engine import grad

    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    inputs = as_tuple(inputs)
    if grad_outputs is None:
        seeds = tuple([make_tensor(tuple(t.shape), dtype=t.dtype, device="cpu", low=-1, high=1, requires_grad=True, noncontiguous=gen_non_contig_grad_outputs)
                       for t in differentiable(func(*inputs))])  # fmt: skip
    else:
        seeds = as_tuple(grad_outputs)
    count = len(inputs)
    tracked = [i for i, t in enumerate((*inputs, *seeds)) if is_tensor(t) and t.requires_grad]

    def first(*args: Any) -> tuple[Any, ...]:
        from flambeau.grad_modes import enable_grad

        given = [t.requires_grad_() if i in tracked else t for i, t in enumerate(args)]  # what moves them may have none
        xs, gs = given[:count], given[count:]
        with enable_grad():
            found = grad(differentiable(func(*xs)), [x for i, x in enumerate(xs) if i in tracked], list(gs), True, True, True)
        return tuple([g for g in found if g is not None])

    return gradcheck(
        first, (*inputs, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev, fast_mode=fast_mode, masked=masked,
    )  # fmt: skip


def _deprecated(name: str, grad_out: float) -> None:
    warn_here(f"`{name}` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and it will be removed.", FutureWarning)
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0.")


def get_numerical_jacobian(fn: Callable[..., Any], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0) -> list[Any]:
    """The Jacobians of the first result of `fn(inputs)` with respect to each input that requires gradients, or to `target`. Deprecated."""
    import flambeau as torch

    _deprecated("get_numerical_jacobian", grad_out)
    given = as_tuple(inputs)
    targets = given if target is None else as_tuple(target)
    wanted = [i for i, t in enumerate(given) if is_tensor(t) and t.requires_grad and any(t is x for x in targets)]
    found = [(_of_part(numeric(lambda *args: fn(args), given, i, eps, False)[0], 1, given[i]), given[i].dtype) for i in wanted]
    return [torch.tensor(j.tolist(), dtype=d) for j, d in found]


def get_analytical_jacobian(inputs: Any, output: Any, nondet_tol: float = 0.0, grad_out: float = 1.0) -> tuple[Any, bool, bool, bool]:
    """The Jacobians of one result with respect to inputs, whether a second backward pass gives the same, and whether sizes and dtypes fit. Deprecated."""
    import flambeau as torch

    _deprecated("get_analytical_jacobian", grad_out)
    wanted = [t for t in as_tuple(inputs) if is_tensor(t) and t.requires_grad]
    runs = [backward(output, wanted, 1) for _ in range(2)]
    found, again = ([from_rows(rows, w, x) for w, x in enumerate(wanted)] for rows in runs)
    same = all(not a.size or np.abs(a - b).max() <= nondet_tol for (a, *_), (b, *_) in zip(found, again, strict=True))
    jacobians = tuple([torch.tensor((a if x.dtype.is_complex else a.real).tolist(), dtype=x.dtype) for (a, *_), x in zip(found, wanted, strict=True)])
    return jacobians, same, all(sizes for _, sizes, _ in found), all(kinds for *_, kinds in found)


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all functions are there now

_guard("autograd", globals())
