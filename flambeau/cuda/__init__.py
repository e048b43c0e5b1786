"""`torch.cuda` on a machine without CUDA: questions are answered, settings are accepted, devices are refused."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """False: there is no CUDA device yet."""
    return False


def device_count() -> int:
    """0."""
    return 0


def manual_seed(seed: int) -> None:
    """Accepted: there is no CUDA generator."""


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Accepted: gives nothing back, as there is no CUDA memory."""


def synchronize(device: Any = None) -> None:
    """Accepted: nothing runs on a CUDA device."""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there is no CUDA device."""
    return False


def __getattr__(name: str) -> Any:
    from flambeau.names import missing

    if name == "amp":
        import importlib

        return importlib.import_module("flambeau.cuda.amp")
    if name.startswith("__"):
        raise AttributeError(name)
    raise missing("torch.cuda", name, globals())
