"""torch.utils.benchmark: times of statements, with what is recorded run to its end after each.

measurement (one result and its statistics), timer, compare (tables), fuzzer (random tensors), callgrind (instruction counts, which are not
taken here).
"""

from __future__ import annotations

from flambeau.names import answering as _answering
from flambeau.utils.benchmark.callgrind import CallgrindStats, CopyIfCallgrind, FunctionCount, FunctionCounts
from flambeau.utils.benchmark.compare import Colorize, Compare
from flambeau.utils.benchmark.fuzzer import FuzzedParameter, FuzzedSparseTensor, FuzzedTensor, Fuzzer, ParameterAlias
from flambeau.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from flambeau.utils.benchmark.timer import Language, Timer, timer

__getattr__ = _answering("torch.utils.benchmark", globals())
