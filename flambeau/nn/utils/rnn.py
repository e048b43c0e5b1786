"""Sequences of different lengths: packed (step after step, longest first) and padded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import flambeau as torch
from flambeau.ops.creation import check_memory as _check_memory  # not a public name of this module
from flambeau.tensor import Tensor


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """data (sum of lengths, ...): step 0 of all sequences, step 1 of those that have one, ...; batch_sizes: how many each."""

    def __new__(
        cls, data: Tensor, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:  # fmt: skip
        if batch_sizes is None:
            raise ValueError("PackedSequence needs batch_sizes")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data moved or cast, and the indices moved with it; this sequence if that changes nothing."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [None if t is None else t.to(data.device) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """In the host's memory."""
        return self.to(*args, device="cpu", **kwargs)

    def double(self) -> PackedSequence:
        """Of float64."""
        return self.to(dtype=torch.double)

    def float(self) -> PackedSequence:
        """Of float32."""
        return self.to(dtype=torch.float)

    def half(self) -> PackedSequence:
        """Of float16."""
        return self.to(dtype=torch.half)

    def long(self) -> PackedSequence:
        """Of int64."""
        return self.to(dtype=torch.long)

    def int(self) -> PackedSequence:
        """Of int32."""
        return self.to(dtype=torch.int)

    def short(self) -> PackedSequence:
        """Of int16."""
        return self.to(dtype=torch.short)

    def char(self) -> PackedSequence:
        """Of int8."""
        return self.to(dtype=torch.int8)

    def byte(self) -> PackedSequence:
        """Of uint8."""
        return self.to(dtype=torch.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in memory from which devices copy at once."""
        return self.data.is_pinned()

    def pin_memory(self) -> PackedSequence:
        """The data in such memory."""
        return type(self)(self.data.pin_memory(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes it."""
    if permutation is None:
        return None
    inverse = [0] * permutation.numel()
    for i, p in enumerate(permutation.tolist()):
        inverse[p] = i
    return torch.tensor(inverse, dtype=torch.int64)


def _has_step(lengths: Sequence[int], steps: int) -> Any:
    """(steps, batch) bools, as NumPy has them: whether a sequence has a step."""
    return np.asarray(lengths)[None, :] > np.arange(steps)[:, None]


def _numbers(array: Any) -> Tensor:
    """An int64 tensor of an array's numbers."""
    return torch.tensor(np.asarray(array, dtype=np.int64).reshape(-1))


def _rows(items: Tensor, shape: tuple[int, int], index: Any, padding: float) -> Tensor:
    """A tensor (*shape, ...) of padding, with the rows of `items` at these places of its first two dims, counted as one."""
    padded = torch.full((shape[0] * shape[1], *items.shape[1:]), padding, dtype=items.dtype)
    return padded.index_copy(0, _numbers(index), items).unflatten(0, shape)


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack a padded (steps, batch, ...) tensor; with enforce_sorted=False the batch may stand in any order."""
    given = lengths.to(torch.int64) if isinstance(lengths, Tensor) else torch.as_tensor(lengths, dtype=torch.int64)
    if given.ndim != 1:
        raise RuntimeError(f"pack_padded_sequence(): 'lengths' argument should be a 1D CPU int64 tensor, but got {given.ndim}D, shape {tuple(given.shape)}")
    if not input.numel():
        raise RuntimeError(f"Cannot pack empty tensors: the input has shape {tuple(input.shape)}")
    sizes = given.tolist()
    order = None
    if not enforce_sorted:
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        sizes = [sizes[i] for i in order]
    elif any(a < b for a, b in zip(sizes, sizes[1:], strict=False)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not "
            "need ONNX exportability."
        )
    batch, most = input.shape[:2] if batch_first else (input.shape[1], input.shape[0])
    if len(sizes) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={batch})")
    if sizes and sizes[-1] <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if sizes[0] > most:
        raise RuntimeError(f"a length of {sizes[0]} is more than the {most} steps of the input {tuple(input.shape)}")
    has = _has_step(sizes, sizes[0])
    step, number = np.nonzero(has)
    place = number if order is None else np.asarray(order)[number]
    data = input.flatten(0, 1).index_select(0, _numbers(place * most + step if batch_first else step * batch + place))
    return PackedSequence(data, _numbers(has.sum(1)), None if order is None else _numbers(order), None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(padded tensor, lengths): the inverse of pack_padded_sequence."""
    sizes = [int(n) for n in sequence.batch_sizes.tolist()]
    steps = len(sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    batch = sizes[0]
    rest = tuple(sequence.data.shape[1:])
    _check_memory((steps, batch, *rest), sequence.data.dtype)
    lengths = [sum(1 for size in sizes if size > i) for i in range(batch)]
    padded = _rows(sequence.data, (steps, batch), np.flatnonzero(_has_step(lengths, steps)), padding_value)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = [lengths[i] for i in sequence.unsorted_indices.tolist()]
    return (padded.transpose(0, 1) if batch_first else padded), torch.tensor(lengths, dtype=torch.int64)


def pad_sequence(sequences: Tensor | Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Stack tensors (length, ...) of different lengths, padded to the longest."""
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be 'left' or 'right', got {padding_side!r}")
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    items = list(sequences.unbind(0) if isinstance(sequences, Tensor) else sequences)
    if not items:
        raise RuntimeError("pad_sequence: Expected a non-empty list of Tensors")
    scalar = next((i for i, t in enumerate(items) if not t.ndim), None)
    if scalar is not None:
        kind = IndexError if scalar else RuntimeError
        raise kind(f"pad_sequence: Expected sequences of one dim at least, but sequence {scalar} has none; its first dim is its length")
    lengths = [t.shape[0] for t in items]
    longest = max(lengths)
    kind, rest = items[0].dtype, items[0].shape[1:]  # the others are written into rows like the first
    for i, t in enumerate(items):
        if t.dtype is not kind or t.shape[1:] != rest:
            items[i] = t.to(kind).expand(lengths[i], *rest)
    has = _has_step(lengths, longest).T  # sequence after sequence, as the items are put together
    number, step = np.nonzero(has)
    if padding_side == "right":
        place = step
    else:
        place = step + longest - np.asarray(lengths)[number]
    index = number * longest + place if batch_first else place * len(items) + number
    return _rows(torch.cat(items), (len(items), longest) if batch_first else (longest, len(items)), index, padding_value)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The tensors of which pad_sequence made the padded one."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    sizes = lengths.tolist()
    if len(sizes) != len(x):
        raise ValueError(f"unpad_sequence: {len(sizes)} lengths for {len(x)} sequences: padded_sequences has the shape {tuple(padded_sequences.shape)}")
    return [x[i, : int(n)] for i, n in enumerate(sizes)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (length, ...) of different lengths."""
    return pack_padded_sequence(pad_sequence(sequences), [t.shape[0] for t in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors of which pack_sequence made the packed one."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("nn.utils.rnn", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.nn.utils.rnn", globals())
