"""torch.distributed.remote_device: on which rank (or worker) a part lies, and on which device."""

from __future__ import annotations

from typing import Any

from flambeau.devices import device as _device


class _remote_device:
    """ "rank:0/cpu", "rank:1" (the CPU), "worker0/cpu", or a device alone. ValueError for other texts."""

    def __init__(self, remote_device: str | Any) -> None:
        text = str(remote_device)
        where, _, on = text.partition("/") if "/" in text or text.startswith("rank:") else ("", "", text)
        self._rank: int | None = None
        self._worker: str | None = None
        if where.startswith("rank:"):
            if not where[5:].isdigit():
                raise ValueError(f"Could not parse remote_device: {text}. The valid format is 'rank:<rank>/<device>', '<workername>/<device>' or '<device>'")
            self._rank = int(where[5:])
        elif where:
            self._worker = where
        elif "/" in text or not text:
            raise ValueError(f"Could not parse remote_device: {text}. The valid format is 'rank:<rank>/<device>', '<workername>/<device>' or '<device>'")
        self._device = _device(on or "cpu")

    def worker_name(self) -> str | None:
        """The name of the worker; None where a rank was given."""
        return self._worker

    def rank(self) -> int | None:
        """The rank; None where a worker was given."""
        return self._rank

    def device(self) -> Any:
        """The device there."""
        return self._device

    def __repr__(self) -> str:
        where = f"rank:{self._rank}/" if self._rank is not None else f"{self._worker}/" if self._worker is not None else ""
        return f"{where}{self._device}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _remote_device) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))
