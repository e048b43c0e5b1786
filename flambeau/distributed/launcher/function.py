"""A function of a program in a process of its own: how it is handed over, and how its result comes back."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import spawn
from pathlib import Path
from typing import Any

RESULT = "FLAMBEAU_LAUNCH_RESULT"  # the variable that says where a process writes what its function returned


class Function:
    """A function and its arguments in a file, which processes of `command` read. A context: the file is gone behind it."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        from flambeau import module_names

        self.folder = tempfile.mkdtemp(prefix="flambeau-function-")
        try:
            around = spawn.get_preparation_data("worker") | {"start_method": "spawn"}
            around["authkey"] = bytes(around["authkey"])  # type: ignore[typeddict-item]  # which pickles only while a process of multiprocessing's is started
            text = pickle.dumps((module_names.is_installed(), around)) + pickle.dumps((function, tuple(args)))
            path = Path(self.folder, "function.pickle")
            path.write_bytes(text)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.command = [sys.executable, "-u", "-m", "flambeau.distributed.launcher.function", str(path)]

    def __enter__(self) -> Function:
        return self

    def __exit__(self, *error: Any) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def result(self, start: int, local_rank: int) -> str:
        """Where a process writes its result. `start`: how often all were started before."""
        return os.path.join(self.folder, f"result-{start}-{local_rank}.pickle")


def main(path: str) -> None:
    """Run the function. The program's main module is read first, as multiprocessing reads it, for the function may be of it."""
    with open(path, "rb") as file:
        under_torch, around = pickle.load(file)
        if under_torch:
            from flambeau.as_torch import install

            install()
        spawn.prepare(around)
        function, args = pickle.load(file)
    from flambeau.distributed.elastic.multiprocessing.errors import record

    value = record(function)(*args)
    target = os.environ[RESULT]
    with open(target + ".new", "wb") as out:
        pickle.dump(value, out)
    os.replace(target + ".new", target)


if __name__ == "__main__":
    main(sys.argv[1])
