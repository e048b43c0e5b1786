"""What a new size costs: one plan and no kernel; and how many kernels known programs take, seen from outside."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau import symbols
from flambeau.statistics import counters
from flambeau.trace import evaluate

pytestmark = pytest.mark.usefixtures("whole")

nn, F = ft.nn, ft.nn.functional


class Block(nn.Module):
    """A transformer's block with causal attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (z.view(b, t, 2, c // 2).transpose(1, 2) for z in self.attend(self.first(x)).split(c, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Language(nn.Module):
    """A small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(30, 32), nn.Embedding(64, 32)
        self.block, self.head = Block(32), nn.Linear(32, 30)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.block(self.tokens(tokens) + self.places(ft.arange(tokens.shape[1]))))


def language_step() -> Callable[[int, int], float]:
    model = Language()
    optimizer = ft.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch: int, length: int) -> float:
        tokens = ft.randint(0, 30, (batch, length + 1))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def image_step() -> Callable[[int, int], float]:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    optimizer = ft.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(batch: int, size: int) -> float:
        x, y = ft.randn(batch, 3, size, size), ft.randint(0, 10, (batch,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def digit_step() -> Callable[[int, int], float]:
    """PyTorch's MNIST example network: 60000 images leave 32 for the last of the batches of 64."""
    features = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25))
    model = nn.Sequential(features, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
    optimizer = ft.optim.Adam(model.parameters())

    def step(batch: int, size: int) -> float:
        x, y = ft.randn(batch, 1, size, size), ft.randint(0, 10, (batch,))
        optimizer.zero_grad()
        loss = F.nll_loss(model(x).log_softmax(1), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def _cost(call: Callable[[], Any]) -> tuple[int, int]:
    """(plans made, kernels compiled or loaded) in a call."""
    before = ft.stats()
    call()
    now = ft.stats()
    kernels = sum(now[name] - before[name] for name in ("kernels_compiled", "kernels_from_disk"))
    return now["plans_made"] - before["plans_made"], kernels


@pytest.mark.parametrize(("make", "usual", "others"), [
    (language_step, (16, 64), [(11, 64), (16, 56), (16, 50)]),
    (image_step, (32, 24), [(21, 24), (32, 27), (32, 33)]),
    (digit_step, (64, 28), [(32, 28), (48, 28)]),
])  # fmt: skip
def test_a_new_size_is_one_plan_and_no_kernel(make: Any, usual: tuple[int, int], others: list[tuple[int, int]]) -> None:
    """Sizes of one order: far smaller or larger ones have kernels of their own (the tiles of a product, for instance)."""
    ft.manual_seed(0)
    step = make()
    for _ in range(3):
        step(*usual)
    assert _cost(lambda: step(*usual)) == (0, 0)
    for other in others:
        plans, kernels = _cost(lambda: step(*other))  # noqa: B023 - called at once
        assert plans <= 2 and kernels == 0, other  # one for the random batch's kernel where its size is new, one for the step


def kernels_of(call: Callable[[], Any]) -> list[str]:
    """The native kernels of the one plan that a call makes, each once: a kernel may have many tasks."""
    seen: list[Any] = []

    def observer(plan: Any, reason: str) -> None:
        seen.append(plan)

    evaluate.OBSERVERS.append(observer)
    try:
        result = call()
        evaluate.synchronize() if result is None else result.detach().flatten()[:1].tolist()
    finally:
        evaluate.OBSERVERS.remove(observer)
    (plan,) = seen[:1]
    return list({kernel.key: kernel.name for kernel in plan.plan.kernels}.values())


def test_kernels_of_known_programs() -> None:
    x, w, bias = ft.randn(37, 50), ft.randn(60, 50), ft.randn(60)
    for t in (x, w, bias):
        t.tolist()
    assert len(kernels_of(lambda: x.softmax(-1))) == 1
    assert len(kernels_of(lambda: F.layer_norm(x, (50,)))) == 1
    assert len(kernels_of(lambda: (x * 2 + 1).sin().relu() - x.exp())) == 1
    assert len(kernels_of(lambda: F.gelu(F.linear(x, w, bias)))) == 1
    parameters = [nn.Parameter(ft.randn(n, 11)) for n in (3, 40, 17)]
    optimizer = ft.optim.Adam(parameters)
    for p in parameters:
        p.grad = ft.randn(p.shape)
        p.grad.tolist(), p.tolist()
    optimizer.step()
    parameters[0].tolist()
    assert len(kernels_of(optimizer.step)) == 1


@pytest.mark.parametrize("join", [ft.stack, lambda rows: ft.cat([r[None] for r in rows])], ids=["stack", "cat"])
def test_a_new_length_of_an_episode_records_few_calls(join: Any) -> None:
    """Each earlier trace gets a part of one gradient: where the part lies must not make a path of its own."""
    w = ft.randn(4, requires_grad=True)

    def step(length: int) -> None:
        logs = []
        for _ in range(length):
            logs.append((w * 0.5).sum().sigmoid().log())
            logs[-1].item()
        (join(logs) * ft.arange(float(length))).sum().backward()
        w.grad = None

    for length in (*range(2, 20), 50):
        step(length)
    before = ft.stats()["slow_path_entries"]
    step(45)
    assert ft.stats()["slow_path_entries"] - before < 20


def shared_weight(n: int) -> float:
    """Products of several sizes by one weight, and their gradients: what is shared may be packed once."""
    weight = ft.ones(64, 64, requires_grad=True)
    x = ft.ones(n, 64)
    for _ in range(3):
        x = F.relu(x @ weight)
    x.mean().backward()
    return float(weight.grad.sum().item())


def convolution(n: int) -> float:
    x, weight = ft.ones(2, 16, n, n + 3, requires_grad=True), ft.ones(32, 16, 3, 3, requires_grad=True)
    F.max_pool2d(F.conv2d(x, weight, padding=1).relu(), 2).mean().backward()
    return float(weight.grad.sum().item())


def attention(n: int) -> float:
    q = ft.ones(2, 2, n, 16, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    return float(q.grad.sum().item())


def recurrent(n: int) -> float:
    ft.manual_seed(0)
    lstm = nn.LSTM(24, 32)
    lstm(ft.ones(n, 6, 24))[0].sum().backward()
    return float(lstm.weight_hh_l0.grad.sum().item())


@pytest.mark.parametrize("program", [shared_weight, convolution, attention, recurrent])
def test_no_plan_over_symbols_is_for_one_size_only(program: Callable[[int], float], monkeypatch: pytest.MonkeyPatch) -> None:
    """`n in range(16, 513)` asks a symbol for its value 500 times: a plan that was made so served no other size."""
    asked = []
    guard = symbols.Recording.guard

    def note(self: Any, op: str, a: Any, b: Any, answer: bool) -> None:
        guard(self, op, a, b, answer)
        alone = any(x.__class__ is symbols.Expr and x.op == "size" and y.__class__ is int and y > 1 for x, y in ((a, b), (b, a)))
        if self.texts and op == "==" and answer and alone:
            asked.append("".join(traceback.format_stack(limit=8)))

    monkeypatch.setattr(symbols.Recording, "guard", note)
    before = counters.class_plans
    for n in (40, 57, 44, 63, 70, 81, 90, 99):
        program(n)
    assert counters.class_plans > before
    assert not asked, asked[0]
