"""Names of torch.profiler for traces of PyTorch's own dispatcher, which is not here."""

from __future__ import annotations

import enum
from typing import Any, NoReturn


class DeviceType(enum.Enum):
    """Where an event ran."""

    CPU = 0
    CUDA = 1


class ExecutionTraceObserver:
    """Writes PyTorch's dispatcher calls to a file: RuntimeError when it is started, as there is no dispatcher; see profile()."""

    def __init__(self) -> None:
        self._output: str | None = None

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Remember the file's name."""
        self._output = output_file_path
        return self

    def unregister_callback(self) -> None:
        """Forget it."""
        self._output = None

    def get_output_file_path(self) -> str | None:
        """The file's name."""
        return self._output

    @property
    def is_registered(self) -> bool:
        """Whether there is a file's name."""
        return self._output is not None

    def is_running(self) -> bool:
        """False."""
        return False

    def start(self) -> NoReturn:
        """RuntimeError."""
        raise RuntimeError("ExecutionTraceObserver: flambeau has no dispatcher whose calls could be written; torch.profiler.profile has export_chrome_trace")

    def stop(self) -> None:
        """Nothing to stop."""

    def cleanup(self) -> None:
        """Forget the file's name."""
        self._output = None

    def __enter__(self) -> Any:
        self.start()

    def __exit__(self, *_: Any) -> None:
        return None
