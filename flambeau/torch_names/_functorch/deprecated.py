"""torch._functorch.deprecated: functorch's functions, which say where torch.func has them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau._functorch import apis, eager_transforms
from flambeau._functorch import make_functional as older
from flambeau.trace.once import warn_here

NEW = {
    "make_functional": "torch.func.functional_call", "make_functional_with_buffers": "torch.func.functional_call",
    "combine_state_for_ensemble": "torch.func.stack_module_state", "vmap": "torch.vmap",
}  # fmt: skip


def _older(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which warns at each call that it has a newer name."""
    name = function.__name__
    newer = NEW.get(name, f"torch.func.{name}")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warn_here(
            f"We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{name}` is deprecated as of PyTorch 2.0 and "
            f"will be deleted in a future version of PyTorch >= 2.3. Please use `{newer}` instead; see the PyTorch 2.0 release notes and/or the "
            "`torch.func` migration guide for more details https://pytorch.org/docs/main/func.migrating.html", FutureWarning,
        )  # fmt: skip
        return function(*args, **kwargs)

    return call


vmap, grad, grad_and_value = map(_older, (apis.vmap, apis.grad, apis.grad_and_value))
vjp, jvp, jacrev = map(_older, (eager_transforms.vjp, eager_transforms.jvp, eager_transforms.jacrev))
jacfwd, hessian, functionalize = map(_older, (eager_transforms.jacfwd, eager_transforms.hessian, eager_transforms.functionalize))
make_functional, make_functional_with_buffers = map(_older, (older.make_functional, older.make_functional_with_buffers))
combine_state_for_ensemble = _older(older.combine_state_for_ensemble)
