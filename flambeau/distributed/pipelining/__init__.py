"""torch.distributed.pipelining: models cut into stages for several processes, and the orders in which stages take microbatches."""

from __future__ import annotations

from flambeau.distributed.pipelining._IR import Pipe, SplitPoint, annotate_split_points, pipe_split, pipeline
from flambeau.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    _ScheduleForwardOnly,
)
from flambeau.distributed.pipelining.stage import PipelineStage, build_stage

__all__ = [
    "Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "_ScheduleForwardOnly", "annotate_split_points", "build_stage", "pipe_split", "pipeline",
]  # fmt: skip

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.distributed.pipelining", globals())
