"""From an object file to a library: the system's linker for this machine's own kind, the package `ziglang` (flambeau[deploy]) for all."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flambeau.deploy.errors import BuildError
from flambeau.runtime.target import Target

# Zig's names of systems, by what LLVM's triples contain.
_SYSTEMS: Final = {"linux-gnu": "linux-gnu", "linux-android": "linux-android", "apple-macosx": "macos"}


def _zig() -> list[str]:
    """The command that calls Zig, or nothing."""
    return [sys.executable, "-m", "ziglang"] if importlib.util.find_spec("ziglang") else []


def _need_zig(target: Target) -> list[str]:
    found = _zig()
    if not found:
        raise BuildError(f"to link for {target.name}, this machine's own linker does not do: pip install 'flambeau[deploy]', which brings ziglang")
    return found


def _is_native(target: Target) -> bool:
    """Whether this system's linker makes programs for the target."""
    return platform.system() == "Linux" and target.architecture == platform.machine() and ("linux-gnu" in target.triple or target.is_host)


def check(target: Target) -> None:
    """BuildError if there is no linker for the target here: it is better told before the plans are made."""
    if target.architecture == "wasm32" and shutil.which("wasm-ld"):
        return
    if not (_is_native(target) and _compiler() and shutil.which("ar")):
        _need_zig(target)


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def suffix(target: Target) -> str:
    """What the names of shared libraries end with."""
    return ".dylib" if "apple" in target.triple else ".so"


def zig_target(target: Target) -> str:
    """Zig's name of a target's architecture and system."""
    system = next((z for part, z in _SYSTEMS.items() if part in target.triple), "linux-gnu")
    architecture = "aarch64" if target.architecture == "arm64" else target.architecture
    return f"{architecture}-{system}"


def shared(object_file: Path, out: Path, target: Target) -> None:
    """Link one object file to a shared library. It takes malloc, free and perhaps syscall from whoever loads it, and nothing else."""
    compiler = _compiler() if _is_native(target) else None
    if compiler is not None:
        command = [compiler, "-shared", "-nostdlib", "-Wl,-soname," + out.name.removeprefix("."), "-Wl,-z,noexecstack", "-Wl,--build-id=none", "-s"]
    elif "apple" in target.triple:
        command = [*_need_zig(target), "cc", "-target", zig_target(target), "-shared", "-s"]
    else:
        command = [*_need_zig(target), "cc", "-target", zig_target(target), "-shared", "-nostdlib", "-s"]
    _run([*command, "-o", str(out), str(object_file)], "link")


def archive(object_file: Path, out: Path, target: Target) -> None:
    """Put one object file into a static library."""
    tool = shutil.which("ar") if _is_native(target) else None
    command = [tool] if tool is not None else [*_need_zig(target), "ar"]
    out.unlink(missing_ok=True)
    _run([*command, "rcs", str(out), str(object_file)], "make the static library")


def wasm(object_file: Path, out: Path, exported: Sequence[str], target: Target, stack_bytes: int) -> None:
    """Link one object file to a WebAssembly module that exports these functions and its memory."""
    tool = shutil.which("wasm-ld")
    command = [tool] if tool is not None else [*_need_zig(target), "wasm-ld"]
    exports = [f"--export={name}" for name in exported]
    _run([*command, "--no-entry", "--strip-all", "--gc-sections", "-z", f"stack-size={stack_bytes}", "--stack-first", "--export=__heap_base", *exports,
          "-o", str(out), str(object_file)], "link")  # fmt: skip


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"cannot {what}: {' '.join(command[:4])} ... says\n{(done.stderr or done.stdout).strip()[:2000]}")
