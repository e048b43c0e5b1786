"""What the system lets this process use: processors and memory, by affinity, control groups and what is free now."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")


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
