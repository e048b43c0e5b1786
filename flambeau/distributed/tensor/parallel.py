"""torch.distributed.tensor.parallel: plans that spread layers over processes; they can be written down, and not be carried out."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(
    globals(), "parallelize_module(module, device_mesh=None, parallelize_plan=None, **options) !\nloss_parallel() !",
    "ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput PrepareModuleOutput PrepareModuleInputOutput ParallelStyle",
)  # fmt: skip
