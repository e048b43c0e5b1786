"""Losses of random options and targets, beside PyTorch: `python -m tests.nn.loss_programs [SEED] [--count N]`.

A program calls one loss, as a function or a module, with a random reduction, weights, targets of each kind, shapes with dims of no elements and of sizes
that do not fit, and looks at the result, at gradients of the first and second order by all that may have one, and at types of errors. Without a seed: 400
programs of today's.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from typing import Any

import flambeau
from tests import daily
from tests.nn.module_programs import Run, Seen, compared

Call = tuple[str, list[Any], dict[str, Any]]  # a loss's function, its positional arguments and options


def _shape(r: random.Random) -> tuple[int, ...]:
    """Of one to four dims, now and then with one of no elements or of one."""
    return tuple(r.choice((0, 1, 1, 2, 3, 3, 4, 4, 5)) if r.random() < 0.4 else r.randrange(2, 5) for _ in range(r.choice((1, 2, 2, 2, 3, 4))))


def _other(r: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, or one that broadcasts with it, or does not fit."""
    kind = r.randrange(12)
    if kind == 0:
        return shape[1:]
    if kind == 1:
        return (*shape[:-1], 1)
    if kind == 2:
        return (*shape[:-1], shape[-1] + 1)
    return shape


def _classes(s: Run, shape: tuple[int, ...], classes: int, ignored: int) -> Any:
    """Class indices, some of them ignored. (Of one sample PyTorch has no gradients where they are a vector.)"""
    r = s.draw
    flat = [ignored if r.random() < 0.15 or not classes else r.randrange(classes) for _ in range(math.prod(shape))]
    return s.m.tensor(flat, dtype=s.m.int64).reshape(shape)


def _signs(s: Run, shape: tuple[int, ...]) -> Any:
    return s.m.where(s.input(shape) > 0, 1.0, -1.0).to(getattr(s.m, s.dtype))


def _leaf(s: Run, x: Any, share: float = 0.6) -> Any:
    return x.detach().requires_grad_() if x.is_floating_point() and s.draw.random() < share else x


def _of_classes(s: Run) -> Call:
    r = s.draw
    name = r.choice(("cross_entropy", "cross_entropy", "nll_loss"))
    shape = _shape(r)
    axis = 0 if len(shape) == 1 else 1
    classes, ignored = shape[axis], r.choice((-100, -100, 0, -1, 1))
    x = s.input(shape)
    x = _leaf(s, x if name == "cross_entropy" else x.log_softmax(axis) if 0 not in shape else x, 0.9)
    rest = (*shape[:axis], *shape[axis + 1 :])
    options: dict[str, Any] = {}
    if name == "cross_entropy" and r.random() < 0.4:
        y = s.input(_other(r, shape)).abs()
        y = _leaf(s, y)
    else:
        known = classes + 1 if r.random() < 0.05 else classes  # now and then a class that is none
        sizes = _other(r, rest) if rest else rest if x.requires_grad else (1,)
        if not shape[0]:  # PyTorch takes 0 for the size of a target without dims, and stops later, somewhere
            sizes = sizes or rest
        y = _classes(s, sizes, known, ignored)
        options["ignore_index"] = ignored
    if r.random() < 0.5:
        options["weight"] = s.input(_other(r, (classes,))).abs()
    if name == "cross_entropy" and r.random() < 0.4:
        options["label_smoothing"] = r.choice((0.1, 0.3, 1.0, 0.0))
    # Of bytes PyTorch takes none of them forwards, and refuses them backwards; with weights and smoothing its mean gathers by them, which refuses all bytes.
    bytes_too = "ignore_index" in options and ignored >= 0 and (y.numel() or not x.requires_grad)
    if bytes_too and not ("weight" in options and options.get("label_smoothing")) and r.random() < 0.1:
        y = y.to(s.m.uint8)
    return name, [x, y], options


def _of_margins(s: Run) -> Call:
    r = s.draw
    name = r.choice(("multi_margin_loss", "multilabel_margin_loss"))
    shape = _shape(r)[:2]
    shape = (max(shape[0], 1), *shape[1:])  # PyTorch's mean over no samples is what memory holds
    x = _leaf(s, s.input(shape), 0.9)
    if name == "multi_margin_loss":
        options = {"p": r.choice((1, 2)), "margin": r.choice((1.0, 0.3))}
        if r.random() < 0.4:
            options["weight"] = s.input(_other(r, shape[-1:])).abs()
        rest = shape[:-1] if len(shape) > 1 else r.choice(((), (1,)))
        return name, [x, _classes(s, rest, shape[-1], 0)], options
    return name, [x, _classes(s, shape, shape[-1], -1)], {}


def _of_pairs(s: Run) -> Call:
    """Losses of an input and a target of its shape."""
    r = s.draw
    name = r.choice((
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "hinge_embedding_loss", "kl_div", "poisson_nll_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss", "gaussian_nll_loss",
    ))  # fmt: skip
    shape = _shape(r)
    x, y = s.input(shape), s.input(_other(r, shape))
    options: dict[str, Any] = {}
    if name in ("soft_margin_loss", "hinge_embedding_loss"):
        y = _signs(s, tuple(y.shape))
    elif name == "kl_div":
        options["log_target"] = r.random() < 0.5
        y = y if options["log_target"] else y.abs()
    elif name == "poisson_nll_loss":
        options = {"log_input": r.random() < 0.5, "full": r.random() < 0.5}
        x, y = x if options["log_input"] else x.abs() + 0.1, (y.abs() * 4).round()
    elif name.startswith("binary"):
        x = x if name.endswith("logits") else x.abs()
        y = y.abs()
    elif name == "smooth_l1_loss":
        options["beta"] = r.choice((1.0, 0.3, 0.0))
    elif name == "huber_loss":
        options["delta"] = r.choice((1.0, 0.3, 2))
    y = y if name in ("soft_margin_loss", "hinge_embedding_loss", "poisson_nll_loss") else _leaf(s, y, 0.4)
    if name == "binary_cross_entropy" and y.requires_grad:
        x = x.clamp(0.001, 0.999)  # at 0 and 1 PyTorch cuts the loss's logarithms at -100, and does not cut them in the target's gradient, which is infinite
    elif name == "kl_div" and y.requires_grad and not options["log_target"]:
        y = y.detach().clamp(min=0.001).requires_grad_()  # at 0 PyTorch's gradient of t log t is NaN
    args = [_leaf(s, x, 0.9), y]
    if name == "gaussian_nll_loss":
        var = s.input(r.choice((shape, shape, (*shape[:-1], 1), shape[:-1]))).abs() + 0.1
        args.append(_leaf(s, var))
        options["full"] = r.random() < 0.5
    if name in ("mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss"):
        if r.random() < 0.4:
            options["weight"] = s.input(_other(r, shape)).abs()
            if name in ("mse_loss", "l1_loss", "huber_loss"):
                options["weight"] = _leaf(s, options["weight"], 0.3)
        if name.endswith("logits") and r.random() < 0.4:
            options["pos_weight"] = s.input(_other(r, shape[-1:])).abs()
    return name, args, options


def _of_distances(s: Run) -> Call:
    r = s.draw
    name = r.choice(("cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss"))
    shape = _shape(r)[:2]
    x, y = _leaf(s, s.input(shape), 0.9), _leaf(s, s.input(_other(r, shape)))
    if name == "margin_ranking_loss":
        return name, [x, y, _signs(s, _other(r, shape))], {"margin": r.choice((0.0, 0.2))}
    if name == "cosine_embedding_loss":
        return name, [x, y, _signs(s, _other(r, shape[:-1]) if len(shape) > 1 else ())], {"margin": r.choice((0.0, 0.2))}
    options = {"margin": r.choice((1.0, 0.3)), "swap": r.random() < 0.5}
    if name == "triplet_margin_loss":
        options["p"] = r.choice((2.0, 1.0, 3.0))
    return name, [x, y, _leaf(s, s.input(shape))], options


def _of_sequences(s: Run) -> Call:
    r = s.draw
    steps, batch, labels, most = r.randrange(2, 6), r.randrange(1, 4), r.randrange(2, 5), r.randrange(1, 3)
    x = _leaf(s, s.input((steps, batch, labels)).log_softmax(-1), 0.9)
    y = s.m.tensor([r.randrange(1, labels) for _ in range(batch * most)], dtype=s.m.int64).reshape(batch, most)
    lengths, sizes = [r.randrange(max(1, steps - 1), steps + 1) for _ in range(batch)], [r.randrange(0, most + 1) for _ in range(batch)]
    if r.random() < 0.3:
        y = s.m.cat([row[:size] for row, size in zip(y, sizes, strict=True)])
    given = [s.m.tensor(lengths), s.m.tensor(sizes)] if r.random() < 0.5 else [tuple(lengths), tuple(sizes)]
    return "ctc_loss", [x, y, *given], {"zero_infinity": r.random() < 0.7}


KINDS: tuple[Callable[[Run], Call], ...] = (_of_classes, _of_classes, _of_margins, _of_pairs, _of_pairs, _of_pairs, _of_distances, _of_sequences)
MODULES = {
    "cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss", "multi_margin_loss": "MultiMarginLoss", "multilabel_margin_loss": "MultiLabelMarginLoss",
    "mse_loss": "MSELoss", "l1_loss": "L1Loss", "smooth_l1_loss": "SmoothL1Loss", "huber_loss": "HuberLoss", "soft_margin_loss": "SoftMarginLoss",
    "hinge_embedding_loss": "HingeEmbeddingLoss", "kl_div": "KLDivLoss", "poisson_nll_loss": "PoissonNLLLoss", "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss", "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss", "gaussian_nll_loss": "GaussianNLLLoss",
    "cosine_embedding_loss": "CosineEmbeddingLoss", "margin_ranking_loss": "MarginRankingLoss", "triplet_margin_loss": "TripletMarginLoss",
    "triplet_margin_with_distance_loss": "TripletMarginWithDistanceLoss", "ctc_loss": "CTCLoss",
}  # fmt: skip


def _made(s: Run) -> tuple[str, list[Any], dict[str, Any], bool]:
    """A loss, its arguments and options, and whether it is called as a module."""
    name, args, options = s.draw.choice(KINDS)(s)
    options["reduction"] = s.draw.choice(("mean", "sum", "none", "mean") if name != "kl_div" else ("mean", "sum", "none", "batchmean"))
    module = s.draw.random() < 0.4 and not (name in ("mse_loss", "l1_loss", "huber_loss") and "weight" in options)
    return name, args, options, module


def run(m: Any, seed: int, nudge: int = 0) -> list[Seen]:
    """What one library shows."""
    s = Run(m, seed, nudge)
    name, args, options, module = _made(s)
    leaves = [x for x in (*args, *options.values()) if isinstance(x, m.Tensor) and x.requires_grad]
    try:
        loss = getattr(m.nn, MODULES[name])(**options)(*args) if module else getattr(m.nn.functional, name)(*args, **options)
        s.see("result", loss)
        if not loss.requires_grad:
            return s.seen
        scale = m.linspace(0.5, 1.5, max(loss.numel(), 1), dtype=loss.dtype)[: loss.numel()].reshape(loss.shape)
        first = m.autograd.grad((loss * scale).sum(), leaves, create_graph=True, allow_unused=True)
        for g in first:
            s.see("gradient", None if g is None else g.detach())
        again = [(g * g).sum() for g in first if g is not None and g.requires_grad]
        # A gradient that is constant in pieces requires gradients in PyTorch, and has none here: zeros and None are the same.
        seconds = m.autograd.grad(sum(again), leaves, allow_unused=True) if again else [None] * len(leaves)
        for x, g in zip(leaves, seconds, strict=True):
            s.see("second gradient", m.zeros_like(x).detach() if g is None else g.detach())
    except Exception as error:
        s.seen.append(("error", "IndexError" if isinstance(error, IndexError) else type(error).__name__))
    return s.seen


def difference(seed: int) -> str | None:
    """In what the two libraries differ, or None."""
    return compared(run, seed, _named)


def _named(seed: int) -> str:
    name, args, options, module = _made(Run(flambeau, seed))
    shown = [f"{list(x.shape)} {x.dtype}{' grad' if x.requires_grad else ''}" if isinstance(x, flambeau.Tensor) else repr(x) for x in args]
    rest = {k: list(v.shape) if isinstance(v, flambeau.Tensor) else v for k, v in options.items()}
    return f"{MODULES[name] if module else name}({', '.join(shown)}, {rest})"


if __name__ == "__main__":
    sys.exit(daily.run("programs of losses", difference, 400))
