"""What work costs on a machine: bandwidths, peaks, threads. Defaults, and what `flambeau calibrate` has measured and stored.

These numbers choose between ways that give the same bits: how finely work is cut, which kernels get a thread, which stores bypass
the caches. `flambeau calibrate` (cli/calibrate.py) measures them again, once a machine.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Costs:
    """The defaults came off processors of 2.5 to 3 GHz with AVX-512, by the measurement of cli/calibrate.py that each names."""

    bytes_per_nanosecond: float = 10.0  # of one core, from memory: 1 added to 256 MiB, read and written together
    operations_per_nanosecond: float = 100.0  # of one core, a multiplication and an addition are two: a float32 product of 768 x 768
    nanoseconds_per_weight: float = 0.025  # one addition to one element of 16 in a vector: a chain of them in the cache
    thread_nanoseconds: float = 8000.0  # work that a further thread is worth being woken for: twice what a parallel phase costs
    stream_bytes: int = 1 << 24  # results of this size leave the caches before anything reads them: twice a core's second level, at least
    cache_bytes_per_nanosecond: tuple[float, ...] = ()  # of one core, by level: 1 added to half of each cache; empty: not measured
    peaks: tuple[tuple[str, float], ...] = field(default=())  # operations a nanosecond of one core, by atom; empty: not measured
    call_nanoseconds: float = 0.0  # a known call of one small kernel; 0: not measured

    def key(self) -> str:
        """What planners' choices depend on, as text for keys."""
        return "" if self == DEFAULT else repr(self)


DEFAULT: Final = Costs()
_FORMAT: Final = 1  # of the file; a file of another is not read


def file() -> Path | None:
    """Where the measured costs of machines are: beside the compiled code. None without a cache folder."""
    from flambeau.runtime import object_cache

    root = object_cache.directory()
    return None if root is None else root / "costs.json"


def stored() -> dict[str, dict[str, Any]]:
    """All that is in the file, by processor; nothing if there is none that can be read."""
    path = file()
    try:
        content = json.loads(path.read_text()) if path is not None else {}
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or content.get("format") != _FORMAT or not isinstance(content.get("machines"), dict):
        return {}
    return {name: entry for name, entry in content["machines"].items() if isinstance(entry, dict)}


@cache
def calibrated(processor: str) -> Costs:
    """The stored costs of a processor (target.fingerprint()); the defaults if it was never measured, or FLAMBEAU_COSTS=0."""
    if os.environ.get("FLAMBEAU_COSTS") == "0":
        return DEFAULT
    entry = stored().get(processor)
    return DEFAULT if entry is None else _read(entry)


def store(processor: str, costs: Costs) -> Path | None:
    """Keep measured costs. None, and nothing is kept, without a cache folder. OSError if it cannot be written."""
    from flambeau.runtime import whole_files

    path = file()
    if path is not None:
        content = {"format": _FORMAT, "machines": stored() | {processor: asdict(costs)}}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_files.replacing(path) as f:
            f.write(json.dumps(content, indent=1).encode())
        calibrated.cache_clear()
    return path


def _read(entry: dict[str, Any]) -> Costs:
    """The costs of an entry; the default for whatever is missing or no positive number."""
    found: dict[str, Any] = {}
    for f in fields(Costs):
        value, default = entry.get(f.name), getattr(DEFAULT, f.name)
        if f.name == "peaks":
            if isinstance(value, list):
                found[f.name] = tuple((str(name), float(peak)) for name, peak in value)
        elif f.name == "cache_bytes_per_nanosecond":
            if isinstance(value, list):
                found[f.name] = tuple(float(x) for x in value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            found[f.name] = type(default)(value)
    return Costs(**found)
