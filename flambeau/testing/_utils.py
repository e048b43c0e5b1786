"""torch.testing._utils: functions that draw random numbers, for tests that compare their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch


@contextmanager
def freeze_rng_state() -> Iterator[None]:
    """The default generator's state is after the block as it was before it."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def wrapper_set_seed(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """op(...), which draws the same numbers each time; whoever draws after it draws as if it had not been called."""
    with freeze_rng_state():
        torch.manual_seed(42)
        return op(*args, **kwargs)
