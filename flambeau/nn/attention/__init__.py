"""torch.nn.attention: the choice of a kernel for scaled_dot_product_attention. There is one, so the choice is accepted and
has no effect. Biases are in `bias`, attention with functions of scores in `flex_attention`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from flambeau.trace.once import warn_here

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """PyTorch's names of kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_chosen = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.OVERRIDEABLE]


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accepts a backend or a list of them; the results do not depend on it."""
    global _chosen
    listed = list(backends) if isinstance(backends, (list, tuple)) else [backends]
    for backend in listed:
        if not isinstance(backend, SDPBackend):
            raise AssertionError(f"Backend must be an instance of SDPBackend, got {backend!r}")
    before, _chosen = _chosen, [b for b in _chosen if b in listed] if not set_priority else list(dict.fromkeys(listed))
    try:
        yield
    finally:
        _chosen = before


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """What the innermost sdpa_kernel allows."""
    return list(_chosen)


# -- implementations of "flash attention" that libraries bring along -----------------------------------------------------
_implementations: dict[str, Callable[..., Any]] = {}
_active: tuple[str, Any] | None = None


def register_flash_attention_impl(impl: str, *, register_fn: Callable[..., Any]) -> None:
    """Note a function that installs an implementation; activate_flash_attention_impl calls it."""
    _implementations[impl] = register_fn


def activate_flash_attention_impl(impl: str) -> None:
    """Call the function that was registered under this name. It cannot replace flambeau's kernel, which PyTorch's dispatcher knows nothing of."""
    global _active
    if _active is not None:
        restore_flash_attention_impl()
    if impl not in _implementations:
        raise ValueError(f"Unknown flash attention impl '{impl}'. Available implementations: {list_flash_attention_impls()}")
    handle = _implementations[impl]()
    if handle is not None:
        _active = (impl, handle)


def list_flash_attention_impls() -> list[str]:
    """The names that were registered: none unless a library did so."""
    return sorted(_implementations)


def current_flash_attention_impl() -> str | None:
    """The name of the active implementation; None for the built-in one."""
    return None if _active is None else _active[0]


def restore_flash_attention_impl() -> None:
    """Take the active implementation out again."""
    global _active
    if _active is None:
        warn_here("Trying to restore default FA2 impl when no custom impl was activated")
    else:
        _active[1].remove()
    _active = None


def __getattr__(name: str) -> Any:
    if name in ("bias", "flex_attention"):
        from importlib import import_module

        return import_module(f"flambeau.nn.attention.{name}")
    from flambeau.names import otherwise

    return otherwise("torch.nn.attention", name, globals())
