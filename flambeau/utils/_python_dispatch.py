"""torch.utils._python_dispatch: modes below autograd, which are not there: there is no dispatcher. See torch.overrides.TorchFunctionMode."""

from __future__ import annotations

from typing import Any, NoReturn


class TorchDispatchMode:
    """NotImplementedError when the block is entered: torch.overrides.TorchFunctionMode sees the public functions."""

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}: a TorchDispatchMode sees PyTorch's dispatcher, which is not here; torch.overrides.TorchFunctionMode sees the "
            "public functions"
        )

    def __exit__(self, *_: Any) -> None:
        return None


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """False: there are no such subclasses."""
    return False
