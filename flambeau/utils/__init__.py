"""torch.utils."""

from typing import Any

_MODULES = frozenset(
    "_pytree _python_dispatch deterministic backend_registration benchmark checkpoint collect_env cpp_extension data dlpack hooks model_zoo tensorboard".split()
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"flambeau.utils.{name}")
    if name in ("rename_privateuse1_backend", "generate_methods_for_privateuse1_backend", "set_module", "swap_tensors"):
        from flambeau.utils import backend_registration

        return getattr(backend_registration, name)
    from flambeau.names import otherwise

    return otherwise("torch.utils", name, globals())
