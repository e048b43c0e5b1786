"""torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks: gradients that go as bytes, each rank's with a scale and a zero point of its own."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed.algorithms.ddp_comm_hooks.default_hooks import finished
from flambeau.distributed.collectives import all_gather_into_tensor
from flambeau.distributed.group import ProcessGroup, default_group

_STEPS = 255


def quantization_pertensor_hook(process_group: ProcessGroup | None, bucket: Any) -> Any:
    """The mean of the bucket's gradients, which go as bytes: one scale and zero point for the whole bucket of each rank."""
    buffer = bucket.buffer()
    return finished(_mean(process_group, buffer.view(1, -1))[: buffer.numel()])


def quantization_perchannel_hook(process_group: ProcessGroup | None, bucket: Any, bucket_size: int = 512) -> Any:
    """The mean of the bucket's gradients, which go as bytes: a scale and a zero point for every `bucket_size` elements."""
    buffer = bucket.buffer()
    rows = flambeau.nn.functional.pad(buffer, (0, -buffer.numel() % bucket_size)).view(-1, bucket_size)
    return finished(_mean(process_group, rows)[: buffer.numel()])


def _mean(process_group: ProcessGroup | None, rows: Any) -> Any:
    """The mean over the ranks of each row's bytes, as one flat tensor of the rows' dtype."""
    group = default_group() if process_group is None else process_group
    whole = rows.float()
    scale, zero = _scales(whole)
    quantized = ((whole / scale).round() + zero).clamp(0, _STEPS).to(flambeau.uint8)
    everyones = _gathered(flambeau.stack([scale, zero]), group)
    codes = _gathered(quantized, group)
    total = flambeau.zeros_like(whole)
    for (of_scale, of_zero), code in zip(everyones, codes, strict=True):
        total += of_scale * (code.float() - of_zero)
    return (total / group.size()).reshape(-1).to(rows.dtype)


def _scales(rows: Any) -> tuple[Any, Any]:
    """(scale, zero point) of each row, so that its range and 0 fit into a byte and 0 stays exact."""
    least, greatest = rows.amin(1, keepdim=True).clamp(max=0), rows.amax(1, keepdim=True).clamp(min=0)
    scale = ((greatest - least) / _STEPS).clamp(min=flambeau.finfo(flambeau.float32).eps)
    return scale, (-(least / scale).round()).clamp(0, _STEPS)


def _gathered(tensor: Any, group: ProcessGroup) -> Any:
    """What every rank has, stacked."""
    out = flambeau.empty((group.size(), *tensor.shape), dtype=tensor.dtype)
    all_gather_into_tensor(out, tensor.contiguous(), group)
    return out
