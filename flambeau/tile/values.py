"""What expressions in a tile function are: `tensor` (a block or a scalar), `constexpr` (known when it is compiled), and the builder in charge."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flambeau.compiler.tile.build import Build
from flambeau.compiler.tile.ir import Value
from flambeau.tile import types

_now = threading.local()


def build() -> Build:
    """The builder of the function that is being compiled."""
    found = getattr(_now, "build", None)
    if found is None:
        raise RuntimeError("functions of the tile language are called in a function under @jit; is the decorator missing?")
    return found  # type: ignore[no-any-return]


def set_build(b: Build | None) -> Build | None:
    """Make `b` the builder in charge; the one before."""
    before = getattr(_now, "build", None)
    _now.build = b
    return before


class constexpr:
    """A value that is known when a kernel is compiled; as an annotation, a parameter of which each value makes another kernel."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __eq__(self, other: object) -> bool:
        return bool(self.value == unwrap(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)


def _forward(name: str) -> Callable[..., Any]:
    def method(self: constexpr, *others: Any) -> Any:
        import operator

        return constexpr(getattr(operator, name)(self.value, *map(unwrap, others)))

    return method


def _backward(name: str) -> Callable[..., Any]:
    def method(self: constexpr, other: Any) -> Any:
        import operator

        return constexpr(getattr(operator, name)(unwrap(other), self.value))

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
    _operator = _name + "_" if _name in ("and", "or") else _name
    setattr(constexpr, f"__{_name}__", _forward(_operator))
    setattr(constexpr, f"__r{_name}__", _backward(_operator))
for _name in ("lt", "le", "gt", "ge", "neg", "invert"):
    setattr(constexpr, f"__{_name}__", _forward(_name))


def unwrap(x: Any) -> Any:
    """The value of a constexpr; anything else is itself."""
    return x.value if isinstance(x, constexpr) else x


class tensor:
    """A block in a kernel, or a scalar. Its operators and methods append operations."""

    def __init__(self, value: Value) -> None:
        self.handle = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.handle.shape

    @property
    def numel(self) -> int:
        return self.handle.type.numel

    @property
    def dtype(self) -> types.dtype:
        return types.of(self.handle.type.element)

    @property
    def type(self) -> types.dtype:
        return types.block_type(self.dtype, self.shape) if self.shape else self.dtype

    @property
    def T(self) -> tensor:
        from flambeau.tile.operations import permute

        return permute(self, 1, 0)

    def __getattr__(self, name: str) -> Any:
        from flambeau.tile import language

        function = language.METHODS.get(name)
        if function is None:
            raise AttributeError(f"a tensor of the tile language has no {name!r}")
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    def __getitem__(self, index: Any) -> tensor:
        from flambeau.tile.operations import indexed

        return indexed(self, index)

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no value when a kernel is compiled; Python asks for one here. Use it in `if`, `while`, `and`, or by tl.where")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"tensor({self.handle.type})"


def _operator_method(name: str, swapped: bool) -> Callable[..., Any]:
    def method(self: tensor, other: Any) -> Any:
        from flambeau.tile.operations import binary

        return binary(name, other, self) if swapped else binary(name, self, other)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift", "and", "or", "xor"):
    setattr(tensor, f"__{_name}__", _operator_method(_name, False))
    setattr(tensor, f"__r{_name}__", _operator_method(_name, True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(tensor, f"__{_name}__", _operator_method(_name, False))


def _unary_method(name: str) -> Callable[..., Any]:
    def method(self: tensor) -> Any:
        from flambeau.tile.operations import unary

        return unary(name, self)

    return method


for _name in ("neg", "invert", "pos"):
    setattr(tensor, f"__{_name}__", _unary_method(_name))
