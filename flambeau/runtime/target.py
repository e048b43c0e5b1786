"""What code is compiled for: `Target`, a record that goes through the whole compiler; this machine's by default, others by name.

What is known of this machine's processor is read from the system, without loading LLVM: what runs code of the cache needs none.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from flambeau.runtime.costs import DEFAULT, Costs, calibrated

_CPUINFO: Final = Path("/proc/cpuinfo")
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
def dots() -> frozenset[str]:
    """Names of the dtypes that this processor's dot instructions multiply; none in narrower vectors, or with FLAMBEAU_DOT_INSTRUCTIONS=0."""
    if os.environ.get("FLAMBEAU_DOT_INSTRUCTIONS") == "0" or vector_bits() < 512:
        return frozenset()
    return frozenset(name for name, (_, words) in _DOTS.items() if flags().intersection(words))


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


# -- Targets ----------------------------------------------------------------------------------------------------------

# Of the matrix unit's dtypes: how many of them stand in one 64-byte row of a tile.
_IN_A_ROW: Final = {"bfloat16": 32, "float16": 32, "int8": 64, "uint8": 64, "bool": 64}
# Dot instructions of 512-bit vectors by dtype: neighbours of k that one lane's products come of, and Linux's and LLVM's word for it.
_DOTS: Final = {"bfloat16": (2, ("avx512_bf16", "avx512bf16")), "int8": (4, ("avx512_vnni", "avx512vnni"))}
_ARM: Final = ("aarch64", "arm64")


@dataclass(frozen=True, slots=True)
class Atom:
    """A multiply-add of the machine: sums[m, n] += a[m, k] * b[k, n] of one instruction, elements of `dtype`, sums of `sums`."""

    name: str
    dtype: str
    sums: str
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that code is compiled for. Everything that a generator or a planner wants to know of it is here.

    `triple`, `cpu` and `features` are LLVM's names; of the host they are empty, and LLVM looks itself. `matrix`: dtypes of the matrix
    unit; None: this machine's, which are asked for when a product wants to know (runtime/tiles.py), since that loads LLVM. `dots`:
    dtypes of the dot instructions of vectors.
    """

    name: str
    architecture: str  # as platform.machine() says it
    vector_bits: int
    caches: tuple[int, int, int]  # bytes: a core's first- and second-level data caches, the shared third
    triple: str = ""
    cpu: str = ""
    features: str = ""
    matrix: frozenset[str] | None = frozenset()
    dots: frozenset[str] = frozenset()
    workers: int = 1  # threads that may take part
    costs: Costs = DEFAULT
    fused: bool = True  # whether it multiplies and adds floats in one instruction, rounded once

    @property
    def is_host(self) -> bool:
        """Whether it is this machine, whose code can be run here."""
        return self.name == "host"

    @property
    def is_device(self) -> bool:
        """Whether it is a GPU: tile programs are compiled for it, plans are not."""
        return self.architecture == "nvptx64"

    @property
    def registers(self) -> int:
        """Vector registers that code can name; of WebAssembly, which names none, what an engine leaves of x86-64's 16."""
        if self.architecture == "wasm32":
            return 12
        return 32 if self.vector_bits == 512 or self.architecture in _ARM else 16

    @property
    def relaxed(self) -> bool:
        """Whether it has WebAssembly's relaxed multiply-add, which the machine beneath rounds once or twice, as it likes."""
        return "+relaxed-simd" in self.features

    @property
    def lanes(self) -> int:
        """Elements of 32 bits in a vector."""
        return self.vector_bits // 32

    @property
    def matrix_dtypes(self) -> frozenset[str]:
        """Names of the dtypes whose products the matrix unit does; empty where there is none."""
        if self.matrix is not None:
            return self.matrix
        from flambeau.runtime import tiles

        return tiles.dtypes()

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """The multiply-adds that kernels are made of: of vectors, dot instructions of vectors, and of the matrix unit; of a GPU, those of a thread and of a
        warp."""
        if self.is_device:
            ones = [Atom(f"thread_{name}", name, name, 1, 1, 1) for name in ("float32", "float64")]
            return (*ones, *(Atom(f"mma_sync_{name}", name, "float32", 16, 8, 16) for name in ("bfloat16", "float16")))
        vectors = [Atom(f"vector_{name}", name, name, 1, self.vector_bits // bits, 1) for name, bits in (("float32", 32), ("float64", 64))]
        sums = {name: "float32" if "float" in name else "int32" for name in _IN_A_ROW}
        units = [Atom(f"matrix_{name}", name, sums[name], 16, 16, count) for name, count in _IN_A_ROW.items() if name in self.matrix_dtypes]
        dots = [Atom(f"dot_{name}", name, sums[name], 1, 16, count) for name, (count, _) in _DOTS.items() if name in self.dots]
        return (*vectors, *dots, *units)

    def key(self) -> str:
        """Names it in keys of what is kept beyond a compilation, with all that plans and kernels depend on."""
        unit = ",".join([*sorted(self.matrix_dtypes), *sorted(f"dot {name}" for name in self.dots)])
        processor = fingerprint() if self.is_host else f"{self.name}:{self.triple}:{self.cpu}:{self.features}"
        return f"{processor}:{self.vector_bits}:{self.caches}:{unit}:{self.workers}:{self.costs.key()}{'' if self.fused else ':two roundings'}"

    @classmethod
    def host(cls) -> Target:
        """This machine, and the threads that it lends us now."""
        from flambeau.runtime import threads

        return _host(threads.count())

    @classmethod
    def named(cls, name: str, workers: int = 1) -> Target:
        """A machine by name: "host", or one of `NAMED`."""
        if name == "host":
            return replace(cls.host(), workers=workers)
        if name not in NAMED:
            raise ValueError(f"there is no target {name!r}; there are {', '.join(['host', *NAMED])}")
        return replace(NAMED[name], workers=workers)

    @classmethod
    def device(cls, name: str) -> Target:
        """A GPU by name: one of `DEVICES`."""
        if name not in DEVICES:
            raise ValueError(f"there is no device {name!r}; there are {', '.join(DEVICES)}")
        return DEVICES[name]


@cache
def _host(workers: int) -> Target:
    caches = (cache_bytes(1), cache_bytes(2), cache_bytes(3))
    return Target("host", platform.machine(), vector_bits(), caches, matrix=None, dots=dots(), workers=workers, costs=calibrated(fingerprint()))


_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_LINUX: Final = "unknown-linux-gnu"
_WASM: Final = "+simd128,+nontrapping-fptoint"

NAMED: Final = {
    target.name: target
    for target in (
        Target("x86-64-v3", "x86_64", 256, (32 * _KIB, 512 * _KIB, 8 * _MIB), f"x86_64-{_LINUX}", "x86-64-v3"),
        Target("znver4", "x86_64", 512, (32 * _KIB, _MIB, 32 * _MIB), f"x86_64-{_LINUX}", "znver4", dots=frozenset(_DOTS)),
        Target(
            "sapphirerapids", "x86_64", 512, (48 * _KIB, 2 * _MIB, 32 * _MIB), f"x86_64-{_LINUX}", "sapphirerapids",
            matrix=frozenset(("bfloat16", "int8", "uint8", "bool")), dots=frozenset(_DOTS),
        ),
        Target("aarch64-linux", "aarch64", 128, (64 * _KIB, 512 * _KIB, 8 * _MIB), f"aarch64-{_LINUX}", "generic", "+neon"),
        Target("aarch64-android", "aarch64", 128, (64 * _KIB, 512 * _KIB, 4 * _MIB), "aarch64-unknown-linux-android", "generic", "+neon"),
        Target("wasm32", "wasm32", 128, (32 * _KIB, 512 * _KIB, 8 * _MIB), "wasm32-unknown-unknown", "generic", _WASM, fused=False),
        Target("wasm32-relaxed", "wasm32", 128, (32 * _KIB, 512 * _KIB, 8 * _MIB), "wasm32-unknown-unknown", "generic", f"{_WASM},+relaxed-simd", fused=False),
        Target("apple-m1", "arm64", 128, (128 * _KIB, 12 * _MIB, 8 * _MIB), "arm64-apple-macosx11.0.0", "apple-m1"),
    )
}  # fmt: skip

# GPUs, by what NVIDIA calls their compute capability. A thread computes with numbers, not with vectors. The features name the version of PTX.
DEVICES: Final = {
    name: Target(name, "nvptx64", 32, (0, 0, 0), "nvptx64-nvidia-cuda", name, version)
    for name, version in (("sm_80", "+ptx70"), ("sm_90a", "+ptx80"))
}  # fmt: skip
