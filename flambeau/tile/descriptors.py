"""Tensor descriptors and block pointers: rectangles of a tensor, whose bounds are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.dtypes import int64
from flambeau.tile import language
from flambeau.tile.operations import binary, cast, logical, number, sizes, to_tensor
from flambeau.tile.values import tensor, unwrap


def _wide(x: Any) -> Any:
    x = unwrap(x)
    return tensor(cast(number(x), int64))


class Rectangle:
    """A tensor's base, sizes and strides, and the shape of the blocks that are read."""

    def __init__(self, base: tensor, shape: Sequence[Any], strides: Sequence[Any], block_shape: Sequence[Any], zero_padding: bool = True) -> None:
        self.base = base
        self.shape, self.strides = [_wide(n) for n in shape], [_wide(n) for n in strides]
        self.block_shape = list(sizes(block_shape))
        self.padding = zero_padding
        if not len(self.shape) == len(self.strides) == len(self.block_shape):
            raise ValueError(f"a descriptor has as many sizes as strides and block sizes, got {len(shape)}, {len(strides)} and {len(self.block_shape)}")

    @property
    def dtype(self) -> Any:
        return self.base.dtype.element_ty

    def places(self, offsets: Sequence[Any], checked: Sequence[int]) -> tuple[Any, Any]:
        """(pointers of the block at offsets, the mask of what lies inside)."""
        pointer: Any = self.base
        mask: Any = None
        rank = len(self.block_shape)
        if len(offsets) != rank:
            raise ValueError(f"a block of {rank} dims is at {rank} offsets, got {len(offsets)}")
        for d, n in enumerate(self.block_shape):
            index = binary("add", tensor(cast(language.arange(0, n).handle, int64)) if n > 1 else language.full((1,), 0, language.int64_), _wide(offsets[d]))
            index = language.reshape(index, [n if i == d else 1 for i in range(rank)])
            pointer = binary("add", pointer, binary("mul", index, self.strides[d]))
            if d in checked:
                inside = logical("and", binary("ge", index, 0), binary("lt", index, self.shape[d]))
                mask = inside if mask is None else logical("and", mask, inside)
        pointer = language.broadcast_to(pointer, self.block_shape)
        return pointer, None if mask is None else language.broadcast_to(mask, self.block_shape)


class tensor_descriptor(Rectangle):
    """What tl.make_tensor_descriptor gives: `load` and `store` at offsets; outside of the tensor zeros are read and nothing is written."""

    def _everything(self) -> range:
        return range(len(self.block_shape))

    def load(self, offsets: Any) -> tensor:
        pointer, mask = self.places(list(unwrap(offsets)), self._everything())
        return language.load(pointer, mask=mask)

    def store(self, offsets: Any, value: Any) -> None:
        pointer, mask = self.places(list(unwrap(offsets)), self._everything())
        v = to_tensor(value)
        language.store(pointer, language.reshape(v, self.block_shape) if v.shape != tuple(self.block_shape) else v, mask=mask)

    def atomic_add(self, offsets: Any, value: Any) -> None:
        pointer, mask = self.places(list(unwrap(offsets)), self._everything())
        language.atomic_add(pointer, value, mask=mask)

    def _tile_parts(self) -> tuple[Any, ...]:
        return (self.base, *self.shape, *self.strides)

    def _tile_with(self, parts: Sequence[Any]) -> tensor_descriptor:
        rank = len(self.block_shape)
        return tensor_descriptor(parts[0], parts[1 : 1 + rank], parts[1 + rank :], self.block_shape)


def make_tensor_descriptor(base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero") -> tensor_descriptor:
    """A descriptor of a tensor at a pointer."""
    return tensor_descriptor(to_tensor(base), list(unwrap(shape)), list(unwrap(strides)), block_shape)


class block_pointer(Rectangle):
    """What tl.make_block_ptr gives: a rectangle with its offsets."""

    offsets: list[Any]

    def advanced(self, by: Any) -> block_pointer:
        moved = block_pointer(self.base, self.shape, self.strides, self.block_shape)
        moved.offsets = [binary("add", o, _wide(x)) for o, x in zip(self.offsets, unwrap(by), strict=True)]
        return moved

    def _tile_parts(self) -> tuple[Any, ...]:
        return (self.base, *self.shape, *self.strides, *self.offsets)

    def _tile_with(self, parts: Sequence[Any]) -> block_pointer:
        rank = len(self.block_shape)
        made = block_pointer(parts[0], parts[1 : 1 + rank], parts[1 + rank : 1 + 2 * rank], self.block_shape)
        made.offsets = list(parts[1 + 2 * rank :])
        return made


def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
    """A pointer to a rectangle of a tensor."""
    made = block_pointer(to_tensor(base), list(unwrap(shape)), list(unwrap(strides)), block_shape)
    made.offsets = [_wide(o) for o in unwrap(offsets)]
    return made


def advance(base: block_pointer, offsets: Any) -> block_pointer:
    """The rectangle, moved."""
    return base.advanced(offsets)


def load_block(pointer: block_pointer, checked: Any, padding: Any) -> tensor:
    """What `tl.load` does for a block pointer: dims that are not to be checked are read as they are."""
    places, mask = pointer.places(pointer.offsets, _dims(checked))
    if mask is None:
        return language.load(places)
    return language.load(places, mask=mask, other=float("nan") if unwrap(padding) == "nan" else 0)


def store_block(pointer: block_pointer, value: Any, checked: Any) -> None:
    """What `tl.store` does for a block pointer."""
    places, mask = pointer.places(pointer.offsets, _dims(checked))
    language.store(places, value, mask=mask)


def _dims(checked: Any) -> tuple[int, ...]:
    checked = unwrap(checked)
    return () if checked is None else (checked,) if isinstance(checked, int) else tuple(unwrap(d) for d in checked)


class TensorDescriptor:
    """A descriptor that is an argument of a launch: `TensorDescriptor(tensor, shape, strides, block_shape)`."""

    def __init__(self, base: Any, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str = "zero") -> None:
        self.base, self.shape, self.strides, self.block_shape = base, list(shape), list(strides), list(block_shape)

    @staticmethod
    def from_tensor(x: Any, block_shape: Sequence[int]) -> TensorDescriptor:
        """Of a tensor as it is."""
        return TensorDescriptor(x, x.shape, x.stride(), block_shape)

    def _tile_key(self) -> Any:
        return ("descriptor", self.base.dtype, tuple(self.block_shape), tuple(n == 1 for n in (*self.shape, *self.strides)))

    def _tile_arguments(self) -> tuple[Any, ...]:
        return (self.base, *self.shape, *self.strides)

    def _tile_in_kernel(self, parts: Sequence[Any]) -> tensor_descriptor:
        rank = len(self.shape)
        return tensor_descriptor(parts[0], parts[1 : 1 + rank], parts[1 + rank :], self.block_shape)
