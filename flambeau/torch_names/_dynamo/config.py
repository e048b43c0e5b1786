"""torch._dynamo.config: settings that a script makes and reads again. None of them changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

verbose = False
suppress_errors = False
disable = False
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
dynamic_shapes = True
assume_static_by_default = True
automatic_dynamic_shapes = True
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
specialize_int = False
specialize_float = False
guard_nn_modules = True
inline_inbuilt_nn_modules = True
optimize_ddp: Any = True
allow_rnn = False
compiled_autograd = False
error_on_recompile = False
fail_on_recompile_limit_hit = False
log_file_name: str | None = None
numpy_default_float = "float64"


@contextmanager
def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
    """Make settings for a block: `patch("name", value)`, `patch({...})` or by keyword."""
    if isinstance(arg1, str):
        changes[arg1] = arg2
    elif arg1 is not None:
        changes.update(arg1)
    scope = globals()
    before = {name: scope[name] for name in changes if name in scope}
    scope.update(changes)
    try:
        yield
    finally:
        for name in changes:
            scope.pop(name, None)
        scope.update(before)
