"""What calls of a process group are told beside their tensors, under PyTorch's names: `AllreduceOptions` and its kin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flambeau.distributed.reduce_op import ReduceOp

NO_LIMIT = timedelta(milliseconds=-1)  # the group's own


class _Options:
    """`timeout`: that of this call; `asyncOp`: whether the program goes on meanwhile."""

    def __init__(self) -> None:
        self.timeout: timedelta = NO_LIMIT
        self.asyncOp = True


class BroadcastOptions(_Options):
    """From which rank, and of its tensors from which."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank, self.rootTensor = 0, 0


class AllreduceOptions(_Options):
    """How terms become one."""

    def __init__(self) -> None:
        super().__init__()
        self.reduceOp: Any = ReduceOp.SUM


class AllreduceCoalescedOptions(AllreduceOptions):
    """How terms become one."""


class ReduceOptions(AllreduceOptions):
    """How terms become one, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank, self.rootTensor = 0, 0


class AllgatherOptions(_Options):
    """Nothing but the timeout."""


class GatherOptions(_Options):
    """To which rank."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = 0


class ScatterOptions(_Options):
    """From which rank."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = 0


class ReduceScatterOptions(AllreduceOptions):
    """How terms become one."""


class BarrierOptions(_Options):
    """For which devices."""

    def __init__(self) -> None:
        super().__init__()
        self.device_ids: list[int] = []
        self.device: Any = None


class AllToAllOptions(_Options):
    """Nothing but the timeout."""


class BackendOptions:
    """What a group is made with: its backend's name and its timeout, which may be given in seconds."""

    def __init__(self, backend: str, timeout: timedelta | float = timedelta(minutes=30)) -> None:
        self.backend = backend
        self._timeout = timeout
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""

    @property
    def _timeout(self) -> timedelta:
        return self._limit

    @_timeout.setter
    def _timeout(self, value: timedelta | float) -> None:
        self._limit = value if isinstance(value, timedelta) else timedelta(seconds=value)
