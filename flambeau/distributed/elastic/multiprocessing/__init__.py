"""torch.distributed.elastic.multiprocessing: the start of workers."""

from __future__ import annotations

from flambeau.distributed.elastic.multiprocessing.api import DefaultLogsSpecs as DefaultLogsSpecs
from flambeau.distributed.elastic.multiprocessing.api import LogsDest as LogsDest
from flambeau.distributed.elastic.multiprocessing.api import LogsSpecs as LogsSpecs
from flambeau.distributed.elastic.multiprocessing.api import SignalException as SignalException
from flambeau.distributed.elastic.multiprocessing.api import Std as Std
from flambeau.distributed.elastic.multiprocessing.api import to_map as to_map
from flambeau.distributed.several import define as _define

_define(globals(), "start_processes(*args, **options) !")
