"""torch.distributed.rpc.api: the names of torch.distributed.rpc, and the decorator of functions that need it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NoReturn

from flambeau.distributed import rpc as _rpc

_NAMES: Final = frozenset("RRef get_worker_info remote rpc_async rpc_sync shutdown".split())


def _require_initialized(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: what needs `init_rpc` raises a RuntimeError when it is called, for there is none."""

    @functools.wraps(func)
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")

    return refuse


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(_rpc, name)
    from flambeau.names import otherwise

    return otherwise("torch.distributed.rpc.api", name, globals())
