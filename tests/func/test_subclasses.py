"""Tensors of subclasses inside of function transforms: `as_subclass` there, whom functions ask, their results, attributes and writes, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")
Asked = list[tuple[str, list[str]]]


def classes(m: Any, asked: Asked) -> dict[str, type]:
    class Sub(m.Tensor):  # type: ignore[misc, name-defined]
        """Inherits Tensor's `__torch_function__`."""

    class Own(m.Tensor):  # type: ignore[misc, name-defined]
        """Has its own."""

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.__name__ in ("mul", "add", "pow", "sin", "sum", "stack", "clone", "mul_", "__setitem__", "__getitem__"):
                asked.append((func.__name__, sorted(t.__name__ for t in types)))
            return super().__torch_function__(func, types, args, kwargs or {})

    class Quiet(m.Tensor):  # type: ignore[misc, name-defined]
        """Does not answer."""

        __torch_function__ = m._C._disabled_torch_function_impl

    class Clash(m.Tensor):  # type: ignore[misc, name-defined]
        """Uses names for itself that tensors use inside."""

        def note(self) -> Any:
            self._meta, self._inner, self._level = "m", "i", "l"
            return self

        def noted(self) -> tuple[str, str, str]:
            return self._meta, self._inner, self._level

    return {c.__name__: c for c in (Sub, Own, Quiet, Clash)}


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap": lambda m, f, x: m.func.vmap(f)(x),
    "vmap of vmap": lambda m, f, x: m.func.vmap(m.func.vmap(f))(x),
    "grad": lambda m, f, x: m.func.grad(lambda x: f(x).sum())(x),
    "jacrev": lambda m, f, x: m.func.jacrev(f)(x),
    "jacfwd": lambda m, f, x: m.func.jacfwd(f)(x),
    "jvp": lambda m, f, x: m.func.jvp(f, (x,), (x * 2,)),
    "hessian": lambda m, f, x: m.func.hessian(lambda x: f(x).sum())(x),
    "vmap of grad": lambda m, f, x: m.func.vmap(m.func.grad(lambda x: f(x).sum()))(x),
}
FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a product": lambda m, c, x: x.as_subclass(c) * x,
    "a power": lambda m, c, x: m.sin(x.as_subclass(c) ** 3),
    "two of the class": lambda m, c, x: x.as_subclass(c) + (2 * x).as_subclass(c) * x.as_subclass(c),
    "and back": lambda m, c, x: (x.as_subclass(c) * 2).as_subclass(m.Tensor) ** 2,
    "a list": lambda m, c, x: m.stack([x.as_subclass(c), x]),
    "a write": lambda m, c, x: x.as_subclass(c).clone().mul_(3) * x,
}


@pytest.mark.parametrize("transform", CALLS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_pytorch(name: str, transform: str) -> None:
    for kind in ("Sub", "Own", "Quiet", "Clash"):
        found = []
        for m in (flambeau, torch):
            asked: Asked = []
            cls = classes(m, asked)[kind]
            result = CALLS[transform](m, lambda x, m=m, cls=cls: FUNCTIONS[name](m, cls, x), m.arange(6.0).reshape(2, 3) / 4)  # type: ignore[misc]
            parts = result if isinstance(result, tuple) else (result,)
            found.append(([type(t).__name__ for t in parts], [[round(v, 4) for v in t.flatten().tolist()] for t in parts], asked))
        assert found[0] == found[1], kind


def test_what_a_function_sees() -> None:
    """Classes, attributes, shapes; what asks for values is refused."""
    found = []
    for m in (flambeau, torch):
        for kind, cls in classes(m, []).items():

            def f(x: Any, m: Any = m, cls: Any = cls, kind: str = kind) -> Any:
                y = x.as_subclass(cls)
                y.tag = 3
                z = y * 2 + x
                seen: list[Any] = [kind, type(y).__name__, type(z).__name__ == kind, isinstance(y, cls), isinstance(z, cls), y.tag, hasattr(z, "tag")]
                seen += [tuple(y.shape), y.ndim, y.is_floating_point(), y.requires_grad, isinstance(z.as_subclass(m.Tensor), cls)]
                seen += [y.note().noted(), tuple(y.shape)] if kind == "Clash" else []
                for call in (y.item, y.tolist, y.sum().item, lambda: bool(y.sum() > 0)):
                    with pytest.raises(RuntimeError):
                        call()
                found.append(seen)
                return z

            m.func.vmap(f)(m.ones(2, 3))
    half = len(found) // 2
    assert found[:half] == found[half:]


def test_a_class_with_torch_dispatch_is_refused() -> None:
    class Wrapped(flambeau.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with pytest.raises(NotImplementedError, match=r"as_subclass\(\): Wrapped has a __torch_dispatch__, and the tensor belongs to a transform"):
        flambeau.func.vmap(lambda x: x.as_subclass(Wrapped))(flambeau.ones(2, 3))
