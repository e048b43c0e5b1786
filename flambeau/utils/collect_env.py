"""torch.utils.collect_env: the environment as text, for reports of faults, and the single questions that it is made of."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable

from flambeau.upward import upward

Run = Callable[[str], tuple[int, str, str]]


def run(command: str | list[str]) -> tuple[int, str, str]:
    """(exit status, output, error output) of a command, a line for the shell or a list."""
    done = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, errors="replace", check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def run_and_read_all(run_lambda: Run, command: str) -> str | None:
    """What a command prints; None if it fails."""
    status, out, _ = run_lambda(command)
    return None if status else out


def run_and_parse_first_match(run_lambda: Run, command: str, regex: str) -> str | None:
    """The first group of the first match in what a command prints; None if it fails, or nothing matches."""
    out = run_and_read_all(run_lambda, command)
    match = None if out is None else re.search(regex, out)
    return None if match is None else match.group(1)


def run_and_return_first_line(run_lambda: Run, command: str) -> str | None:
    """The first line of what a command prints; None if it fails."""
    out = run_and_read_all(run_lambda, command)
    return None if out is None else out.partition("\n")[0]


def get_gcc_version(run_lambda: Run) -> str | None:
    """The version of gcc; None if there is none."""
    return run_and_parse_first_match(run_lambda, "gcc --version", r"gcc (.*)")


def get_clang_version(run_lambda: Run) -> str | None:
    """The version of clang; None if there is none."""
    return run_and_parse_first_match(run_lambda, "clang --version", r"clang version (.*)")


def get_cmake_version(run_lambda: Run) -> str | None:
    """The version of CMake; None if there is none."""
    return run_and_parse_first_match(run_lambda, "cmake --version", r"cmake (.*)")


def get_cpu_info(run_lambda: Run) -> str | None:
    """What `lscpu` says of the processor, a line "name: value" for each fact; None where there is no such command."""
    return run_and_read_all(run_lambda, "lscpu")


def get_gpu_info(run_lambda: Run) -> str | None:
    """The GPUs that `nvidia-smi` lists; None where there is no such command. flambeau does not use them."""
    found = run_and_read_all(run_lambda, "nvidia-smi -L")
    return None if found is None else re.sub(r" \(UUID: .+?\)", "", found)


def get_nvidia_driver_version(run_lambda: Run) -> str | None:
    """The version of NVIDIA's driver; None if there is none."""
    return run_and_parse_first_match(run_lambda, "nvidia-smi", r"Driver Version: (.*?) ")


def get_running_cuda_version(run_lambda: Run) -> str | None:
    """The version of the CUDA compiler; None if there is none."""
    return run_and_parse_first_match(run_lambda, "nvcc --version", r"release .+ V(.*)")


def get_platform() -> str:
    """ "linux", "win32", "cygwin" or "darwin"."""
    return next((name for name in ("linux", "win32", "cygwin", "darwin") if sys.platform.startswith(name)), sys.platform)


def get_os(run_lambda: Run) -> str:
    """The operating system's name and the machine's kind."""
    name = run_and_parse_first_match(run_lambda, "cat /etc/*-release", r'PRETTY_NAME="(.*)"') or get_platform()
    return f"{name} ({platform.machine()})"


def get_python_platform() -> str:
    """`platform.platform()`."""
    return platform.platform()


def get_libc_version() -> str:
    """The C library's name and version; "N/A" where that is not Linux."""
    return "-".join(platform.libc_ver()) if get_platform() == "linux" else "N/A"


@upward
def command(argv: list[str]) -> object:
    """The command line (cli/main.py)."""
    raise NotImplementedError


def get_pretty_env_info() -> str:
    """What `flambeau info` prints."""
    import contextlib
    import io

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        command(["info"])
    return text.getvalue()


def main() -> None:
    """Print it."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
