"""RNN, LSTM and GRU: with flambeau's own where it has the same formula, else step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing.registry import Call, operator


def _affine(x: Any, a: Any, b: Any) -> Any:
    return x * (1.0 if a is None else a) + (0.0 if b is None else b)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "relu": lambda x, a, b: flambeau.relu(x), "tanh": lambda x, a, b: flambeau.tanh(x), "sigmoid": lambda x, a, b: flambeau.sigmoid(x), "affine": _affine,
    "leakyrelu": lambda x, a, b: functional.leaky_relu(x, 0.01 if a is None else a),
    "thresholdedrelu": lambda x, a, b: flambeau.where(x > (1.0 if a is None else a), x, flambeau.zeros((), dtype=x.dtype)),
    "scaledtanh": lambda x, a, b: a * flambeau.tanh(b * x),
    "hardsigmoid": lambda x, a, b: flambeau.clamp(x * (0.2 if a is None else a) + (0.5 if b is None else b), 0, 1),
    "elu": lambda x, a, b: functional.elu(x, 1.0 if a is None else a), "softsign": lambda x, a, b: functional.softsign(x),
    "softplus": lambda x, a, b: functional.softplus(x),
}  # fmt: skip


def _with(f: Callable[..., Any], a: Any, b: Any) -> Callable[[Any], Any]:
    return lambda x: f(x, a, b)


def _functions(n: Call, usual: list[str], directions: int) -> list[list[Callable[[Any], Any]]]:
    names = [s.lower() for s in n.get("activations", [])] or usual * directions
    alphas, betas = list(n.get("activation_alpha", [])), list(n.get("activation_beta", []))
    made: list[Callable[[Any], Any]] = []
    for name in names:
        if name not in _FUNCTIONS:
            raise n.refuse(f"the activation {name} is not known")
        has_a = name in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        has_b = name in ("affine", "scaledtanh", "hardsigmoid")
        a = alphas.pop(0) if has_a and alphas else None
        b = betas.pop(0) if has_b and betas else None
        made.append(_with(_FUNCTIONS[name], a, b))
    each = len(usual)
    return [made[i * each : (i + 1) * each] for i in range(directions)]


def _plain(n: Call) -> bool:
    return not (n.get("activations") or n.get("clip") or n.get("input_forget", 0))


def _fused(n: Call, kind: str, x: Any, w: Any, r: Any, b: Any, h: Any, c: Any) -> Any:
    """flambeau's own recurrence over the weights in its order of gates."""
    gates = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}[kind]
    size, directions = r.shape[2], w.shape[0]
    reverse = n.get("direction", "forward") == "reverse"

    def ordered(t: Any) -> Any:
        return t if len(gates) == 1 else flambeau.cat([t[g * size : (g + 1) * size] for g in gates])

    def weights() -> list[Any]:
        made = []
        for d in range(directions):
            made += [ordered(w[d]), ordered(r[d])]
            if b is not None:
                half = b.shape[1] // 2
                made += [ordered(b[d, :half]), ordered(b[d, half:])]
        return made

    parameters = n.once((w, r, b), weights)
    x = x.flip((0,)) if reverse else x
    options = (parameters, b is not None, 1, 0.0, False, directions == 2, False)
    last_c = None
    if kind == "LSTM":
        y, last, last_c = flambeau.lstm(x, (h, c), *options)
    else:
        y, last = (flambeau.gru if kind == "GRU" else flambeau.rnn_tanh)(x, h, *options)
    y = y.flip((0,)) if reverse else y
    steps, batch = y.shape[:2]
    y = y.reshape(steps, batch, directions, size).permute(0, 2, 1, 3)
    return y, last, last_c


def _run(n: Call, kind: str, x: Any, w: Any, r: Any, b: Any, lengths: Any, h: Any, c: Any, cell: Callable[..., Any], usual: list[str]) -> tuple[Any, ...]:
    batch_first = bool(n.get("layout", 0))
    x = x.transpose(0, 1) if batch_first else x
    steps, batch, size, directions = x.shape[0], x.shape[1], r.shape[2], w.shape[0]
    state = [t.transpose(0, 1) if t is not None and batch_first else t for t in (h, c)]
    h, c = [flambeau.zeros(directions, batch, size, dtype=x.dtype) if t is None else t for t in state]
    if lengths is not None and all(v == steps for v in lengths.tolist()):
        lengths = None
    y: Any
    if lengths is None and cell.__name__ == "_standard":
        y, last, last_c = _fused(n, kind, x, w, r, b, h, c)
    else:
        functions = _functions(n, usual, directions)
        ys, lasts, cells = [], [], []
        backward = n.get("direction", "forward")
        for d in range(directions):
            back = backward == "reverse" or d == 1
            now, held = h[d], c[d]
            outs: list[Any] = [None] * steps
            step = _CELLS[kind]
            bias = b[d] if b is not None else flambeau.zeros(2 * w.shape[1], dtype=x.dtype)
            for t in range(steps - 1, -1, -1) if back else range(steps):
                new, other = step(n, functions[d], x[t], now, held, w[d], r[d], bias)
                if lengths is not None:
                    going = (t < lengths).unsqueeze(1)
                    outs[t] = flambeau.where(going, new, flambeau.zeros((), dtype=x.dtype))
                    new, other = flambeau.where(going, new, now), flambeau.where(going, other, held)
                else:
                    outs[t] = new
                now, held = new, other
            ys.append(flambeau.stack(outs))
            lasts.append(now)
            cells.append(held)
        y, last, last_c = flambeau.stack(ys, 1), flambeau.stack(lasts), flambeau.stack(cells)
    if batch_first:
        y, last = y.permute(2, 0, 1, 3), last.transpose(0, 1)
        last_c = None if last_c is None else last_c.transpose(0, 1)
    return (y, last, last_c) if kind == "LSTM" else (y, last)


def _clipped(n: Call, x: Any) -> Any:
    limit = n.get("clip")
    return flambeau.clamp(x, -limit, limit) if limit else x


def _rnn_cell(n: Call, f: Any, x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, p: Any = None) -> Any:
    half = b.shape[0] // 2
    new = f[0](_clipped(n, x @ w.t() + h @ r.t() + b[:half] + b[half:]))
    return new, new


def _gru_cell(n: Call, f: Any, x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, p: Any = None) -> Any:
    wz, wr, wh = w.chunk(3)
    rz, rr, rh = r.chunk(3)
    bz, br, bh, cz, cr, ch = b.chunk(6)
    z = f[0](_clipped(n, x @ wz.t() + h @ rz.t() + bz + cz))
    reset = f[0](_clipped(n, x @ wr.t() + h @ rr.t() + br + cr))
    inner = reset * (h @ rh.t() + ch) if n.get("linear_before_reset", 0) else (reset * h) @ rh.t() + ch
    new = f[1](_clipped(n, x @ wh.t() + inner + bh))
    new = (1 - z) * new + z * h
    return new, new


def _lstm_cell(n: Call, f: Any, x: Any, h: Any, c: Any, w: Any, r: Any, b: Any) -> Any:
    half = b.shape[0] // 2
    size = h.shape[1]
    gates = x @ w.t() + h @ r.t() + b[:half] + b[half:]
    i, o, forget, g = gates.chunk(4, 1)
    p = n.kept.get("peepholes")
    if p is not None:
        i, forget = i + p[:size] * c, forget + p[2 * size :] * c
    i, forget = f[0](_clipped(n, i)), f[0](_clipped(n, forget))
    if n.get("input_forget", 0):
        forget = 1 - i
    new = forget * c + i * f[1](_clipped(n, g))
    if p is not None:
        o = o + p[size : 2 * size] * new
    return f[0](_clipped(n, o)) * f[2](new), new


_CELLS: Final[dict[str, Callable[..., Any]]] = {"RNN": _rnn_cell, "GRU": _gru_cell, "LSTM": _lstm_cell}


def _standard() -> None:
    """A mark: flambeau's own recurrence has this formula."""


def _other() -> None:
    """A mark: step by step."""


@operator("RNN")
def rnn(n: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    """A simple recurrence."""
    return _run(n, "RNN", x, w, r, b, lengths, h, None, _standard if _plain(n) else _other, ["tanh"])


@operator("GRU")
def gru(n: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    """A gated recurrence; the reset gate comes before or after the product (`linear_before_reset`)."""
    own = _plain(n) and n.get("linear_before_reset", 0)
    return _run(n, "GRU", x, w, r, b, lengths, h, None, _standard if own else _other, ["sigmoid", "tanh"])


@operator("LSTM")
def lstm(n: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None) -> Any:
    """Long short-term memory, with peepholes too."""
    if p is not None and w.shape[0] != 1:
        raise n.refuse("peepholes in both directions are not there")
    n.kept["peepholes"] = None if p is None else p[0]
    return _run(n, "LSTM", x, w, r, b, lengths, h, c, _standard if _plain(n) and p is None else _other, ["sigmoid", "tanh", "tanh"])
