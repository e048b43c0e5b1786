"""LSTM, GRU and RNN as ONNX nodes, a node for each layer."""

from __future__ import annotations

from typing import Any

from flambeau.onnx.exporting.builder import Builder, Val, form

_ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}  # ONNX's order of PyTorch's gates


def _gates(b: Builder, kind: str, w: Val) -> Any:
    order = _ORDER[kind]
    if len(order) == 1:
        return w
    parts = b.several("Split", len(order), w, axis=0, num_outputs=len(order))
    return b.op("Concat", *[parts[i] for i in order], axis=0)


def _stacked(b: Builder, xs: list[Any]) -> str:
    made = [b.op("Unsqueeze", x, b.ints([0])) for x in xs]
    return made[0] if len(made) == 1 else b.op("Concat", *made, axis=0)


@form("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def recurrence(
    b: Builder, input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool
) -> Any:
    """Layers one after the other; [outputs, last hidden state] and for an LSTM the last cell state."""
    if dropout and train:
        raise b.refuse("it drops elements in training: export the module after eval()")
    name = b.where.split(".")[1]
    kind = {"lstm": "LSTM", "gru": "GRU"}.get(name, "RNN")
    directions = 2 if bidirectional else 1
    each = (4 if has_biases else 2) * directions
    if len(params) != each * num_layers:
        raise b.refuse("projections have no form")
    states = hx if isinstance(hx, list) else [hx]
    single = input.ndim == 2
    if single:
        states = [Val(b.op("Unsqueeze", s, b.ints([1])), s.dtype, [*s.shape[:1], 1, *s.shape[1:]]) for s in states]
    x: Any = b.op("Unsqueeze", input, b.ints([1])) if single else b.op("Transpose", input, perm=[1, 0, 2]) if batch_first else input
    size = int(states[0].shape[-1])
    last: list[list[str]] = [[] for _ in states]
    for layer in range(num_layers):
        own = params[layer * each : (layer + 1) * each]
        step = len(own) // directions
        parts = [own[d * step : (d + 1) * step] for d in range(directions)]
        w = _stacked(b, [_gates(b, kind, p[0]) for p in parts])
        r = _stacked(b, [_gates(b, kind, p[1]) for p in parts])
        bias = None
        if has_biases:
            bias = _stacked(b, [b.op("Concat", _gates(b, kind, p[2]), _gates(b, kind, p[3]), axis=0) for p in parts])
        now = [b.op("Slice", s, b.ints([layer * directions]), b.ints([(layer + 1) * directions]), b.ints([0])) for s in states]
        options: dict[str, Any] = {"hidden_size": size, "direction": "bidirectional" if bidirectional else "forward"}
        if kind == "GRU":
            options["linear_before_reset"] = 1
        if name == "rnn_relu":
            options["activations"] = ["Relu"] * directions
        made = b.several(kind, 1 + len(states), x, w, r, bias, None, *now, **options)
        for kept, new in zip(last, made[1:], strict=True):
            kept.append(new)
        # [time, directions, batch, size] -> [time, batch, directions * size]
        x = b.op("Reshape", b.op("Transpose", made[0], perm=[0, 2, 1, 3]), b.ints([0, 0, -1]))
    out = b.op("Squeeze", x, b.ints([1])) if single else b.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x
    ends = [k[0] if len(k) == 1 else b.op("Concat", *k, axis=0) for k in last]
    return [out, *[b.op("Squeeze", e, b.ints([1])) if single else e for e in ends]]


@form("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(b: Builder, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of a recurrence over a batch."""
    name = b.where.split(".")[1]
    kind = {"lstm_cell": "LSTM", "gru_cell": "GRU"}.get(name, "RNN")
    states = hx if isinstance(hx, list) else [hx]
    if input.ndim != 2:
        raise b.refuse("a step without a batch has no form")
    w, r = _stacked(b, [_gates(b, kind, w_ih)]), _stacked(b, [_gates(b, kind, w_hh)])
    bias = None if b_ih is None else _stacked(b, [b.op("Concat", _gates(b, kind, b_ih), _gates(b, kind, b_hh), axis=0)])
    options: dict[str, Any] = {"hidden_size": int(states[0].shape[-1])}
    if kind == "GRU":
        options["linear_before_reset"] = 1
    if name == "rnn_relu_cell":
        options["activations"] = ["Relu"]
    now = [b.op("Unsqueeze", s, b.ints([0])) for s in states]
    made = b.several(kind, 1 + len(states), b.op("Unsqueeze", input, b.ints([0])), w, r, bias, None, *now, **options)
    ends = [b.op("Squeeze", m, b.ints([0])) for m in made[1:]]
    return ends if kind == "LSTM" else ends[0]
