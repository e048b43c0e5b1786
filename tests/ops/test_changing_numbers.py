"""Float arguments that change (ops/changing.py): the same bits whether they are constants or given at run time, and nothing new at a new value.

`python -m tests.ops.test_changing_numbers` compares 20 values in four dtypes; the test takes few.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import flambeau as torch
from flambeau.ops.changing import Changing
from flambeau.ops.registry import Operation
from flambeau.statistics import counters

F = torch.nn.functional

Call = Callable[[Any, float], Any]
INPUT = (6, 8)


def _images(x: Any) -> Any:
    return x.reshape(2, 3, 8)


# What takes floats that were part of an edge's key: of each (input, value) a call. Values are between 0 and 1.
CALLS: dict[str, Call] = {
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "elu_ scaled": lambda x, v: F.elu_(x * 1, v, 1 + v, 1 - v / 2),
    "softplus beta": lambda x, v: F.softplus(x, v),
    "softplus threshold": lambda x, v: F.softplus(x, 1.5, v),
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "hardtanh": lambda x, v: F.hardtanh(x, -v, v),
    "threshold": lambda x, v: F.threshold(x, v, -v / 3),
    "rrelu": lambda x, v: F.rrelu(x, v / 8, v),
    "dropout": F.dropout,
    "alpha_dropout": lambda x, v: F.alpha_dropout(x, v, True),
    "dropout2d": lambda x, v: F.dropout2d(_images(x).unsqueeze(3), v),
    "pad": lambda x, v: F.pad(x, (1, 2), value=v),
    "layer_norm": lambda x, v: F.layer_norm(x, (8,), eps=v / 100),
    "rms_norm": lambda x, v: F.rms_norm(x, (8,), eps=v / 100),
    "group_norm": lambda x, v: F.group_norm(x, 4, eps=v / 100),
    "instance_norm": lambda x, v: F.instance_norm(_images(x), eps=v / 100),
    "batch_norm": lambda x, v: F.batch_norm(x, None, None, training=True, eps=v / 100),
    "batch_norm eval": lambda x, v: F.batch_norm(x, x.detach().mean(0), x.detach().var(0), eps=v / 100),
    "batch_norm momentum": lambda x, v: F.batch_norm(x, torch.zeros(8), torch.ones(8), training=True, momentum=v),
    "local_response_norm": lambda x, v: F.local_response_norm(_images(x), 2, v, 1 - v, 1 + v),
    "normalize": lambda x, v: F.normalize(x, eps=v),
    "cosine_similarity": lambda x, v: F.cosine_similarity(x, x.flip(0), eps=v),
    "pairwise_distance": lambda x, v: F.pairwise_distance(x, x.flip(0), eps=v),
    "cross_entropy": lambda x, v: F.cross_entropy(x, torch.arange(6), label_smoothing=v),
    "cross_entropy probabilities": lambda x, v: F.cross_entropy(x, x.detach().softmax(1), label_smoothing=v),
    "cosine_embedding_loss": lambda x, v: F.cosine_embedding_loss(x, x.flip(0), torch.tensor([1, -1, 1, -1, 1, -1]), margin=v),
    "gaussian_nll_loss": lambda x, v: F.gaussian_nll_loss(x, x.flip(1), x.detach().abs(), eps=v),
    "hinge_embedding_loss": lambda x, v: F.hinge_embedding_loss(x, x.detach().sign(), margin=v),
    "margin_ranking_loss": lambda x, v: F.margin_ranking_loss(x, x.flip(0), x.detach().sign(), margin=v),
    "multi_margin_loss": lambda x, v: F.multi_margin_loss(x, torch.arange(6), margin=v),
    "poisson_nll_loss": lambda x, v: F.poisson_nll_loss(x.abs(), x.detach().abs(), log_input=False, eps=v),
    "triplet_margin_loss": lambda x, v: F.triplet_margin_loss(x, x.flip(0), x.flip(1), margin=v, eps=v / 9),
    "huber_loss": lambda x, v: F.huber_loss(x, x.flip(0), delta=v),
    "smooth_l1_loss": lambda x, v: F.smooth_l1_loss(x, x.flip(0), beta=v),
    "clamp": lambda x, v: x.clamp(-v, v),
    "nan_to_num": lambda x, v: torch.nan_to_num(x / (x > 0), v, v + 1, v - 9),
    "logit": lambda x, v: torch.logit(x.sigmoid(), v / 2),
    "isclose": lambda x, v: torch.isclose(x, x.flip(0), v, 2 * v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x.flip(0), value=v),
    "add": lambda x, v: torch.add(x, x.flip(0), alpha=v),
    "renorm": lambda x, v: torch.renorm(x, 2, 0, v),
    "masked_fill": lambda x, v: x.masked_fill(x > 0, v),
    "clip_grad_norm": lambda x, v: _clipped(x, v),
    "gumbel_softmax": lambda x, v: F.gumbel_softmax(x, v, eps=v / 10),
}  # fmt: skip


def _clipped(x: Any, v: float) -> Any:
    p = torch.nn.Parameter(x.detach().clone())
    p.grad = x.detach() * 3
    torch.nn.utils.clip_grad_norm_([p], v)
    return p.grad


RUN_TIME = frozenset((  # they always were
    "batch_norm momentum", "normalize", "clamp", "addcmul", "add", "masked_fill", "clip_grad_norm", "gumbel_softmax", "pairwise_distance", "huber_loss",
    "smooth_l1_loss",
))  # fmt: skip
# Arguments that stay constants, and why.
STAY = {
    "renorm.p": "chooses another body: 2 is a root of squares",
    "nn.functional.scaled_dot_product_attention.scale": "is compiled into the kernel",
}


def operations() -> list[Operation]:
    """All records that there are now."""
    return [o for o in gc.get_objects() if type(o) is Operation and o.changing is not None]


def forget() -> None:
    """No argument of any operation has had a value yet."""
    for op in operations():
        assert op.changing is not None
        op.changing._fix(op.changing.positions, "")
        op.changing = Changing(op, op.changing.positions)
    counters.changing_numbers.clear()


@contextmanager
def constants() -> Iterator[None]:
    """All values are constants: what every edge was before."""
    meets = Changing.meets
    Changing.meets = lambda *args: False  # type: ignore[method-assign]
    forget()
    try:
        yield
    finally:
        Changing.meets = meets  # type: ignore[method-assign]
        forget()


def bits(x: Any) -> bytes:
    return bytes(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def outcomes(call: Call, values: list[float], dtype: Any) -> list[Any]:
    """Results and gradients at each value, as bytes."""
    found = []
    for v in values:
        torch.manual_seed(3)
        x = (torch.randn(INPUT) * 2).to(dtype).requires_grad_()
        try:
            y = call(x, v)
        except Exception as error:
            found.append((type(error).__name__, str(error)))
            continue
        made = [bits(y)]
        if y.requires_grad:
            (y.float() * torch.arange(1, y.numel() + 1).reshape(y.shape)).sum().backward()
            made.append(bits(x.grad))
        found.append(made)
    return found


def values(count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [*[chance.uniform(0.02, 0.98) for _ in range(count - 1)], 0.5]


def compare(name: str, dtype: Any, count: int, seed: int) -> list[str]:
    """Which values' results differ."""
    wanted = values(count, seed)
    forget()
    found = outcomes(CALLS[name], wanted, dtype)  # first: edges with constants would be known
    if dtype is torch.float32 and name not in RUN_TIME and not any(note.startswith("at run time") for note in counters.changing_numbers.values()):
        return [f"{name}: no number is given at run time: {counters.changing_numbers}"]
    with constants():
        expected = outcomes(CALLS[name], wanted, dtype)
    return [f"{name} of {dtype} at {v!r}" for v, a, b in zip(wanted, expected, found, strict=True) if a != b]


@pytest.mark.parametrize("name", CALLS)
def test_bits_do_not_depend_on_whether_a_number_is_a_constant(name: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert not compare(name, dtype, 3, 0)


def main() -> None:
    """All that differ, in four dtypes."""
    wrong = 0
    for name in CALLS:
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            for text in compare(name, dtype, 20, 1):
                wrong += 1
                print(text, flush=True)
        print(name, counters.changing_numbers, flush=True)
    print(f"{wrong} differ")


if __name__ == "__main__":
    main()
