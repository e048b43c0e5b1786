"""torch.distributed.elastic.multiprocessing.api: where the output of launched processes goes, and the signal that ends a launcher."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any


class SignalException(Exception):
    """The launcher was told to end."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


class Std(IntFlag):
    """Standard output, standard error, both, or neither."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """ "0" to "3" for all processes, or "LOCAL_RANK:WHAT,..."."""
        if re.fullmatch("[0123]", vm):
            return cls(int(vm))
        if re.fullmatch(r"\d+:[0123](,\d+:[0123])*", vm):
            return {int(rank): cls(int(what)) for rank, what in (part.split(":") for part in vm.split(","))}
        raise ValueError(f"what is redirected must be 0 (nothing), 1 (stdout), 2 (stderr), 3 (both), or LOCAL_RANK:WHAT,..., got {vm!r}")


def to_map(val_or_map: Std | Mapping[int, Std], local_world_size: int) -> dict[int, Std]:
    """For each local rank what is meant; NONE for those that a mapping does not name."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


@dataclass
class LogsDest:
    """Files by local rank: "" is the launcher's own stream."""

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = ""
    filtered_stderr: str = ""


class LogsSpecs(ABC):
    """Where the output of processes goes. `redirects`: to files; `tee`: to files and here; `local_ranks_filter`: whose output is shown here."""

    def __init__(
        self, log_dir: str | None = None, redirects: Std | dict[int, Std] = Std.NONE, tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:  # fmt: skip
        self._root_log_dir, self._redirects, self._tee, self._local_ranks_filter = log_dir, redirects, tee, local_ranks_filter

    @abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The files of processes with these environments."""

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """The folder of all runs."""


class DefaultLogsSpecs(LogsSpecs):
    """`LOG_DIR/RUN_ID_.../attempt_N/LOCAL_RANK/` has stdout.log, stderr.log and error.json. Without a folder there is a temporary one, gone with the run."""

    def __init__(
        self, log_dir: str | None = None, redirects: Std | dict[int, Std] = Std.NONE, tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:  # fmt: skip
        if log_dir and log_dir != os.devnull:
            if os.path.isfile(log_dir):
                raise NotADirectoryError(f"log_dir: {log_dir} is a file")
            os.makedirs(log_dir, exist_ok=True)
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._run_log_dir: str | None = None
        self._temporary: str | None = None

    @property
    def root_log_dir(self) -> str:
        if not self._root_log_dir:
            self._root_log_dir = self._temporary = tempfile.mkdtemp(prefix="flambeau-launch-")
        return self._root_log_dir

    def clean(self) -> None:
        """Take the temporary folder away, if there is one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._root_log_dir = self._run_log_dir = self._temporary = None

    def _attempt(self, environment: Mapping[str, str]) -> str:
        """A new folder for the processes of one start."""
        if self._run_log_dir is None:
            self._run_log_dir = tempfile.mkdtemp(prefix=f"{environment.get('TORCHELASTIC_RUN_ID', 'test_run_id')}_", dir=self.root_log_dir)
        first = path = os.path.join(self._run_log_dir, f"attempt_{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}")
        number = 0
        while os.path.exists(path):  # started again without a failure, for other machines came
            number += 1
            path = f"{first}_{number}"
        os.makedirs(path)
        return path

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        found = LogsDest()
        count = len(envs)
        to_file, tee = to_map(self._redirects, count), to_map(self._tee, count)
        nowhere = self._root_log_dir == os.devnull
        attempt = "" if nowhere else self._attempt(envs.get(0, {}))
        for rank in range(count):
            folder = os.path.join(attempt, str(rank))
            shown = not self._local_ranks_filter or rank in self._local_ranks_filter
            if not nowhere:
                os.mkdir(folder)
            for bit, name, files, tees in ((Std.OUT, "stdout", found.stdouts, found.tee_stdouts), (Std.ERR, "stderr", found.stderrs, found.tee_stderrs)):
                files[rank] = "" if shown else os.devnull
                if (to_file[rank] | tee[rank]) & bit:
                    files[rank] = os.devnull if nowhere else os.path.join(folder, f"{name}.log")
                if tee[rank] & bit and shown:
                    tees[rank] = files[rank]
            found.error_files[rank] = envs[rank]["TORCHELASTIC_ERROR_FILE"] = "" if nowhere else os.path.join(folder, "error.json")
        if not nowhere:
            found.filtered_stdout, found.filtered_stderr = (os.path.join(attempt, f"filtered_{name}.log") for name in ("stdout", "stderr"))
        return found

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, tee={self._tee}, "
            f"local_ranks_filter={self._local_ranks_filter})"
        )  # fmt: skip

    def _key(self) -> tuple[Any, ...]:
        return self._root_log_dir, self._redirects, self._tee, self._local_ranks_filter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultLogsSpecs) and self._key() == other._key()

    def __hash__(self) -> int:
        return id(self)
