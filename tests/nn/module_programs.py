"""Modules of random options and inputs, beside PyTorch: `python -m tests.nn.module_programs [SEED] [--count N]`.

A program makes one module, calls it with inputs of a few shapes and layouts, in training and in evaluation, and looks at results, their strides,
gradients of the first and second order, and the state; in between it copies the module, loads its state or freezes a parameter. Options that
PyTorch refuses must be refused. Without a seed: 300 programs of today's.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau
from tests import daily
from tests.daily import relative

Seen = tuple[str, Any]
TOLERANCE = {"float64": 1e-8, "float32": 2e-4}  # relative to the greatest number, of second derivatives through a few layers' worth of sums


class Run:
    """One library's run of a program."""

    def __init__(self, m: Any, seed: int, nudge: int = 0) -> None:
        self.m, self.draw = m, random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nudge = np.random.default_rng([nudge, seed]) if nudge else None
        self.seen: list[Seen] = []
        self.dtype = self.draw.choice(["float64", "float64", "float32"])

    def input(self, shape: tuple[int, ...]) -> Any:
        """A tensor of [-1, 1), sometimes of another layout."""
        data = np.round(self.numbers.uniform(-1, 1, shape), 3)
        if self.nudge is not None:
            data = data * (1 + self.nudge.choice([-1, 1], shape) * (2.0**-52 if self.dtype == "float64" else 2.0**-23))
        x = self.m.tensor(data.tolist(), dtype=getattr(self.m, self.dtype)).reshape(shape)
        layout = self.draw.randrange(4)
        if layout == 1 and len(shape) > 1:
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout == 2 and len(shape) == 4:
            x = x.contiguous(memory_format=self.m.channels_last)
        return x

    def see(self, what: str, x: Any, strides: bool = False) -> None:
        """Note what a tensor shows."""
        if strides and not x.numel():
            return
        if x is None:
            self.seen.append((what, None))
            return
        kind = str(x.dtype).removeprefix("torch.")
        self.seen.append(
            (what, (kind, tuple(x.stride()) if strides else tuple(x.shape), bool(x.requires_grad), np.asarray(x.detach().tolist()).reshape(tuple(x.shape))))
        )


def _pick(r: random.Random, *choices: Any) -> Any:
    return r.choice(choices)


def _convolution(s: Run, dims: int, transposed: bool) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    groups = _pick(r, 1, 1, 2, 4)
    inner, outer = groups * r.randrange(1, 3), groups * r.randrange(1, 4)
    kernel = tuple(r.randrange(1, 4) for _ in range(dims))
    options: dict[str, Any] = {
        "stride": tuple(r.randrange(1, 3) for _ in range(dims)), "dilation": tuple(r.randrange(1, 3) for _ in range(dims)),
        "groups": groups, "bias": r.random() < 0.7,
    }  # fmt: skip
    if transposed:
        options["padding"], options["output_padding"] = tuple(r.randrange(0, 2) for _ in range(dims)), tuple(r.randrange(0, 2) for _ in range(dims))
    else:
        options["padding"] = _pick(r, tuple(r.randrange(0, 3) for _ in range(dims)), "same", "valid")
        options["padding_mode"] = _pick(r, "zeros", "zeros", "reflect", "replicate", "circular")
    name = f"Conv{'Transpose' if transposed else ''}{dims}d"
    most = 9 if dims < 3 else 6
    return (
        lambda: getattr(s.m.nn, name)(inner, outer, kernel, **options),
        lambda: (s.input((*_pick(r, (2,), (1,), (3,), ()), inner, *(r.randrange(5, most) for _ in range(dims)))),),
    )


def _pooling(s: Run, dims: int) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    kind = _pick(r, "MaxPool", "AvgPool", "LPPool", "AdaptiveAvgPool", "AdaptiveMaxPool")
    if kind == "LPPool" and dims == 3:
        kind = "MaxPool"
    kernel = r.randrange(1, 4)
    if kind.startswith("Adaptive"):
        size = r.randrange(1, 5)
        made = lambda: getattr(s.m.nn, f"{kind}{dims}d")(size)
    elif kind == "LPPool":
        norm, stride, ceil = _pick(r, 1, 2, 3), r.randrange(1, 3), r.random() < 0.4
        made = lambda: getattr(s.m.nn, f"{kind}{dims}d")(norm, kernel, stride=stride, ceil_mode=ceil)
    else:
        options = {"stride": _pick(r, None, 1, 2), "padding": r.randrange(0, 2), "ceil_mode": r.random() < 0.4}
        options |= {"dilation": r.randrange(1, 3)} if kind == "MaxPool" else {"count_include_pad": r.random() < 0.5}
        made = lambda: getattr(s.m.nn, f"{kind}{dims}d")(kernel, **options)
    # (Four dims that are channels last: PyTorch's MaxPool3d refuses them as volumes of another memory format.)
    return made, lambda: (s.input((*_pick(r, (2,), (2,) if dims == 3 else ()), r.randrange(1, 4), *(r.randrange(4, 8) for _ in range(dims)))),)


def _normal(s: Run) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    kind = _pick(r, "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "GroupNorm", "LayerNorm", "RMSNorm", "LocalResponseNorm")
    c = 2 * r.randrange(1, 4)
    affine, eps = r.random() < 0.6, _pick(r, 1e-5, 1e-3)
    if kind.startswith(("Batch", "Instance")):
        dims = int(kind[-2])
        options = {
            "affine": affine,
            "eps": eps,
            "momentum": _pick(r, 0.1, 0.3, None) if kind.startswith("Batch") else 0.2,
            "track_running_stats": r.random() < 0.6,
        }
        shape = (*(r.randrange(2, 5) for _ in range(1)), c, *(r.randrange(2, 5) for _ in range(dims)))
        return lambda: getattr(s.m.nn, kind)(c, **options), lambda: (s.input((r.randrange(2, 5), *shape[1:])),)
    if kind == "GroupNorm":
        return lambda: s.m.nn.GroupNorm(2, c, eps=eps, affine=affine), lambda: (s.input((r.randrange(2, 4), c, *(3,) * r.randrange(0, 3))),)
    if kind == "LocalResponseNorm":
        size = r.randrange(1, 4)
        return lambda: s.m.nn.LocalResponseNorm(size, alpha=0.1, k=1.5), lambda: (s.input((2, c, *(3,) * r.randrange(1, 3))),)
    shape = (c,) if r.random() < 0.6 else (3, c)
    return lambda: getattr(s.m.nn, kind)(shape, eps=eps, elementwise_affine=affine), lambda: (
        s.input((*(r.randrange(1, 4) for _ in range(r.randrange(0, 3))), *shape)),
    )


def _recurrent(s: Run) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    kind = _pick(r, "RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")
    n, h = r.randrange(1, 5), r.randrange(1, 5)
    bias = r.random() < 0.7
    if kind.endswith("Cell"):
        return lambda: getattr(s.m.nn, kind)(n, h, bias=bias), lambda: (s.input((*_pick(r, (2,), (3,), ()), n)),)
    options: dict[str, Any] = {"num_layers": r.randrange(1, 3), "bias": bias, "batch_first": r.random() < 0.5, "bidirectional": r.random() < 0.4}
    if kind == "RNN":
        options["nonlinearity"] = _pick(r, "tanh", "relu")
    if kind == "LSTM" and h > 1 and r.random() < 0.3:
        options["proj_size"] = h - 1
    return lambda: getattr(s.m.nn, kind)(n, h, **options), lambda: (s.input((r.randrange(1, 5), *_pick(r, (2,), (3,), ()), n)),)


def _attention(s: Run) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    heads = r.randrange(1, 3)
    e, first = heads * r.randrange(1, 4), r.random() < 0.5
    kind = _pick(r, "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer")
    if kind == "MultiheadAttention":
        options = {"bias": r.random() < 0.7, "add_bias_kv": r.random() < 0.3, "add_zero_attn": r.random() < 0.3, "batch_first": first}

        def given() -> tuple[Any, ...]:
            x = s.input((*_pick(r, (2, 2), (3, 3), (4,)), e))
            return (x, x, x) if r.random() < 0.5 else (x, s.input(tuple(x.shape)), s.input(tuple(x.shape)))

        return lambda: s.m.nn.MultiheadAttention(e, heads, **options), given
    rest = {"dim_feedforward": r.randrange(2, 6), "dropout": 0.0, "activation": _pick(r, "relu", "gelu"), "batch_first": first, "norm_first": r.random() < 0.5}
    if kind == "TransformerEncoderLayer":
        return lambda: s.m.nn.TransformerEncoderLayer(e, heads, **rest), lambda: (s.input((r.randrange(1, 4), r.randrange(1, 4), e)),)
    return lambda: s.m.nn.TransformerDecoderLayer(e, heads, **rest), lambda: (s.input((3, 2, e)), s.input((_pick(r, 3, 2) if not first else 3, 2, e)))


def _pointwise(s: Run) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    name, given = _pick(
        r, ("ReLU", ()), ("LeakyReLU", (0.2,)), ("ELU", (0.7,)), ("SELU", ()), ("CELU", (0.5,)), ("GELU", (_pick(r, "none", "tanh"),)), ("SiLU", ()),
        ("Mish", ()),
        ("Softplus", (1.5, 3.0)), ("Softshrink", (0.3,)), ("Hardshrink", (0.4,)), ("Tanhshrink", ()), ("Threshold", (0.1, 0.7)), ("Hardtanh", (-0.3, 0.5)),
        ("Hardswish", ()), ("LogSigmoid", ()), ("Softsign", ()), ("Softmax", (-1,)), ("LogSoftmax", (0,)), ("Softmin", (-1,)),
        ("PReLU", ()), ("RReLU", (0.2, 0.2)),
        ("GLU", (-1,)), ("ReLU6", ()), ("Flatten", (0, -1)), ("Identity", ()), ("Sigmoid", ()),
    )  # fmt: skip
    shapes = [(2, 4), (4,), (3, 2, 4), (1, 3, 2, 2)]
    return lambda: getattr(s.m.nn, name)(*given), lambda: (s.input(_pick(r, *shapes)),)


def _resized(s: Run) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    kind = r.randrange(6)
    if kind == 0:
        mode, dims = _pick(
            r, ("nearest", 1), ("linear", 1), ("nearest", 2), ("bilinear", 2), ("bicubic", 2), ("nearest-exact", 2), ("trilinear", 3), ("area", 2)
        )
        corners = {"align_corners": r.random() < 0.5} if "linear" in mode or mode == "bicubic" else {}
        how = _pick(r, {"scale_factor": 2}, {"scale_factor": 1.5}, {"scale_factor": 0.7}, {"size": 5})
        return lambda: s.m.nn.Upsample(mode=mode, **how, **corners), lambda: (s.input((2, 2, *(r.randrange(2, 5) for _ in range(dims)))),)
    if kind == 1:
        name, dims = _pick(
            r,
            ("ReflectionPad", 1),
            ("ReflectionPad", 2),
            ("ReplicationPad", 1),
            ("ReplicationPad", 2),
            ("CircularPad", 2),
            ("ZeroPad", 2),
            ("ReplicationPad", 3),
        )
        sizes = tuple(r.randrange(0 if name != "ZeroPad" else -1, 3) for _ in range(2 * dims))
        return lambda: getattr(s.m.nn, f"{name}{dims}d")(sizes), lambda: (s.input((*_pick(r, (2,), ()), 2, *(r.randrange(3, 6) for _ in range(dims)))),)
    if kind == 2:
        f = r.randrange(1, 3)
        return lambda: s.m.nn.PixelShuffle(f), lambda: (s.input((*_pick(r, (2,), ()), f * f * r.randrange(1, 3), 2, 3)),)
    if kind == 3:
        options = {"dilation": r.randrange(1, 3), "padding": r.randrange(0, 2), "stride": r.randrange(1, 3)}
        return lambda: s.m.nn.Unfold((2, 2), **options), lambda: (s.input((2, 2, r.randrange(3, 6), r.randrange(3, 6))),)
    if kind == 4:
        a, b, c, bias = r.randrange(1, 4), r.randrange(1, 4), r.randrange(1, 4), r.random() < 0.5
        return lambda: s.m.nn.Bilinear(a, b, c, bias=bias), lambda: (lambda lead: (s.input((*lead, a)), s.input((*lead, b))))(_pick(r, (2,), (3, 2), ()))
    a, b, bias = r.randrange(0, 5), r.randrange(1, 5), r.random() < 0.7
    return lambda: s.m.nn.Linear(a, b, bias=bias), lambda: (s.input((*_pick(r, (2,), (), (3, 2), (0,), (2, 1, 2)), a)),)


def _loss(s: Run) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    reduction = {"reduction": _pick(r, "mean", "sum", "none")}
    name, options = _pick(
        r, ("MSELoss", {}), ("L1Loss", {}), ("SmoothL1Loss", {"beta": 0.5}), ("HuberLoss", {"delta": 0.4}), ("SoftMarginLoss", {}),
        ("KLDivLoss", {"log_target": True}),
        ("BCEWithLogitsLoss", {}), ("PoissonNLLLoss", {"full": True, "log_input": True}), ("HingeEmbeddingLoss", {"margin": 0.5}),
        ("CrossEntropyLoss", {"label_smoothing": 0.1}),
        ("CrossEntropyLoss", {}), ("MultiLabelSoftMarginLoss", {}), ("CosineEmbeddingLoss", {"margin": 0.1}), ("MarginRankingLoss", {"margin": 0.2}),
        ("TripletMarginLoss", {"p": 3.0}),
    )  # fmt: skip

    def given() -> tuple[Any, ...]:
        shape = _pick(r, (3, 4), (2, 3), (4, 2))
        x, y = s.input(shape), s.input(shape)
        if name in ("BCEWithLogitsLoss", "MultiLabelSoftMarginLoss") or (name == "CrossEntropyLoss" and r.random() < 0.5):
            y = y.abs()
        elif name == "CrossEntropyLoss":
            y = s.m.tensor([r.randrange(shape[1]) for _ in range(shape[0])])
        elif name in ("SoftMarginLoss", "HingeEmbeddingLoss"):
            y = s.m.where(y > 0, 1.0, -1.0).to(x.dtype)
        elif name in ("CosineEmbeddingLoss", "TripletMarginLoss"):
            return x, y, (s.input(shape[:1]).sign() if name[0] == "C" else s.input(shape))
        elif name == "MarginRankingLoss":
            return x, y, s.input(shape).sign()
        elif name == "PoissonNLLLoss":
            y = y.abs() * 4
        return x, y

    return lambda: getattr(s.m.nn, name)(**options, **reduction), given


def _table(s: Run) -> tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]:
    r = s.draw
    n, e = r.randrange(2, 7), r.randrange(1, 4)

    def given() -> tuple[Any, ...]:
        shape = _pick(r, (3,), (2, 3), (2, 2))
        return (s.m.tensor([r.randrange(n) for _ in range(math.prod(shape))]).reshape(shape),)

    if r.random() < 0.5:
        options: dict[str, Any] = {"padding_idx": _pick(r, None, 0, -1), "max_norm": _pick(r, None, 0.7), "scale_grad_by_freq": False}
        return lambda: s.m.nn.Embedding(n, e, **options), given
    mode = _pick(r, "sum", "mean", "max")
    bag = {"mode": mode, "padding_idx": _pick(r, None, 0), "include_last_offset": False}

    def bags() -> tuple[Any, ...]:
        if r.random() < 0.5:
            return (s.m.tensor([r.randrange(n) for _ in range(6)]).reshape(2, 3),)
        return s.m.tensor([r.randrange(n) for _ in range(5)]), s.m.tensor([0, r.randrange(0, 3), 4])

    return lambda: s.m.nn.EmbeddingBag(n, e, **bag), bags


KINDS: tuple[Callable[[Run], tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]], ...] = (
    lambda s: _convolution(s, s.draw.randrange(1, 4), False), lambda s: _convolution(s, s.draw.randrange(1, 4), True),
    lambda s: _pooling(s, s.draw.randrange(1, 4)),
    _normal, _recurrent, _attention, _pointwise, _resized, _loss, _table,
)  # fmt: skip


def _flat(out: Any) -> list[Any]:
    if isinstance(out, (tuple, list)):
        return [t for x in out for t in _flat(x)]
    return [out] if hasattr(out, "dtype") else []


def _call(s: Run, module: Any, given: tuple[Any, ...]) -> None:
    leaves = [x.detach().clone().requires_grad_() if x.dtype.is_floating_point and s.draw.random() < 0.8 else x for x in given]
    outs = _flat(module(*leaves))
    for x in outs:
        s.see("result", x)
        s.see("strides", x, strides=True)
    scalars = [(x * x).sum() + x.sum() for x in outs if x.requires_grad]
    if not scalars:
        return
    wanted = [x for x in [*leaves, *module.parameters()] if x.requires_grad]
    first = s.m.autograd.grad(sum(scalars), wanted, create_graph=True, allow_unused=True)
    for g in first:
        s.see("gradient", None if g is None else g.detach())
    again = [(g * g).sum() for g in first if g is not None and g.requires_grad]
    if again:
        for g in s.m.autograd.grad(sum(again), wanted, allow_unused=True):
            s.see("second gradient", None if g is None else g.detach())


def run(m: Any, seed: int, nudge: int = 0) -> list[Seen]:
    """What one library shows."""
    s = Run(m, seed, nudge)
    r = s.draw
    m.manual_seed(seed)
    makes, given = r.choice(KINDS)(s)
    try:
        module = makes().to(getattr(m, s.dtype))
    except Exception as error:
        s.seen.append(("refused", type(error).__name__))
        return s.seen
    for value in module.state_dict().values():
        s.see("state", value)
    for _ in range(4):
        step = r.randrange(8)
        if step == 0:
            module.eval()
        elif step == 1:
            module.train()
        elif step == 2:
            module = copy.deepcopy(module)
        elif step == 3:
            other = makes().to(getattr(m, s.dtype))
            other.load_state_dict(module.state_dict())
            module = other
        elif step == 4:
            for p in list(module.parameters())[:1]:
                p.requires_grad_(not p.requires_grad)
        try:
            with m.no_grad() if step == 5 else m.enable_grad():
                _call(s, module, given())
        except Exception as error:
            s.seen.append(("error", type(error).__name__))
    for value in module.state_dict().values():
        s.see("state", value)
    return s.seen


def distance(a: Seen, b: Seen) -> float:
    """The greatest difference of what was seen, in tolerances; infinite where kinds differ."""
    if a[0] != b[0] or (a[1] is None) != (b[1] is None):
        return math.inf
    if a[1] is None or isinstance(a[1], str) or isinstance(b[1], str):
        return 0.0 if type(a[1]) is type(b[1]) and a[1] == b[1] else math.inf
    (kind, shape, needs, p), (kind_too, shape_too, needs_too, q) = a[1], b[1]
    if kind != kind_too or shape != shape_too or needs != needs_too:
        return math.inf
    if kind not in TOLERANCE:
        return 0.0 if np.array_equal(p, q) else math.inf
    return relative(p, q) / TOLERANCE[kind]


def difference(seed: int) -> str | None:
    """In what the two libraries differ, or None."""
    return compared(run, seed, _named)


def compared(run: Callable[..., list[Seen]], seed: int, named: Callable[[int], str]) -> str | None:
    """In what the two libraries' runs of a program differ, or None. `named` tells the program."""
    import torch

    theirs, ours = run(torch, seed), run(flambeau, seed)
    for i, (x, y) in enumerate(zip(ours, theirs, strict=False)):
        if distance(x, y) <= 1:
            continue
        if y[0] == "error" and x[0] == "second gradient":
            return None  # PyTorch has none of attention, of bags and of some losses
        for m, own in ((torch, theirs), (flambeau, ours)):
            for k in (1, 2):
                other = run(m, seed, k)
                if i >= len(other) or distance(other[i], own[i]) * 100 > distance(x, y) or distance(other[i], own[i]) == math.inf:
                    return None  # what changes so much with the last bit of its input says nothing
        return f"sight {i}, {x[0]}:\n  flambeau {x}\n  PyTorch  {y}\n  {named(seed)}"
    return None if len(ours) == len(theirs) else f"{len(ours)} sights and {len(theirs)}: {named(seed)}"


def _named(seed: int) -> str:
    s = Run(flambeau, seed)
    makes, _ = s.draw.choice(KINDS)(s)
    try:
        return repr(makes())
    except Exception as error:
        return repr(error)


if __name__ == "__main__":
    sys.exit(daily.run("programs of modules", difference, 300))
