"""torch.nn.parallel.comm: copies between devices, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.parallel.scatter_gather import gather as _gather
from flambeau.nn.parallel.scatter_gather import on_cpu
from flambeau.nn.parallel.scatter_gather import scatter as _scatter
from flambeau.tensor import Tensor


def _into(values: Sequence[Tensor], out: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple([target.copy_(value) for target, value in zip(out, values, strict=True)])


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """A copy of the tensor for each device, or in each tensor of `out`."""
    if (devices is None) == (out is None):
        raise RuntimeError(f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}")
    if out is not None:
        return _into([tensor] * len(out), out)
    assert devices is not None
    return tuple([tensor if i == 0 else tensor.clone() for i in range(on_cpu(devices))])  # type: ignore[attr-defined]


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10485760) -> tuple[tuple[Tensor, ...], ...]:
    """Copies of all the tensors for each device."""
    return tuple(zip(*[broadcast(t, devices) for t in tensors], strict=True))


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors of one shape. ValueError where shapes differ."""
    for i, t in enumerate(inputs):
        if t.shape != inputs[0].shape:
            got, expected = ("x".join(map(str, x.shape)) for x in (t, inputs[0]))
            raise ValueError(f"input {i} has invalid size: got {got}, but expected {expected}")
    return sum(inputs[1:], inputs[0])


def reduce_add_coalesced(inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760) -> tuple[Tensor, ...]:
    """For each place the sum over the lists' tensors there."""
    return tuple([reduce_add(column, destination) for column in zip(*inputs, strict=True)])


def scatter(
    tensor: Tensor, devices: Sequence[Any] | None = None, chunk_sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None, *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The tensor in chunks along `dim`: one for each device, or of the sizes given, or as those of `out`, where they are put."""
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise RuntimeError(f"'devices' and 'chunk_sizes' must not be specified when 'out' is, but got {devices=} and {chunk_sizes=}")
        return _into(tensor.split([t.shape[dim] for t in out], dim), out)  # type: ignore[attr-defined]
    count = on_cpu(devices or ())
    if chunk_sizes is None:
        return _scatter(tensor, devices or (), dim)  # type: ignore[no-any-return]
    if len(chunk_sizes) != count:
        raise RuntimeError(f"scatter(): {len(chunk_sizes)} chunk_sizes for {count} devices")
    return tuple(tensor.split(list(chunk_sizes), dim))  # type: ignore[attr-defined]


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """The tensors joined along `dim`, in `out` if that is given."""
    joined = _gather(list(tensors), "cpu" if destination is None else destination, dim)
    return joined if out is None else out.copy_(joined)  # type: ignore[no-any-return]


__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]
