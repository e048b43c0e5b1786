"""torch.random: the default generator, and blocks that leave its state as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.ops.dropout_masks import dropout_stream
from flambeau.ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from flambeau.trace.once import warn_here

__all__ = ["default_generator", "dropout_stream", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state", "thread_safe_generator"]


@contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:  # fmt: skip
    """A block after which the generator's state is what it was before. `devices` beside the CPU must be none."""
    if not enabled:
        yield
        return
    if devices is not None:
        listed = list(devices)
        if listed:
            raise RuntimeError(f"{_caller}: {_devices_kw}={listed}: there is no {device_type or 'cuda'} device; the CPU's state is always kept")
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def thread_safe_generator() -> Generator | None:
    """The generator of a DataLoader's worker thread; None outside of one."""
    return None


def _seed_custom_device(seed: int) -> None:
    """There is no custom device."""
    warn_here("Set seed for a custom device does not take effect: there is none")


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("random", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.random", globals())
