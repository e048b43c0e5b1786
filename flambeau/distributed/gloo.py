"""torch.distributed.ProcessGroupGloo: a group that is made by itself, without init_process_group; devices and threads mean nothing here."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from flambeau.distributed.group import ProcessGroup
from flambeau.distributed.options import BackendOptions
from flambeau.distributed.store import PrefixStore, Store

_numbers = itertools.count()


class ProcessGroupGloo(ProcessGroup):
    """A group of `size` ranks that find each other by the store: memory that they share, and MPI between machines once there is a group of all.

    The last argument: options, or the timeout.
    """

    class _Options(BackendOptions):
        """gloo's options: threads and devices are taken and change nothing."""

        def __init__(self) -> None:
            super().__init__("gloo")
            self._threads = 2
            self._devices: list[Any] = []

    Options = _Options

    def __init__(self, store: Store, rank: int, size: int, options: Any = None, timeout: Any = None) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"ProcessGroupGloo: rank must be between 0 and size - 1, got rank {rank} and size {size}")
        limit = timeout if options is None else options if isinstance(options, timedelta) else options._timeout
        name = f"gloo-{next(_numbers)}"
        super().__init__("gloo", range(size), rank, PrefixStore("gloo", store), limit, name)

    @staticmethod
    def create_default_device(interface: str = "", lazy_init: bool | None = None) -> None:
        """None: there is nothing to choose."""

    @staticmethod
    def create_device(hostname: str = "", interface: str = "", lazy_init: bool | None = None) -> None:
        """None: there is nothing to choose."""
