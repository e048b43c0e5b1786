"""The machine: instruction sets, cache sizes, usable processors. Read from the system, so that LLVM need not be loaded."""

from __future__ import annotations

import math
import os
import platform
from functools import cache
from pathlib import Path
from typing import Final

_CPUINFO: Final = Path("/proc/cpuinfo")


@cache
def _flags() -> frozenset[str]:
    """The processor's feature words as Linux prints them; from LLVM elsewhere."""
    try:
        for line in _CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(value.split())
    except OSError:
        pass
    from llvmlite import binding

    features: dict[str, bool] = binding.get_host_cpu_features()
    return frozenset(name for name, there in features.items() if there)


@cache
def vector_bits() -> int:
    """Width of the vectors to compute with: 512 with AVX-512 (F, BW, DQ, VL), 256 with AVX2 and FMA, else 128."""
    forced = os.environ.get("FLAMBEAU_VECTOR_BITS")
    if forced:
        return int(forced)
    flags = _flags()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return 512
    return 256 if {"avx2", "fma"} <= flags else 128


@cache
def fingerprint() -> str:
    """Names the processor for the object cache: architecture, features and vector width."""
    import hashlib

    digest = hashlib.sha256(" ".join(sorted(_flags())).encode()).hexdigest()[:16]
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


def _quota() -> float:
    """Processors that the control group allows (infinity: no limit)."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return math.inf if quota_us <= 0 else quota_us / period_us
    except (OSError, ValueError):
        return math.inf


def usable_processors() -> int:
    """The least of affinity and control-group quota, at least 1; FLAMBEAU_NUM_THREADS or OMP_NUM_THREADS override it."""
    for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return int(text)
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(affinity, math.floor(_quota()) if _quota() != math.inf else affinity))


def physical_memory() -> int:
    """Bytes of memory that the process may use: the machine's, or the control group's limit if that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
            if text.isdigit():
                total = min(total, int(text))
        except OSError:
            continue
    return total
