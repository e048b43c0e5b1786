"""torch.distributed.elastic.multiprocessing: the start of workers."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), "start_processes(*args, **options) !", "Std DefaultLogsSpecs")
