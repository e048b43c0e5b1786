"""What is decided roughly (symbols.roughly_over) costs time only: with random answers programs give the same bits."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler.pipeline import USE_STORED
from flambeau.trace import class_plans, classes, tiers
from flambeau.trace.recorder import local
from tests.engine.test_classes import PROGRAMS, _small_products, bits

NAMES = ("roughly_over", "roughly_less")
SIZES = ((5, 7), (33, 8))


def forget() -> None:
    """Nothing is known of any path."""
    local.trace.roots.clear()
    local.trace.root = local.trace._root_for_mode()
    local.trace.reset()


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    before, USE_STORED[0] = USE_STORED[0], False
    forget()
    yield
    forget()
    USE_STORED[0] = before


def with_random_answers(monkeypatch: pytest.MonkeyPatch, seed: int, program: Callable[[], Any]) -> tuple[Any, int]:
    """What a program gives where a coin decides what only costs time, and how many such questions there were."""
    coin = random.Random(seed)
    asked = 0

    def answer(*question: Any) -> bool:
        nonlocal asked
        asked += 1
        return coin.random() < 0.5

    def about(x: Any) -> int:
        nonlocal asked
        asked += 1
        return coin.choice((1, 8 * max(int(x), 1)))

    with monkeypatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("flambeau.compiler."):
                for function, any_answer in (*[(n, answer) for n in NAMES], ("roughly", about)):
                    if hasattr(module, function):
                        patch.setattr(module, function, any_answer)
        forget()
        torch.manual_seed(0)
        found = bits(program())
    forget()
    return found, asked


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_bits_of_programs(monkeypatch: pytest.MonkeyPatch, program: Callable[[int, int], Any]) -> None:
    questions = 0
    for number, (n, m) in enumerate(SIZES):
        torch.manual_seed(0)
        plain = bits(program(n, m))
        for seed in range(12 if program is _small_products else 2):
            found, asked = with_random_answers(monkeypatch, 10 * number + seed, lambda n=n, m=m: program(n, m))
            questions += asked
            assert found == plain, (n, m, seed)
    assert questions


def product(rng: random.Random) -> tuple[Callable[[], Any], str]:
    """A product of random sizes and layouts, with or without what is fused with it."""
    m, n, k = [rng.choice((1, 2, 3, 4, 5, 8, 17, 33, 70, 130, 300)) for _ in range(3)]
    if rng.random() < 0.15:
        k = 5000
    batch = rng.choice(((), (), (3,), (2, 3), (40,))) if m * n * k < 10**6 else ()
    dtype = rng.choice((torch.float32, torch.float64))
    turned_a, turned_b, activated = rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.3
    shared = rng.random() < 0.3

    def run() -> Any:
        a = torch.randn(*batch, k, m, dtype=dtype).mT if turned_a else torch.randn(*batch, m, k, dtype=dtype)
        own = () if shared else batch
        b = torch.randn(*own, n, k, dtype=dtype).mT if turned_b else torch.randn(*own, k, n, dtype=dtype)
        y = a @ b
        return torch.relu(y + 1.5) if activated else y

    return run, f"{m} {n} {k} {batch} {dtype} {turned_a} {turned_b}"


@pytest.mark.parametrize("seed", range(4))
def test_bits_of_products(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(12):
        run, what = product(rng)
        torch.manual_seed(0)
        plain = bits(run())
        for again in range(2):
            found, _ = with_random_answers(monkeypatch, 100 * number + again, run)
            assert found == plain, what


def test_one_plan_serves_many_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training step of a small network, batches of 2 to 200: the plans over symbols are few."""
    made = []
    record = class_plans._record

    def counted(*args: Any, **options: Any) -> Any:
        made.append(args[2])
        return record(*args, **options)

    monkeypatch.setattr(class_plans, "_record", counted)
    monkeypatch.setattr(tiers, "MODE", [tiers.WHOLE])
    if not classes.ENABLED[0]:
        pytest.skip("classes are off")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sizes = list(range(2, 200))
    random.Random(0).shuffle(sizes)
    for n in sizes[:60]:
        loss = torch.nn.functional.cross_entropy(net(torch.randn(n, 20)), torch.arange(n) % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    assert len(made) < 16, made  # 30 of them where each limit asks for itself
