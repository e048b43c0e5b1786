"""torch.distributed.ProcessGroupGloo: the name of gloo's groups, whose options are taken and change nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any


class ProcessGroupGloo:
    """gloo itself is not here: groups of this backend are memory that ranks share, and MPI between machines."""

    class _Options:
        """gloo's options: threads and devices mean nothing here."""

        def __init__(self) -> None:
            self._timeout: timedelta | float = timedelta(minutes=30)
            self._threads = 2
            self._devices: list[Any] = []

    Options = _Options

    @staticmethod
    def create_default_device(interface: str = "", lazy_init: bool | None = None) -> None:
        """None: there is nothing to choose."""

    @staticmethod
    def create_device(hostname: str = "", interface: str = "", lazy_init: bool | None = None) -> None:
        """None: there is nothing to choose."""
