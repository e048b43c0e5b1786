"""What is known of a tensor without its values: shape, strides, dtype, ... Interned, so that identity is equality."""

from __future__ import annotations

from math import prod
from operator import index
from typing import Any, Final

from flambeau.compiler.graph import contiguous_strides
from flambeau.devices import CPU, Device
from flambeau.dtypes import NAMED, dtype, not_held
from flambeau.runtime.untracked import untrack_all
from flambeau.symbols import Sym, symbolic


def _integer(place: int, size: Any) -> int:
    """A size as an int; symbols stay what they are."""
    if (isinstance(size, int) and size.__class__ is not bool) or hasattr(size, "is_symbolic_size"):
        return size  # type: ignore[no-any-return]
    try:
        return index(size)
    except TypeError as error:
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {place} is '{type(size).__name__}')") from error


class Size(tuple[int, ...]):
    """A shape: a tuple of ints with PyTorch's `numel` and repr."""

    __slots__ = ()

    def __new__(cls, iterable: Any = ()) -> Size:
        made = tuple.__new__(cls, iterable)
        for size in made:
            if (size.__class__ is not int and not isinstance(size, int)) or size.__class__ is bool:
                return tuple.__new__(cls, [_integer(i, size) for i, size in enumerate(made)])
        return made

    def numel(self) -> int:
        """Number of elements."""
        return prod(self)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def __add__(self, other: Any) -> Size:  # type: ignore[override]
        if isinstance(other, tuple):
            return Size((*self, *other))
        if hasattr(other, "__array_ufunc__"):  # arrays of NumPy add to each size
            return NotImplemented
        raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")

    def __radd__(self, other: Any) -> Size:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Size:  # type: ignore[override]
        made = tuple.__mul__(self, times)
        return made if made is NotImplemented else Size(made)

    __rmul__ = __mul__  # type: ignore[assignment]

    def __getitem__(self, index: Any) -> Any:
        item = tuple.__getitem__(self, index)
        return Size(item) if isinstance(index, slice) else item

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))


CONJ, NEG = 1, 2


class Meta:
    """Metadata of a tensor. `offset` is in elements; `dynamic` says that a run-time offset comes on top of it.

    `bits`: how elements are read from memory and written to it: as they are (0), as their conjugates (CONJ), as their negatives (NEG), or both.
    A slot names what is in memory; who reads it (Fragment.record) or writes it (mutation.py) applies the bits.

    `wrapped`: the value is a Python number (lowest category of type promotion).
    `device`: where the elements are; it is a part of the metadata, so every key of an edge that has metadata knows devices apart.
    `leaf`: gradients stop here and are accumulated into `.grad` (only meaningful with `requires_grad`).
    """

    __slots__ = (
        "bits", "device", "dtype", "dynamic", "is_contiguous", "kind", "leaf", "ndim", "numel", "offset", "one_number", "requires_grad", "shape", "strides",
        "wrapped",
    )  # fmt: skip

    shape: Size
    device: Device
    strides: tuple[int, ...]
    dtype: dtype
    offset: int
    requires_grad: bool
    leaf: bool
    wrapped: bool
    dynamic: bool
    bits: int
    one_number: bool  # whether it is one element that can be read from memory as it is
    ndim: int
    numel: int
    is_contiguous: bool
    kind: Any  # all of it but the sizes, once somebody has asked for it (classes.kind_of)

    def variant(self, *, requires_grad: bool, leaf: bool) -> Meta:
        """The same layout with other gradient flags."""
        return meta(self.shape, self.strides, self.dtype, self.offset, requires_grad, leaf, self.wrapped, self.dynamic, self.device, self.bits)

    def with_bits(self, bits: int) -> Meta:
        """The same memory, read with other bits."""
        if bits == self.bits:
            return self
        return meta(self.shape, self.strides, self.dtype, self.offset, self.requires_grad, self.leaf, self.wrapped, self.dynamic, self.device, bits)

    @property
    def is_dense(self) -> bool:
        """Whether the strides are a permutation of contiguous ones (no holes, no overlap)."""
        return is_dense(self.shape, self.strides)

    def __repr__(self) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        grad += f" on {self.device}" if self.device is not CPU else ""
        grad += ", conjugate" * (self.bits & CONJ) + ", negative" * (self.bits // NEG)
        return f"{self.dtype.name}{list(self.shape)} strides {list(self.strides)} offset {self.offset}{grad}"


INTERNED: Final[dict[tuple[Any, ...], Meta]] = {}


def meta(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype_: dtype, offset: int = 0, requires_grad: bool = False,
    leaf: bool = True, wrapped: bool = False, dynamic: bool = False, device: Device = CPU, bits: int = 0,
) -> Meta:  # fmt: skip
    """The one Meta with these fields; `strides` None means contiguous."""
    if strides is None:
        strides = contiguous_strides(shape)
    over_symbols = symbolic(shape) or offset.__class__ is Sym or symbolic(strides)
    key = (tuple(shape), strides, dtype_, offset, requires_grad, leaf, wrapped, dynamic, device.type, bits)
    found = None if over_symbols else INTERNED.get(key)
    if found is None:
        if dtype_ in NAMED:
            raise not_held(dtype_)
        found = Meta()
        found.kind = None
        found.shape = Size(shape)
        found.device = device
        found.strides = strides
        found.dtype = dtype_
        found.offset = offset
        found.requires_grad = requires_grad
        found.leaf = leaf
        found.wrapped = wrapped
        found.dynamic = dynamic
        found.bits = bits
        found.numel = prod(shape)
        found.one_number = not (bits or over_symbols) and device is CPU and found.numel == 1
        found.ndim = len(shape)
        found.is_contiguous = is_contiguous(shape, strides)
        if over_symbols:
            return found  # of a path by class: there, identity is not equality
        untrack_all((key, found, found.shape, strides))
        found = INTERNED.setdefault(key, found)
    return found


_CONTIGUOUS: Final[dict[tuple[tuple[int, ...], dtype], Meta]] = {}


def contiguous(shape: tuple[int, ...], d: dtype) -> Meta:
    """The Meta of a new tensor without gradients in row-major order."""
    if symbolic(shape):
        return meta(shape, None, d)
    found = _CONTIGUOUS.get((shape, d))
    if found is None:
        found = _CONTIGUOUS[shape, d] = meta(shape, None, d)
    return found


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Row-major without gaps; the strides of size-1 dimensions do not matter, nor any stride of an empty tensor."""
    if 0 in shape:
        return True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether some permutation of the dimensions is contiguous."""
    if 0 in shape:
        return True
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def dense_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """These strides if they are dense, else those of row-major order: how a copy, or a gradient, of such a tensor is laid out."""
    return strides if is_dense(shape, strides) else contiguous_strides(shape)


def same_layout(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two stride tuples address the same elements in the same order (size-1 dimensions do not matter)."""
    return a == b or all(x == y or size == 1 for x, y, size in zip(a, b, shape, strict=True)) or 0 in shape
