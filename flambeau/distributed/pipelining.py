"""torch.distributed.pipelining: models cut into stages for several processes."""

from __future__ import annotations

from enum import Enum

from flambeau.distributed.several import define as _define


class SplitPoint(Enum):
    """Where a model is cut: before or after a submodule."""

    BEGINNING = 1
    END = 2


_define(globals(), "pipeline(module, mb_args, *args, **options) !\npipe_split() !", "Pipe PipelineStage ScheduleGPipe Schedule1F1B ScheduleInterleaved1F1B")
