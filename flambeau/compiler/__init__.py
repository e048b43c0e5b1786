"""The compiler, in the order of its pipeline: graph, simplify, fuse, lower, place, plan. Knows nothing of Tensor.

PyTorch's `torch.compiler` has this package's name: its functions are in flambeau/compiling.py and found here, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau.upward import upward as _upward

_TORCH_COMPILER = frozenset(
    """allow_in_graph assume_constant_result compile cudagraph_mark_step_begin disable get_default_backend is_compiling is_dynamo_compiling
    is_exporting keep_portable_guards_unsafe keep_tensor_guards_unsafe list_backends load_cache_artifacts load_compiled_function
    nested_compile_region reset save_cache_artifacts set_default_backend set_enable_guard_collectives set_stance skip_all_guards_unsafe
    skip_guard_on_all_nn_modules_unsafe skip_guard_on_globals_unsafe skip_guard_on_inbuilt_nn_modules_unsafe substitute_in_graph
    wrap_numpy""".split()
)


@_upward
def _torch_compiler(name: str) -> Any:
    """What compiling.py has of this name."""
    raise NotImplementedError


def __getattr__(name: str) -> Any:
    if name == "config":  # settings that are kept
        return import_module("flambeau._dynamo.config")
    if name in _TORCH_COMPILER:
        return _torch_compiler(name)
    from flambeau.names import otherwise

    return otherwise("torch.compiler", name, globals())
