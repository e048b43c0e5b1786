"""Float arguments that change (ops/changing.py): the same bits whether they are constants or given at run time, and nothing new at a new value.

`python -m tests.ops.test_changing_numbers` compares 20 values in four dtypes; the test takes few.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import flambeau as torch
from flambeau.ops.changing import Changing
from flambeau.ops.registry import Operation
from flambeau.statistics import counters
from flambeau.trace.traces import roots

pytestmark = pytest.mark.usefixtures("whole")

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
    "pad with ints": lambda x, v: F.pad(x, (1, 2), value=int(v * 100)),
    "leaky_relu with ints": lambda x, v: F.leaky_relu(x, int(v * 100)),
    "threshold with ints": lambda x, v: F.threshold((x * 9).to(torch.int32), int(v * 9), int(v * 100)).float() + x,
    "pow": lambda x, v: x.abs() ** (3 * v),
    "pow of a number": lambda x, v: (0.1 + v) ** x,
    "float_power": lambda x, v: torch.float_power(x.abs(), v),
    "tril": lambda x, v: torch.tril(x, int(v * 14) - 7),
    "triu": lambda x, v: torch.triu(x, int(v * 14) - 7),
    "layer_norm": lambda x, v: F.layer_norm(x, (8,), eps=v / 100),
    "rms_norm": lambda x, v: F.rms_norm(x, (8,), eps=v / 100),
    "group_norm": lambda x, v: F.group_norm(x, 4, eps=v / 100),
    "instance_norm": lambda x, v: F.instance_norm(_images(x), eps=v / 100),
    "batch_norm": lambda x, v: F.batch_norm(x, None, None, training=True, eps=v / 100),
    "batch_norm eval": lambda x, v: F.batch_norm(x, x.detach().mean(0), x.detach().var(0), eps=v / 100),
    "batch_norm momentum": lambda x, v: F.batch_norm(x, torch.zeros(8), torch.ones(8), training=True, momentum=v),
    "local_response_norm": lambda x, v: F.local_response_norm(_images(x), 2, v, 0.6 + v / 4, 1 + v),
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
# Arguments that stay constants: their values choose what is computed, or are compiled into a kernel of its own.
STAY: dict[str, Call] = {
    "vector_norm.p": lambda x, v: torch.linalg.vector_norm(x, 1 + v),
    "cdist_values.p": lambda x, v: torch.cdist(x, x, p=1 + v),
    "renorm.p": lambda x, v: torch.renorm(x, 1 + v, 0, 1.0),
    "nn.functional.total_norm.norm_type": lambda x, v: torch.nn.utils.get_total_norm([x.detach()], 1 + v),
    "nn.functional.scaled_dot_product_attention.scale": lambda x, v: F.scaled_dot_product_attention(*[x.reshape(1, 6, 8)] * 3, scale=v),
    "linalg_lstsq.rcond": lambda x, v: torch.linalg.lstsq(x.T, x.T, rcond=v).solution,
}


KNOWN: dict[int, Operation] = {}  # the records with such arguments


@contextmanager
def knowing() -> Iterator[None]:
    """All records are known meanwhile, also those that are made later: to look at all objects of a long process takes half a second each time."""
    KNOWN.update({id(o): o for o in gc.get_objects() if type(o) is Operation and o.changing is not None})
    init = Changing.__init__

    def noted(self: Changing, op: Operation, positions: Sequence[int]) -> None:
        init(self, op, positions)
        KNOWN[id(op)] = op

    Changing.__init__ = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Changing.__init__ = init  # type: ignore[method-assign]
        KNOWN.clear()


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    with knowing():
        yield


def forget() -> None:
    """No argument of any operation has had a value yet, and no edge is known: those that there are hold for narrower limits."""
    for root in roots():
        root.children.clear()
        root.next = root.call = root.immediate = None
    assert KNOWN
    for op in list(KNOWN.values()):
        assert op.changing is not None
        op.changing._fix([(i, c) for i in op.changing.positions for c in (float, int)], "")
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
    assert not compare(name, torch.float32, 3, 0)
    assert not compare(name, torch.bfloat16, 2, 0)


def made(step: Callable[[float], Any]) -> list[int]:
    """What some values make after the first ones: edges, plans and kernels."""
    for v in values(6, 2):
        step(v)
    before = counters.slow_path_entries, counters.plans_made, counters.kernels_compiled + counters.kernels_from_disk
    for v in values(6, 4):
        step(v)
    after = counters.slow_path_entries, counters.plans_made, counters.kernels_compiled + counters.kernels_from_disk
    return [a - b for a, b in zip(after, before, strict=True)]


@pytest.mark.parametrize("name", CALLS)
def test_a_new_value_makes_nothing(name: str) -> None:
    forget()

    def step(v: float) -> None:
        x = torch.randn(INPUT, requires_grad=True)
        y = CALLS[name](x, v)
        if y.requires_grad:
            y.sum().backward()
            x.grad.tolist()
        y.tolist()

    assert made(step) == [0, 0, 0]


def _mapped(call: Call) -> Call:
    return lambda x, v: torch.func.vmap(lambda row: call(torch.stack([row] * 6), v))(x.detach())


def _forward(call: Call) -> Call:
    return lambda x, v: torch.func.jvp(lambda y: call(y, v), (x.detach(),), (x.detach().sin(),))[1]


@pytest.mark.parametrize("transform", [_mapped, _forward])
@pytest.mark.parametrize("name", ["celu", "hardtanh", "pow", "layer_norm", "logit", "pad"])
def test_transforms(name: str, transform: Callable[[Call], Call]) -> None:
    """What is derived of an operation takes such numbers, too."""
    wanted = values(3, 7)
    forget()
    found = outcomes(transform(CALLS[name]), wanted, torch.float32)
    assert any(note.startswith("at run time") for note in counters.changing_numbers.values())
    with constants():
        assert found == outcomes(transform(CALLS[name]), wanted, torch.float32)


@pytest.mark.parametrize("name", STAY)
def test_bodies_that_look_keep_constants(name: str) -> None:
    forget()
    x = torch.randn(INPUT)
    wanted = values(4, 5)
    found = [bits(STAY[name](x, v)) for v in wanted]
    assert counters.changing_numbers[name].startswith("in the key")
    with constants():
        assert found == [bits(STAY[name](x, v)) for v in wanted]


@pytest.mark.parametrize("name", "SGD Adam AdamW NAdam RAdam Adamax Adadelta Adagrad RMSprop ASGD Rprop Adafactor".split())
def test_optimizers_take_new_hyper_parameters(name: str) -> None:
    p = torch.nn.Parameter(torch.randn(4, 3))
    optimizer = getattr(torch.optim, name)([p])
    (group,) = optimizer.param_groups
    names = [key for key, value in group.items() if type(value) in (float, tuple)] + ["weight_decay"] * ("weight_decay" in group)
    for key in names:
        before = group[key]

        def step(v: float, key: str = key, before: Any = before) -> None:
            group[key] = tuple([v / (9 - 8 * i) for i in range(len(before))]) if type(before) is tuple else v
            p.grad = torch.randn(4, 3)
            optimizer.step()
            p.tolist()

        assert made(step) == [0, 0, 0], key
        group[key] = before


def test_special_values_are_asked_for() -> None:
    """A body that treats a value apart is right at it, whatever came before; errors are those of the number."""
    x = torch.tensor([-2.0, -0.5, 0.5, 2.0])
    forget()
    for alpha in (0.5, 0.7, 2.0, 1.0, -1.0, 3.0):
        assert F.celu(x, alpha).tolist() == pytest.approx([max(0, a) + min(0, alpha * (2.718281828459045 ** (a / alpha) - 1)) for a in x.tolist()], rel=1e-6)
    with pytest.raises(RuntimeError, match="alpha cannot be 0"):
        F.celu(x, 0.0)
    for low, high in ((-0.5, 0.5), (-0.6, 0.7), (0.1, 0.2), (-3.0, -1.0), (-0.25, 0.75), (0.3, 0.3)):
        assert F.hardtanh(x, low, high).tolist() == pytest.approx([min(max(a, low), high) for a in x.tolist()])
    for low, high in ((0.5, -0.5), (-0.5, -0.6), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match="min_val cannot be greater") if low == low else pytest.raises(AssertionError):
            assert not F.hardtanh(x, low, high).isnan().any()
    for lambd in (0.5, 0.25, 1.0, 0.0):
        assert F.softshrink(x, lambd).tolist() == pytest.approx([a - lambd if a > lambd else a + lambd if a < -lambd else 0.0 for a in x.tolist()])
    for lambd in (-0.5, float("nan"), 1e39):
        with pytest.raises(RuntimeError, match="lambda must be in range"):
            F.softshrink(x, lambd)
    with pytest.raises(RuntimeError, match="label_smoothing must be between"):
        for smoothing in (0.1, 0.2, 0.3, 1.5):
            F.cross_entropy(x, torch.tensor(1), label_smoothing=smoothing)
    for value in (0.5, 0.25, 1e38):
        F.pad(x, (1, 1), value=value)
    with pytest.raises(RuntimeError, match="overflow"):
        F.pad(x, (1, 1), value=1e300)
    assert F.leaky_relu(x, float("inf")).tolist() == [float("-inf"), float("-inf"), 0.5, 2.0]


def test_a_wrong_call_does_not_end_it() -> None:
    """An error of the caller's, with a new value, says nothing about the body."""
    forget()
    x = torch.randn(4, 3)
    for eps in (0.1, 0.2):
        F.layer_norm(x, (3,), eps=eps)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(x, (5,), eps=0.3)
    F.layer_norm(x, (3,), eps=0.4)
    assert counters.changing_numbers["nn.functional.layer_norm.eps"].startswith("at run time")


@pytest.mark.parametrize("d", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_constants_are_what_their_dtype_holds(d: Any) -> None:
    """A cast of a constant, which is folded, is the cast of the rounded number."""
    from flambeau.compiler.simplify import _convert
    from flambeau.dtypes import float64

    for v in values(9, 6):
        assert _convert(v, d, float64) == torch.tensor(v, dtype=torch.float32).to(d).double().item()


def main() -> None:
    """All that differ, in four dtypes."""
    with knowing():
        compare_all()


def compare_all() -> None:
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
