"""Subclasses of Tensor whose code has attributes with the names that our tensors have inside."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import flambeau
from flambeau.tensor import _INTERNAL

torch = pytest.importorskip("torch")


class Noted:
    """Metadata beside a tensor, as monai's."""

    def __init__(self) -> None:
        self._meta: Any = {"a": 1}
        self._history: Any = [2]

    @property
    def meta(self) -> Any:
        return self._meta if hasattr(self, "_meta") else None


class Ours(Noted, flambeau.Tensor):
    @staticmethod
    def __new__(cls: Any, x: Any) -> Any:
        return flambeau.as_tensor(x).as_subclass(cls)

    def __init__(self, x: Any) -> None:
        super().__init__()


class Theirs(Noted, torch.Tensor):
    @staticmethod
    def __new__(cls: Any, x: Any) -> Any:
        return torch.as_tensor(x).as_subclass(cls)

    def __init__(self, x: Any) -> None:
        super().__init__()


def outcome(m: Any, cls: Any) -> list[Any]:
    x = cls(m.ones(2, 3))
    log = [x.ndim, tuple(x.shape), x.meta, x._history, x.sum().item(), sorted(x.__dict__)]
    y = x + 1
    y.__dict__ = x.__dict__.copy()
    y._meta["b"] = 2
    log += [type(y) is cls, y.meta, x.meta, y.tolist(), (y * y).sum().item()]
    again = pickle.loads(pickle.dumps(x))
    log += [type(again) is cls, again.meta, again.tolist()]
    x.__dict__.pop("_meta")
    log += [x.meta, hasattr(x, "_meta"), sorted(x.__dict__), x.tolist()]
    x.requires_grad_()
    (x * x).sum().backward()
    log += [x.grad.tolist(), x._history]
    del x._history
    return [*log, hasattr(x, "_history"), x.mean().item()]


def test_both_sides() -> None:
    assert outcome(flambeau, Ours) == outcome(torch, Theirs)


@pytest.mark.parametrize("name", sorted(_INTERNAL - {"_grad"}))
def test_every_name(name: str) -> None:
    space: dict[str, Any] = {"__name__": "a program"}
    exec(f"def note(self, value):\n    self.{name} = value\n    return self.{name}", space)
    cls = type("Noting", (flambeau.Tensor,), {"note": space["note"]})
    x = flambeau.arange(6.0).reshape(2, 3)[1].as_subclass(cls)
    assert x.note("mine") == "mine"
    assert (x * 2).tolist() == [6.0, 8.0, 10.0] and x.stride() == (1,) and x.storage_offset() == 3 and x.__dict__ == {name: "mine"}
    x.requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [6.0, 8.0, 10.0] and x.note("again") == "again"
