"""torch.func: transforms of functions: vmap, grad, vjp, jvp, Jacobians, Hessians, modules as functions.

levels (what an active transform is) -> batch (vmap's level), forward (jvp's level), pullback (reverse mode under levels); mapping,
reverse, forward_mode, functional_call and functionalize are the public functions. The rules by primitive are beside the primitives:
ops/primitives/batching.py and ops/primitives/forward.py.
"""

from __future__ import annotations

from typing import Any

from flambeau.lazy_package import keep_lazy_names as _keep_lazy_names

_HOMES = {
    "vmap": "mapping", "grad": "reverse", "grad_and_value": "reverse", "vjp": "reverse", "jacrev": "reverse", "hessian": "forward_mode",
    "jvp": "forward_mode", "jacfwd": "forward_mode", "linearize": "forward_mode", "functional_call": "modules", "stack_module_state": "modules",
    "replace_all_batch_norm_modules_": "modules", "functionalize": "functionalization", "debug_unwrap": "levels", "rearrange": "rearrange",
}  # fmt: skip

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "rearrange",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    from flambeau.documentation import document
    from flambeau.ops.guard import guard

    if name in _HOMES:
        found = getattr(importlib.import_module(f"flambeau.func.{_HOMES[name]}"), name)
        globals()[name] = found
        guard("func", {name: found})
        document("torch.func", {name: found})
        return found
    if name.startswith("__"):
        raise AttributeError(name)
    from flambeau.names import otherwise

    return otherwise("torch.func", name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)


_keep_lazy_names(__name__)
