"""The machine: instruction sets, cache sizes, usable processors, memory. Read from the system, without loading LLVM."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_CPUINFO: Final = Path("/proc/cpuinfo")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
# What names a processor's model on x86 and on ARM: LLVM chooses its instruction timings by it.
_MODEL: Final = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")


@cache
def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor ({} elsewhere)."""
    try:
        first = _CPUINFO.read_text().split("\n\n", 1)[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


@cache
def flags() -> frozenset[str]:
    """The processor's feature words as Linux prints them; from LLVM elsewhere."""
    info = _cpuinfo()
    for name in ("flags", "Features"):
        if name in info:
            return frozenset(info[name].split())
    from llvmlite import binding

    features: dict[str, bool] = binding.get_host_cpu_features()
    return frozenset(name for name, there in features.items() if there)


@cache
def vector_bits() -> int:
    """Width of the vectors to compute with: 512 with AVX-512 (F, BW, DQ, VL), 256 with AVX2 and FMA, else 128."""
    forced = os.environ.get("FLAMBEAU_VECTOR_BITS")
    if forced:
        return int(forced)
    known = flags()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= known:
        return 512
    return 256 if {"avx2", "fma"} <= known else 128


@cache
def code_level() -> int:
    """How hard LLVM's code generator works, 0 to 3 (FLAMBEAU_CODE_LEVEL): 0 takes a quarter of the time, for slower code of the same bits."""
    given = os.environ.get("FLAMBEAU_CODE_LEVEL") or "3"
    if given not in ("0", "1", "2", "3"):
        raise ValueError(f"FLAMBEAU_CODE_LEVEL is {given!r}; it must be 0, 1, 2 or 3")
    return int(given)


@cache
def fingerprint() -> str:
    """Names the processor for the object cache: architecture, features and vector width; and how code is made for it."""
    import hashlib

    info = _cpuinfo()
    model = [info.get(name, "") for name in _MODEL] + [f"level {code_level()}"] * (code_level() != 3)
    digest = hashlib.sha256(" ".join([*model, *sorted(flags())]).encode()).hexdigest()[:16]
    return f"{platform.machine()}-{platform.system()}-{vector_bits()}-{digest}"


@cache
def cache_bytes(level: int) -> int:
    """Size in bytes of a core's data cache of this level (1, 2) or of the shared one (3)."""
    base = Path("/sys/devices/system/cpu/cpu0/cache")
    try:
        for entry in base.glob("index*"):
            if int((entry / "level").read_text()) == level and (entry / "type").read_text().strip() != "Instruction":
                text = (entry / "size").read_text().strip()
                return int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]]
    except (OSError, ValueError, KeyError):
        pass
    return {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}[level]


def _group_folders(controller: str) -> Iterator[Path]:
    """Folders of the process's control group and of all above it: version 2's, then a version 1 controller's."""
    groups = {"": "/"}
    try:
        for line in _OWN_GROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))
    except (OSError, ValueError):
        pass
    for name in ("", controller):
        root = _CGROUPS / name
        own = root / groups.get(name, "/").lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _limit(path: Path) -> float:
    """The number in a control group's file; infinity if there is no file, or no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return math.inf
    return int(text) if text.isdigit() else math.inf  # "max" in version 2, -1 in version 1


def _quota() -> float:
    """Processors that the control groups allow (infinity: no limit)."""
    least = math.inf
    for folder in _group_folders("cpu"):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            least = min(least, int(quota) / int(period) if quota.isdigit() else math.inf)
        except (OSError, ValueError):
            quota_us = _limit(folder / "cpu.cfs_quota_us")
            if quota_us < math.inf:
                least = min(least, quota_us / _limit(folder / "cpu.cfs_period_us"))
    return least


def usable_processors() -> int:
    """The least of affinity and control group's quota, unless FLAMBEAU_NUM_THREADS or OMP_NUM_THREADS says how many."""
    for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0].strip()  # OpenMP's variable may list a number for each nesting level
        if text.isdigit() and int(text) > 0:
            return int(text)
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(affinity, _quota())))


@cache
def physical_memory() -> int:
    """Bytes of memory that the process may use: the machine's, or the control groups' limit if that is lower."""
    total: float = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _group_folders("memory"):
        total = min(total, _limit(folder / "memory.max"), _limit(folder / "memory.limit_in_bytes"))
    return int(total)


def available_memory() -> int:
    """Bytes that can be had now without swapping, as the system estimates; all of them where it gives no estimate."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return min(int(line.split()[1]) << 10, physical_memory())
    except (OSError, ValueError):
        pass
    return physical_memory()
