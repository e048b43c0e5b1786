"""Lists of another length at each step are stacked and concatenated at once: the same values, gradients, hooks and errors as where the call is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.autograd import collected
from flambeau.statistics import counters
from flambeau.trace import tiers
from tests.engine.nothing_known import forget_places

LENGTHS = (5, 7, 9, 6, 8, 11)


@pytest.fixture(autouse=True)
def changing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every list counts as one that changes; how many were collected."""
    done: list[int] = []
    take = collected._alike

    def alike(op: Any, tensors: Any) -> bool:
        found = take(op, tensors)
        done.append(found)
        return found

    monkeypatch.setattr(collected, "_alike", alike)
    monkeypatch.setattr(collected._Lengths, "change", lambda self, length: True)
    monkeypatch.setattr(tiers, "MODE", [tiers.MIXED])
    yield done


def both(program: Callable[[int], Any]) -> None:
    """What a program gives with its lists collected and recorded."""
    found = []
    for mode in (tiers.MIXED, tiers.WHOLE):
        tiers.MODE[0] = mode
        torch.manual_seed(0)
        found.append([program(n) for n in LENGTHS])
    assert found[0] == found[1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_stack(changing: list[int], shape: tuple[int, ...]) -> None:
    def program(n: int) -> Any:
        leaves = [torch.randn(shape, requires_grad=i % 3 != 1) for i in range(n)]
        made = [x.sin() for x in leaves]
        whole = torch.stack(made)
        assert whole.requires_grad and not whole.is_leaf and type(whole.grad_fn).__name__ == "StackBackward0"
        (whole * torch.arange(whole.numel()).reshape(whole.shape)).exp().sum().backward()
        return whole.tolist(), [x.grad if x.grad is None else x.grad.tolist() for x in leaves]

    both(program)
    assert any(changing)


def test_cat_of_rows_of_other_numbers(changing: list[int]) -> None:
    def program(n: int) -> Any:
        leaves = [torch.randn(i % 3 + 1, 2, requires_grad=True) for i in range(n)]
        whole = torch.cat([leaves[0], *[x.tanh() for x in leaves[1:]]])
        assert type(whole.grad_fn).__name__ == "CatBackward0"
        (whole.cumsum(0) ** 2).sum().backward()
        return whole.tolist(), [x.grad.tolist() for x in leaves]

    both(program)
    assert any(changing)


def test_without_gradients(changing: list[int]) -> None:
    def program(n: int) -> Any:
        source = torch.randn(n, 4)
        with torch.no_grad():
            whole = torch.stack([source[i] for i in range(n)])
        source.zero_()  # the result has memory of its own
        return whole.tolist(), whole.requires_grad

    both(program)
    assert any(changing)


def test_hooks_writes_and_views_of_the_result(changing: list[int]) -> None:
    def program(n: int) -> Any:
        leaf = torch.randn(n, 2, requires_grad=True)
        seen: list[Any] = []
        whole = torch.stack([leaf[i] * 2 for i in range(n)])
        whole.register_hook(lambda g: seen.append(g.tolist()))
        view = whole[1:3]
        view.mul_(3)
        whole.add_(1)
        whole.pow(2).sum().backward()
        return whole.tolist(), view.tolist(), seen, leaf.grad.tolist()

    both(program)


def test_a_write_to_what_was_collected(changing: list[int]) -> None:
    def program(n: int) -> Any:
        leaf = torch.randn(n, 2, requires_grad=True)
        given = [leaf[i] * 2 for i in range(n)]
        whole = torch.stack(given)
        given[0].mul_(5)
        again = torch.stack(given)  # that one has been written to
        (whole + again.exp()).sum().backward()
        return whole.tolist(), again.tolist(), leaf.grad.tolist()

    both(program)


def test_gradients_at_inputs_twice_and_of_gradients(changing: list[int]) -> None:
    def program(n: int) -> Any:
        leaf = torch.randn(n, requires_grad=True)
        given = [leaf[i].sin() for i in range(n)]
        whole = torch.stack(given)
        loss = (whole**3).sum()
        first = torch.autograd.grad(loss, [given[1], leaf, whole], retain_graph=True)
        (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
        (second,) = torch.autograd.grad((slope**2).sum(), leaf, retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        return [x.tolist() for x in (*first, slope, second, leaf.grad)]

    both(program)
    assert any(changing)


def test_a_second_backward_is_refused() -> None:
    for n in LENGTHS:
        leaf = torch.randn(n, requires_grad=True)
        loss = torch.stack([leaf[i].sin() for i in range(n)]).exp().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_wrong_lists_have_their_errors() -> None:
    with pytest.raises(RuntimeError, match="equal size"):
        torch.stack([torch.ones(2), torch.ones(2), torch.ones(3), torch.ones(2)])
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch.cat([torch.ones(2, 2), torch.ones(2, 3), torch.ones(2, 2), torch.ones(2, 2)])
    mixed = torch.stack([torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(2), torch.ones(2)])
    assert mixed.dtype is torch.float64
    assert torch.cat([torch.ones(0), torch.ones(1, 2), torch.ones(1, 2), torch.ones(0)]).shape == (2, 2)


def test_lists_in_transforms_and_jobs_of_modes() -> None:
    rows = torch.randn(3, 5)
    assert torch.func.vmap(lambda x: torch.stack([x[i] for i in range(5)]).sum())(rows).tolist() == pytest.approx(rows.sum(1).tolist())
    slope = torch.func.grad(lambda x: (torch.stack([x[i] for i in range(5)]) ** 2).sum())(rows[0])
    assert slope.tolist() == pytest.approx((2 * rows[0]).tolist())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.stack([rows[0, i] for i in range(5)]).dtype is torch.float32


def test_lists_without_elements() -> None:
    given = [torch.ones(3, device="meta") for _ in range(5)]
    assert torch.stack(given).shape == (5, 3) and torch.cat([x * 2 for x in given]).device.type == "meta"
    with pytest.raises(RuntimeError, match="device"):
        torch.stack([torch.ones(3)] * 4 + given)


def test_which_lists_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    lengths = collected._Lengths()
    assert not any(lengths.change(5) for _ in range(9))  # one length
    assert [lengths.change(n) for n in (6, 7, 8)] == [False, True, True]
    lengths = collected._Lengths()
    found = [[lengths.change(n) for n in (4, 5, 6, 7)] for _ in range(12)]  # the same four in each step
    assert any(found[0]) and not any(found[-1])


def test_new_lengths_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_places(monkeypatch)
    layer = torch.nn.Linear(4, 2)

    def step(n: int) -> float:
        found = []
        for _ in range(n):
            y = layer(torch.ones(4))
            found.append(y[0])
            y.argmax().item()
        loss = torch.stack(found).pow(2).sum()
        layer.zero_grad()
        loss.backward()
        return loss.item()  # type: ignore[no-any-return]

    for n in range(5, 31):
        step(n)
    before = counters.plans_made
    for n in range(31, 37):
        step(n)
    assert counters.plans_made - before <= 2, "plans of single pieces, which other tests have let meet; not one for each length and part"
