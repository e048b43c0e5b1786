"""L-BFGS (Nocedal and Wright, 2006, algorithm 7.4), with the strong-Wolfe line search of Schmidt's minFunc as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch
from flambeau.optim.optimizer import Optimizer, ParamsT, Tensor

Evaluate = Callable[[float], tuple[float, Tensor]]
_STATE = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


def cubic_minimum(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None) -> float:
    """The minimiser of the cubic through two points with given slopes, inside bounds (Nocedal and Wright, 3.59)."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    g1, g2, width = np.float64(g1), np.float64(g2), np.float64(x1 - x2)
    with np.errstate(all="ignore"):  # infinities and NaN, as tensors have them: a search that diverges must come to its end
        d1 = g1 + g2 - 3 * (f1 - f2) / width
        square = d1**2 - g1 * g2
        if not square >= 0:
            return (low + high) / 2.0
        d2 = square**0.5
        x = x2 + width * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)) if x1 <= x2 else x1 - width * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return float(min(max(x, low), high))


def strong_wolfe(
    evaluate: Evaluate, t: float, d_norm: float, f: float, g: Tensor, slope: float, d: Tensor, tolerance: float,
    c1: float = 1e-4, c2: float = 0.9, *, most: int,
) -> tuple[float, Tensor, float, int]:  # fmt: skip
    """(loss, gradient, step, evaluations) at a step along d that meets the strong Wolfe conditions, or the best of 1 + `most` steps."""
    f_new, g_new = evaluate(t)
    count = 1
    slope_new = float(g_new.dot(d))
    t_old, f_old, g_old, slope_old = 0.0, f, g, slope
    done = False
    steps = 0
    bracket: list[tuple[float, float, Tensor, float]] = []
    while steps < most:
        if f_new > f + c1 * t * slope or (steps > 1 and f_new >= f_old):
            bracket = [(t_old, f_old, g_old, slope_old), (t, f_new, g_new, slope_new)]
            break
        if abs(slope_new) <= -c2 * slope:
            bracket = [(t, f_new, g_new, slope_new)]
            done = True
            break
        if slope_new >= 0:
            bracket = [(t_old, f_old, g_old, slope_old), (t, f_new, g_new, slope_new)]
            break
        shortest, longest = t + 0.01 * (t - t_old), t * 10
        before = t
        t = cubic_minimum(t_old, f_old, slope_old, t, f_new, slope_new, (shortest, longest))
        t_old, f_old, g_old, slope_old = before, f_new, g_new, slope_new
        f_new, g_new = evaluate(t)
        count += 1
        slope_new = float(g_new.dot(d))
        steps += 1
    if steps == most:
        bracket = [(0.0, f, g, slope), (t, f_new, g_new, slope_new)]
    stuck = False
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and steps < most:
        if abs(bracket[1][0] - bracket[0][0]) * d_norm < tolerance:
            break
        (a, fa, _, sa), (b, fb, _, sb) = bracket
        t = cubic_minimum(a, fa, sa, b, fb, sb)
        top, bottom = max(a, b), min(a, b)
        margin = 0.1 * (top - bottom)
        if min(top - t, t - bottom) < margin:
            if stuck or t >= top or t <= bottom:
                t = top - margin if abs(t - top) < abs(t - bottom) else bottom + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        f_new, g_new = evaluate(t)
        count += 1
        slope_new = float(g_new.dot(d))
        steps += 1
        point = (t, f_new, g_new, slope_new)
        if f_new > f + c1 * t * slope or f_new >= bracket[low][1]:
            bracket[high] = point
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(slope_new) <= -c2 * slope:
                done = True
            elif slope_new * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
    best = bracket[low if len(bracket) > 1 else 0]
    return best[1], best[2], best[0], count


def _flat(gradient: Tensor) -> Tensor:
    """A gradient as a vector of real numbers, complex ones as pairs."""
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    return (torch.view_as_real(dense) if dense.is_complex() else dense).reshape(-1)


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` changes; `step` needs a closure that computes loss and gradients."""

    def __init__(
        self, params: ParamsT, lr: float = 1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _gradient(self) -> Tensor:
        return torch.cat([_flat(torch.zeros_like(p, requires_grad=False) if p.grad is None else p.grad) for p in self._params])

    def _move(self, start: list[Tensor], t: float, d: Tensor) -> None:
        at = 0
        for p, x in zip(self._params, start, strict=True):
            if p.is_complex():
                p, x = torch.view_as_real(p), torch.view_as_real(x)
            p.copy_(x + d[at : at + p.numel()].view_as(p) * t)
            at += p.numel()

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate() -> Any:
            with torch.enable_grad():
                return closure()

        with torch.no_grad():
            original = evaluate()
            loss = float(original)
            state["func_evals"] += 1
            evaluations = 1
            gradient = self._gradient()
            if float(gradient.abs().max()) <= group["tolerance_grad"]:
                return original
            for name in _STATE:  # all at once, in PyTorch's order
                state.setdefault(name, None)
            iterations = 0
            while iterations < group["max_iter"]:
                iterations += 1
                state["n_iter"] += 1
                d = self._direction(state, gradient, group["history_size"])
                state["prev_flat_grad"], state["prev_loss"] = gradient.clone(), loss
                previous_loss = loss
                size = float(gradient.abs().sum())
                t = min(1.0, 1.0 / size) * group["lr"] if state["n_iter"] == 1 else group["lr"]
                state["d"], state["t"] = d, t  # also where there is no way down: the next step's change is told by them
                slope = float(gradient.dot(d))
                if slope > -group["tolerance_change"]:
                    break
                start = [p.clone() for p in self._params]
                used = 0
                if group["line_search_fn"] is None:
                    self._move(start, t, d)
                    if iterations != group["max_iter"]:
                        loss = float(evaluate())
                        gradient = self._gradient()
                        used = 1
                elif group["line_search_fn"] == "strong_wolfe":

                    def along(step: float, start: list[Tensor] = start, d: Tensor = d) -> tuple[float, Tensor]:
                        self._move(start, step, d)
                        value = float(evaluate())
                        slope_vector = self._gradient()
                        self._move(start, 0.0, d)
                        return value, slope_vector

                    left = max(group["max_eval"] - evaluations, 0)
                    loss, gradient, t, used = strong_wolfe(along, t, float(d.abs().max()), loss, gradient, slope, d, group["tolerance_change"], most=left)
                    self._move(start, t, d)
                else:
                    raise RuntimeError("only 'strong_wolfe' is supported")
                state["t"] = t
                evaluations += used
                state["func_evals"] += used
                if evaluations >= group["max_eval"] or float(gradient.abs().max()) <= group["tolerance_grad"]:
                    break
                if float((d * t).abs().max()) <= group["tolerance_change"]:
                    break
                if abs(loss - previous_loss) < group["tolerance_change"]:
                    break
        return original

    def _direction(self, state: dict[str, Any], gradient: Tensor, history: int) -> Tensor:
        """The two-loop recursion over the changes that are remembered."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -gradient
        y = gradient - state["prev_flat_grad"]
        s = state["d"] * state["t"]
        ys = float(y.dot(s))
        if ys > 1e-10:  # PyTorch's threshold for a change worth remembering
            if len(state["old_dirs"]) == history:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(y)
            state["old_stps"].append(s)
            state["ro"].append(1.0 / ys)
            state["H_diag"] = ys / float(y.dot(y))
        q = -gradient
        alphas = []
        triples = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        for y, s, ro in reversed(triples):
            alphas.append(float(s.dot(q)) * ro)
            q = q - y * alphas[-1]
        r = q * state["H_diag"]
        for (y, s, ro), alpha in zip(triples, reversed(alphas), strict=True):
            r = r + s * (alpha - float(y.dot(r)) * ro)
        return r
