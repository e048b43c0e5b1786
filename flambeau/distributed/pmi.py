"""The process manager's side of PMI-1, spoken by a thread of each rank: MPI learns from it, by a store, where the other ranks are.

So ranks that no mpiexec has started become one MPI job, whoever started them, also on several machines: all they need is the store that they have anyway.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from datetime import timedelta

from flambeau.distributed.errors import DistError
from flambeau.distributed.store import Store

_MAXIMA = "kvsname_max=256 keylen_max=64 vallen_max=1024"  # those of the protocol


class Manager:
    """Answers what MPI asks in this process. `descriptor`: MPI's end of the connection."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self._own, self._theirs = socket.socketpair()
        self.descriptor = self._theirs.fileno()
        self._barriers = 0
        self.limit: timedelta | None = None  # how long a barrier may take; None: as long as the store waits
        self.error: str | None = None  # why a question could not be answered
        threading.Thread(target=self._serve, name="flambeau PMI", daemon=True).start()

    def _serve(self) -> None:
        with self._own.makefile("r") as questions, suppress(OSError):
            for line in questions:
                words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                self._own.sendall((self._answer(words) + "\n").encode())
                if words.get("cmd") == "finalize":
                    return

    def _answer(self, words: dict[str, str]) -> str:
        command = words.get("cmd", "")
        if command == "init":
            return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
        if command == "get_maxes":
            return f"cmd=maxes {_MAXIMA} rc=0"
        if command == "get_appnum":
            return "cmd=appnum appnum=0 rc=0"
        if command == "get_my_kvsname":
            return "cmd=my_kvsname kvsname=flambeau rc=0"
        if command == "get_universe_size":
            return f"cmd=universe_size size={self.size} rc=0"
        if command == "finalize":
            return "cmd=finalize_ack rc=0"
        try:
            if command == "put":
                self.store.set(f"key/{words['key']}", words.get("value", ""))
                return "cmd=put_result rc=0 msg=success"
            if command == "get":
                return self._get(words["key"])
            if command == "barrier_in":
                self._barriers += 1
                name = f"barrier/{self._barriers}"
                self.store.set(f"{name}/{self.rank}", "1")
                self.store.wait([f"{name}/{rank}" for rank in range(self.size)], self.limit)
                return "cmd=barrier_out rc=0"
        except (DistError, OSError) as error:  # who serves the store has gone, or a rank did not come
            if command == "barrier_in" and self.limit is not None:  # at the end: nobody is waited for any more
                return "cmd=barrier_out rc=0"
            self.error = f"{command}: {error}"
            return {"put": "cmd=put_result", "get": "cmd=get_result"}.get(command, "cmd=barrier_out") + " rc=-1 msg=failed"
        return f"cmd={command} rc=-1 msg=unknown_command"

    def _get(self, key: str) -> str:
        if key == "PMI_process_mapping":  # each rank on a machine of its own: windows, not MPI, are what ranks of one machine share
            return f"cmd=get_result rc=0 msg=success value=(vector,(0,{self.size},1))"
        if self.store.check([f"key/{key}"]):
            return f"cmd=get_result rc=0 msg=success value={self.store.get(f'key/{key}').decode()}"
        return "cmd=get_result rc=-1 msg=key_not_found value=unknown"

    def leave(self, limit: float) -> bool:
        """Say that this rank is done, and wait for the others, `limit` seconds; whether all will end MPI. All ranks get the same answer."""
        self.limit = timedelta(seconds=limit)
        try:
            self.store.set(f"leaving/{self.rank}", "1")
            together = "yes"
            try:
                self.store.wait([f"leaving/{rank}" for rank in range(self.size)], self.limit)
            except DistError:
                together = "no"
            return self.store.compare_set("together", "", together) == b"yes"  # who is first decides
        except (DistError, OSError):
            return False

    def close(self) -> None:
        """The process ends. MPI asks once more when Python is gone: the answer is there already, and the connection stays open."""
        with suppress(OSError):
            self._own.sendall(b"cmd=finalize_ack rc=0\n")
        for end in (self._own, self._theirs):
            end.detach()
