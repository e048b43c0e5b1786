"""Dims whose size may change: `Dim("batch", min=1, max=64)`, `2 * Dim("n")`, Dim.AUTO, Dim.DYNAMIC, Dim.STATIC; and what a caller gives as `dynamic_shapes`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flambeau.export.errors import UserError, UserErrorType
from flambeau.tensor import Tensor
from flambeau.utils._pytree import tree_flatten_with_path

UNBOUNDED: Final = None


class _DimHint:
    """Dim.AUTO (dynamic unless the program asks for the value), Dim.DYNAMIC (an error if it does), Dim.STATIC (this size)."""

    def __init__(self, kind: str, min: int | None = None, max: int | None = None) -> None:
        self.type = kind
        self.min = min
        self.max = max

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        return _DimHint(self.type, min, max)

    def __repr__(self) -> str:
        return f"DimHint({self.type})"


class Dim:
    """A size that may be anything from `min` to `max`. Dims with the same object are the same size."""

    AUTO = _DimHint("AUTO")
    DYNAMIC = _DimHint("DYNAMIC")
    STATIC = _DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name!r}")
        low = 0 if min is None else min
        if max is not None and max < low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__ = name
        self.min = low
        self.max = max

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}{'' if self.max is None else f', max={self.max}'})"

    def __mul__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self, _whole(other), 0)

    __rmul__ = __mul__

    def __add__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self, 1, _whole(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self, 1, -_whole(other))


def _whole(x: Any) -> int:
    if type(x) is not int:
        raise NotImplementedError(f"Attempted to compute a dim with {x!r}, where an integer was expected. (Only increasing linear operations with integer "
                                  "coefficients are supported.)")  # fmt: skip
    return x


class _DerivedDim:
    """factor * root + offset."""

    def __init__(self, root: Dim, factor: int, offset: int) -> None:
        if factor < 1:
            raise AssertionError(f"a dim times {factor} is none: the factor must be positive")
        self.root, self.factor, self.offset = root, factor, offset

    @property
    def __name__(self) -> str:
        product = self.root.__name__ if self.factor == 1 else f"{self.factor}*{self.root.__name__}"
        return f"{product} {'+' if self.offset > 0 else '-'} {abs(self.offset)}" if self.offset else product

    def __mul__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self.root, self.factor * _whole(other), self.offset * other)

    __rmul__ = __mul__

    def __add__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self.root, self.factor, self.offset + _whole(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> _DerivedDim:
        return self + -_whole(other)


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several dims with the same bounds."""
    return tuple([Dim(name, min=min, max=max) for name in names])


class ShapesCollection:
    """Dynamic shapes by tensor: `shapes[x] = {0: batch}`; `dynamic_shapes(module, args, kwargs)` gives what export takes."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        if not isinstance(t, Tensor):
            raise AssertionError(f"Cannot assign shape to non-tensor type {type(t)}")
        self._shapes[id(t)] = shape

    def __getitem__(self, t: Any) -> Any:
        return self._shapes.setdefault(id(t), {})

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The tree of dynamic shapes for these arguments."""
        from flambeau.utils._pytree import tree_map

        given = arguments(module, args, kwargs or {})
        return tree_map(lambda leaf: self._shapes.get(id(leaf)), given)


def arguments(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of forward's parameters."""
    forward = getattr(module, "forward", module)
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs)
    except TypeError as error:
        raise UserError(UserErrorType.INVALID_INPUT, f"torch.export: the example inputs do not fit {type(module).__name__}.forward: {error}") from None
    return dict(bound.arguments)


def leaves(given: dict[str, Any], dynamic_shapes: Any) -> list[tuple[str, Any, dict[int, Any]]]:
    """(name as "x" or "y['a'][0]", the leaf, what its dims are) of all leaves of the arguments, in order."""
    if dynamic_shapes is None:
        shapes: Any = {}
    elif isinstance(dynamic_shapes, ShapesCollection):
        raise UserError(UserErrorType.INVALID_INPUT, "torch.export: give shapes.dynamic_shapes(module, args, kwargs) of a ShapesCollection")
    elif isinstance(dynamic_shapes, Mapping):
        shapes = dict(dynamic_shapes)
        wrong = [name for name in shapes if name not in given]
        missing = [name for name in given if name not in shapes]
        if wrong or missing:
            raise UserError(
                UserErrorType.INVALID_INPUT,
                f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {list(given)} of `inputs`, "
                f"but here they are {list(shapes)}. Since here `inputs` is a list/tuple enclosing a single dict, maybe you just forgot to enclose "
                "`dynamic_shapes` in a list/tuple?"
                if len(given) == 1 and missing != [] and wrong
                else f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {list(given)} of `inputs`, "
                f"but here they are {list(shapes)}.",
            )
    elif isinstance(dynamic_shapes, (tuple, list)):
        if len(dynamic_shapes) != len(given):
            raise UserError(UserErrorType.INVALID_INPUT, f"Expected dynamic_shapes for {len(given)} inputs ({', '.join(given)}), got {len(dynamic_shapes)}")
        shapes = dict(zip(given, dynamic_shapes, strict=True))
    else:
        raise UserError(UserErrorType.INVALID_INPUT, f"torch.export: dynamic_shapes is a dict or a tuple, got {type(dynamic_shapes).__name__}")
    found = []
    for name, value in given.items():
        for path, leaf in tree_flatten_with_path(value)[0]:
            label = name + "".join([str(p) for p in path])
            found.append((label, leaf, _dims(label, leaf, _at(shapes.get(name), path, label))))
    return found


def _at(spec: Any, path: Sequence[Any], label: str) -> Any:
    for key in path:
        if spec is None:
            return None
        step = getattr(key, "idx", getattr(key, "key", getattr(key, "name", None)))
        try:
            spec = spec[step]
        except (KeyError, IndexError, TypeError):
            raise UserError(UserErrorType.INVALID_INPUT, f"torch.export: dynamic_shapes has nothing for the input {label}") from None
    return spec


def _dims(label: str, leaf: Any, spec: Any) -> dict[int, Any]:
    if spec is None:
        return {}
    if not isinstance(leaf, Tensor):
        raise UserError(UserErrorType.INVALID_INPUT, f"Cannot associate shape {spec} specified at `dynamic_shapes[{label}]` to non-tensor type {type(leaf)}: "
                                                     "only tensors have dims that may change")  # fmt: skip
    pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec) if isinstance(spec, (tuple, list)) else None
    if pairs is None:
        raise UserError(UserErrorType.INVALID_INPUT, f"Unexpected dynamic_shape {spec} of the input {label}: give a dict, a tuple or None")
    if isinstance(spec, (tuple, list)) and len(spec) != leaf.ndim:
        raise UserError(UserErrorType.INVALID_INPUT, f"Expected dynamic shape spec {spec} of the input {label} to have the same length as its shape "
                                                     f"{list(leaf.shape)}")  # fmt: skip
    found: dict[int, Any] = {}
    for dim, d in pairs:
        if type(dim) is not int or not 0 <= dim < leaf.ndim:
            raise UserError(UserErrorType.INVALID_INPUT, f"torch.export: the input {label} has {leaf.ndim} dims, but dynamic_shapes names its dim {dim!r}")
        if isinstance(d, int):
            if leaf.shape[dim] != d:
                raise UserError(UserErrorType.INVALID_INPUT, f"Static shape constraint of {d} does not match input size of {leaf.shape[dim]}, "
                                                             f"for {label}.shape[{dim}]")  # fmt: skip
        elif isinstance(d, (Dim, _DerivedDim, _DimHint)):
            if not (isinstance(d, _DimHint) and d.type == "STATIC"):
                found[dim] = d
        elif d is not None:
            raise UserError(UserErrorType.INVALID_INPUT, f"Expected dimension {dim} of the input {label} to be an int, a Dim, Dim.AUTO, Dim.STATIC or "
                                                         f"Dim.DYNAMIC, got {d!r}")  # fmt: skip
    return found
