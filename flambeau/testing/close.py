"""assert_close: whether two values (tensors, numbers, or containers of them) agree, with PyTorch's tolerances and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import flambeau as torch
from flambeau.dtypes import dtype
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

# (relative, absolute) by dtype: those of torch.testing; whole numbers and bools must be equal.
TOLERANCES: Final[dict[dtype, tuple[float, float]]] = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
Message = str | Callable[[str], str] | None


class _Mismatch(Exception):
    """What differs, and under which keys and indices of the containers."""

    def __init__(self, text: str, kind: type[Exception] = AssertionError) -> None:
        super().__init__(text)
        self.kind = kind
        self.path: list[Any] = []


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
    check_stride: bool = False, msg: Message = None,
) -> None:  # fmt: skip
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| for each pair of elements.

    `actual` and `expected` are tensors, tensor-likes, numbers, or sequences and mappings of them. `rtol` and `atol` are given both
    or not at all; by default they come from the dtype (the larger ones, if `check_dtype=False` lets two dtypes meet). NaN equals
    NaN only with `equal_nan`. `msg` replaces the text, or is called with it. ValueError for one tolerance without the other,
    TypeError for what cannot be compared.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {'rtol' if rtol is None else 'atol'}.")
    options = _Options(allow_subclasses, rtol, atol, equal_nan, check_dtype, check_layout, check_stride)
    try:
        options.compare(actual, expected)
    except _Mismatch as found:
        text = str(found)
        if found.path:
            text += f"\n\nThe failure occurred for item {''.join(f'[{key!r}]' for key in reversed(found.path))}"
        if found.kind is AssertionError and msg is not None:
            text = msg(text) if callable(msg) else msg
        kind = found.kind
    else:
        return
    raise kind(text)


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg: str = "",
) -> None:  # fmt: skip
    """Deprecated in PyTorch: `assert_close` without checks of dtype, device and strides."""
    warn_here(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. Please use "
        "`torch.testing.assert_close()` instead.", FutureWarning,
    )  # fmt: skip
    a, b = (x if isinstance(x, Tensor) else torch.tensor(x) for x in (actual, expected))
    if rtol is None and atol is None:
        tolerances = [TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, b)]
        rtol, atol = max(r for r, _ in tolerances), max(t for _, t in tolerances)
    assert_close(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False, check_stride=False, msg=msg or None)


class _Options:
    """What `assert_close` was told."""

    def __init__(
        self, subclasses: bool, rtol: float | None, atol: float | None, equal_nan: bool, check_dtype: bool, check_layout: bool, check_stride: bool
    ) -> None:  # fmt: skip
        self.subclasses = subclasses
        self.rtol = rtol
        self.atol = atol
        self.equal_nan = equal_nan
        self.check_dtype = check_dtype
        self.check_layout = check_layout
        self.check_stride = check_stride

    def compare(self, a: Any, b: Any) -> None:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            self._mappings(a, b)
        elif _is_sequence(a) and _is_sequence(b):
            if len(a) != len(b):
                raise _Mismatch(f"The length of the sequences mismatch: {len(a)} != {len(b)}")
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self._inside(i, x, y)
        elif a is None or b is None:
            if a is not b:
                raise _Mismatch(f"None mismatch: {a} is not {b}")
        elif type(_plain(a)) in _NUMBERS and type(_plain(b)) in _NUMBERS:
            self._numbers(_plain(a), _plain(b))
        else:
            self._tensors(a, b)

    def _mappings(self, a: Mapping[Any, Any], b: Mapping[Any, Any]) -> None:
        missing, additional = [k for k in b if k not in a], [k for k in a if k not in b]
        if missing or additional:
            raise _Mismatch(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
                f"Additional keys in the actual mapping: {sorted(additional, key=str)}"
            )
        for key in a:
            self._inside(key, a[key], b[key])

    def _inside(self, key: Any, x: Any, y: Any) -> None:
        try:
            self.compare(x, y)
        except _Mismatch as found:
            found.path.append(key)
            raise

    def _numbers(self, a: Any, b: Any) -> None:
        if type(a) is not type(b) and self.check_dtype:
            raise _Mismatch(f"The (d)types do not match: {type(a)} != {type(b)}.")
        if type(a) is bool and type(b) is bool:
            if a is not b:
                raise _Mismatch(f"Booleans mismatch: {a} is not {b}")
            return
        self.values(torch.tensor(a, dtype=_NUMBERS[type(a)]), torch.tensor(b, dtype=_NUMBERS[type(b)]), "Scalars")

    def _tensors(self, a: Any, b: Any) -> None:
        x, y = _as_tensor(a, self.subclasses), _as_tensor(b, self.subclasses)
        if x is None or y is None or not (isinstance(a, type(b)) or isinstance(b, type(a))):  # of one kind, as in PyTorch
            raise _Mismatch(f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}.", TypeError)
        self.attributes(x, y)
        x, y = dense(x), dense(y)
        self.values(x.detach(), y.detach(), "Scalars" if x.ndim == 0 else "Tensor-likes")

    def attributes(self, x: Tensor, y: Tensor) -> None:
        """What two tensors are beside their elements."""
        if tuple(x.shape) != tuple(y.shape):
            raise _Mismatch(f"The values for attribute 'shape' do not match: {x.shape} != {y.shape}.")
        if self.check_layout and x.layout != y.layout:
            raise _Mismatch(f"The values for attribute 'layout' do not match: {x.layout} != {y.layout}.")
        if self.check_dtype and x.dtype is not y.dtype:
            raise _Mismatch(f"The values for attribute 'dtype' do not match: {x.dtype} != {y.dtype}.")
        if x.layout == torch.strided and self.check_stride and x.stride() != y.stride():
            raise _Mismatch(f"The values for attribute 'stride()' do not match: {x.stride()} != {y.stride()}.")

    def values(self, x: Tensor, y: Tensor, what: str) -> None:
        """The elements of two tensors of one shape; `what` they are called."""
        if self.rtol is None or self.atol is None:
            tolerances = [TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (x, y)]
            rtol, atol = max(r for r, _ in tolerances), max(t for _, t in tolerances)
        else:
            rtol, atol = self.rtol, self.atol
        common = torch.promote_types(x.dtype, y.dtype)
        if common is torch.bool:
            common = torch.int64
        x, y = x.to(common), y.to(common)
        close = torch.isclose(x, y, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if close.all().item():
            return
        exact = rtol == 0 and atol == 0
        text = f"{what} are not {'equal' if exact else 'close'}!\n\n"
        allowed_rel, allowed_abs = ("", "") if exact else (f" (up to {rtol} allowed)", f" (up to {atol} allowed)")
        distance = (x - y).abs()
        relative = distance / y.abs()
        if what == "Scalars":
            text += f"Expected {y.item()} but got {x.item()}.\n"
            text += f"Absolute difference: {distance.item()}{allowed_abs}\nRelative difference: {relative.item()}{allowed_rel}"
            raise _Mismatch(text)
        wrong, total = int((~close).sum().item()), max(close.numel(), 1)
        text += f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})\n"
        text += _greatest("absolute", torch.where(close, 0, distance), tuple(x.shape)) + allowed_abs + "\n"
        text += _greatest("relative", torch.where(close, 0, relative), tuple(x.shape)) + allowed_rel
        raise _Mismatch(text)


def dense(x: Tensor) -> Tensor:
    """A strided tensor of the same elements."""
    return x if x.layout == torch.strided else x.to_dense()


def _greatest(kind: str, distance: Tensor, shape: tuple[int, ...]) -> str:
    flat = distance.flatten()
    at = int(flat.argmax().item())
    index = tuple(i.item() for i in torch.unravel_index(torch.tensor(at), shape))
    return f"Greatest {kind} difference: {flat[at].item()} at index {index}"


def _plain(x: Any) -> Any:
    """A number of NumPy's as one of Python's, as PyTorch compares them; an array is none."""
    return x.item() if type(x).__module__ == "numpy" and hasattr(x, "item") and type(x).__name__ != "ndarray" else x


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def _as_tensor(x: Any, subclasses: bool) -> Tensor | None:
    if isinstance(x, Tensor):
        return x if subclasses or type(x) is Tensor else None
    return torch.as_tensor(x) if hasattr(x, "__array__") or type(x) in _NUMBERS else None
