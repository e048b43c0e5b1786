"""A loop that makes small calls and looks at nothing learns them within some rounds: no call of later rounds is recorded anew, whatever the call."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.trace import loops, tiers

CALLS = (
    "x + 1", "x * x", "x.sum()", "x.max(1)", "x.exp()", "x.t()", "x.view(-1)", "x.unsqueeze(0)", "x.softmax(1)", "x @ x.t()", "x.clone()",
    "x[0]", "x[1:]", "x[:, 1]", "x[-1]", "x[None]", "x[i]", "x[b]", "x[b, 1:]", "x[i, :2]", "torch.cat([x, x])", "x.chunk(2)",
    "x.add_(1)", "x.mul_(1.0)", "x.relu_()", "x.clamp_(0, 1)", "x.copy_(x)", "x.zero_()", "x.fill_(1)", "x[0] = 1", "x[:, 1] = 0", "x[m] = 0", "x[i] = 0",
    "x[1:] = x[:-1].clone()", "x.add_(1).mul_(2)",
)  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("sizes", [(8,), (8, 9, 10)])
def test_no_call_is_recorded_without_end(call: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    forget_other_programs(monkeypatch)
    settle(call, sizes, 32 * loops.FAR)


def forget_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often paths of earlier tests came back decides how soon this one's are recorded as a whole."""
    monkeypatch.setattr(tiers, "_exact", tiers.Places(tiers.SAME, any_sizes=False))
    monkeypatch.setattr(tiers, "_any_sizes", tiers.Places(tiers.OTHERS, any_sizes=True))
    monkeypatch.setattr(tiers, "_met", {})
    monkeypatch.setattr(tiers, "_loops", {})


def settle(call: str, sizes: tuple[int, ...], most: int) -> None:
    """After at most so many rounds there are three hundred in a row of which hardly a call is recorded or ends a piece.

    Pieces become longer by steps, and what earlier programs have left in the tries decides how many steps there are.
    """
    scope = {"torch": torch}
    exec(f"def run(x, i, b, m):\n    {call}", scope)
    data = [(torch.rand(n, 4), torch.randperm(n), torch.tensor(2), torch.rand(n) > 0.5) for n in sizes]
    float(sum([t.sum() for tensors in data for t in tensors]))
    for _ in range(8 * loops.FAR):
        for tensors in data:
            scope["run"](*tensors)
    quiet, done, found = 0, 8 * loops.FAR, []
    while quiet < 3:
        assert done <= most, found
        before = torch.stats()
        for _ in range(100):
            for tensors in data:
                scope["run"](*tensors)
        after = torch.stats()
        done += 100
        found.append([after[name] - before[name] for name in ("slow_path_entries", "pieces")])  # type: ignore[literal-required]
        quiet = quiet + 1 if max(found[-1]) <= 4 else 0


def test_writes_of_a_loop_that_was_cut_are_all_there() -> None:
    x, y = torch.zeros(5), torch.zeros(5)
    for i in range(1000):
        x.add_(1)
        if i % 3:
            y.add_(x[i % 5])
        else:
            y.copy_(y + 1)
    total = 0
    for i in range(1000):
        total = total + (i + 1) if i % 3 else total + 1
    assert x.tolist() == [1000.0] * 5
    assert y.tolist() == [float(total)] * 5


def test_gradients_through_a_loop_of_one_call() -> None:
    w = torch.tensor([1.001, 0.999], dtype=torch.float64, requires_grad=True)
    x = torch.ones(2, dtype=torch.float64)
    for _ in range(300):
        x = x * w
    x.sum().backward()
    expected = [300 * v**299 for v in (1.001, 0.999)]
    assert w.grad is not None
    assert w.grad.tolist() == pytest.approx(expected, rel=1e-12)


def rounds_of_many_calls(rounds: int) -> list[list[float]]:
    """A loop of nineteen calls a round that looks at nothing, and a backward pass through it; what it gives."""
    cost = (torch.arange(36.0).reshape(6, 6) / 40).requires_grad_()
    u, v = torch.zeros(6), torch.zeros(6)
    for _ in range(rounds):
        u = -torch.logsumexp(-cost + v, 1) + 0.1 * u.sin().cos()
        v = -torch.logsumexp(-cost + u[:, None], 0) + 0.1 * v.tanh().exp()
    (u.sum() + v.sum()).backward()
    assert cost.grad is not None
    return [u.tolist(), v.tolist(), *cost.grad.tolist()]


def test_rounds_of_many_calls_do_not_stay_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many rounds are as many pieces, and hardly a call more is recorded."""
    forget_other_programs(monkeypatch)
    monkeypatch.setattr(tiers, "MODE", [tiers.MIXED])
    found = []
    for rounds in (150, 300, 600):
        before = torch.stats()
        rounds_of_many_calls(rounds)
        after = torch.stats()
        found.append([after[name] - before[name] for name in ("pieces", "traces_run")])  # type: ignore[literal-required]
    assert found[2][0] < found[1][0] + 200, found
    assert found[2][1] < found[1][1] + 600, found  # 150 of the forward and as many of the backward pass; 5,700 in pieces


def test_rounds_of_many_calls_have_the_bits_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_other_programs(monkeypatch)
    monkeypatch.setattr(tiers, "MODE", [tiers.MIXED])
    mixed = [rounds_of_many_calls(n) for n in (90, 91, 90)]
    for mode in (tiers.PIECES, tiers.WHOLE):
        tiers.MODE[0] = mode
        assert rounds_of_many_calls(90) == mixed[0] == mixed[2]
        assert rounds_of_many_calls(91) == mixed[1]


@pytest.mark.parametrize("period", range(1, loops.LONGEST + 1))
def test_what_begins_again(period: int) -> None:
    called = list(range(period)) * (loops.FAR if period == 1 else loops.ROUNDS)
    assert loops.begins_again(reversed(called), 0)
    assert not loops.begins_again(reversed(called[:-1]), period - 1) or period == 1
    assert not loops.begins_again(reversed(called), period)
    assert not loops.begins_again(reversed([-1, *called[1:]]), 0)
