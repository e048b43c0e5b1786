"""torch.compile and torch.compiler.

Every function is compiled as it runs, so `compile` has nothing to add: of a function it returns the function, of a module an
OptimizedModule, whose state_dict has PyTorch's keys ("_orig_mod.weight"). A backend that is a function gets a torch.fx graph, as in
PyTorch, and what it returns is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from flambeau._ops import watch
from flambeau.nn.modules.module import Module

_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_BACKENDS = (
    "aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner", "aot_ts", "cudagraphs", "eager", "eager_debug", "eager_noexcept",
    "inductor", "onnxrt", "openxla", "openxla_eval", "pre_dispatch_eager", "ts", "tvm",
)  # fmt: skip
_registered: dict[str, Callable[..., Any]] = {}
_default: list[Any] = ["inductor"]


class InvalidBackend(RuntimeError):
    """A backend that nobody has registered."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available backends.")


class OptimizedModule(Module):
    """What torch.compile makes of a module: calls `_orig_mod`, and has its attributes."""

    def __init__(self, mod: Module, call: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self._orig_mod = mod
        self.__dict__["_call"] = call
        self.__dict__["training"] = mod.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = self.__dict__["_call"]
        return self._orig_mod(*args, **kwargs) if call is None else call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_orig_mod":
            super().__setattr__(name, value)
        elif name == "training" or name in self.__dict__:
            self.__dict__[name] = value
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __getitem__(self, index: Any) -> Any:
        return self._orig_mod[index]  # type: ignore[index]

    def __reduce__(self) -> Any:
        return OptimizedModule, (self._orig_mod, self.__dict__["_call"])


def compile(
    model: Callable[..., Any] | None = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str | Callable[..., Any] | None = None,
    mode: str | None = None, options: dict[str, Any] | None = None, name: str | None = None, disable: bool = False,
    recompile_limit: int | None = None, isolate_recompiles: bool = False, shapes_spec: Any = None,
) -> Any:  # fmt: skip
    """The function itself, or an OptimizedModule over a module: everything is compiled as it runs, whatever the arguments say.

    Without a model, a decorator. RuntimeError for an unknown mode or backend, or for mode and options together.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    backend = _default[0] if backend is None else backend
    if isinstance(backend, str):
        if backend not in _BACKENDS and backend not in _registered:
            raise InvalidBackend(backend)
        call = _registered.get(backend)
    elif callable(backend):
        call = backend
    else:
        raise TypeError(f"torch.compile: backend is a name or a function, not {type(backend).__name__}")
    if model is None:
        return lambda m: compile(m, backend=backend, disable=disable)
    if not callable(model):
        raise RuntimeError(f"torch.compile: expected a callable, not {type(model).__name__}")
    if disable or isinstance(model, OptimizedModule):
        return model
    run = None if call is None else _by_backend(model, call)
    if isinstance(model, Module):
        return OptimizedModule(model, run)
    return model if run is None else run


def _by_backend(model: Callable[..., Any], backend: Callable[..., Any]) -> Callable[..., Any]:
    """The model through a backend of the user's: at the first call it gets a GraphModule and the tensors of that call."""
    made: list[Callable[..., Any]] = []

    @functools.wraps(model.forward if isinstance(model, Module) else model)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not made:
            from flambeau.fx import symbolic_trace

            made.append(backend(symbolic_trace(model), list(args)))
        return made[0](*args, **kwargs)

    return run


# -- torch.compiler -------------------------------------------------------------------------------------------------------
class _Passing(AbstractContextManager[None]):
    """A block that changes nothing, and a decorator that returns its function."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        return fn

    def __exit__(self, *_: Any) -> None:
        return None


class set_stance(_Passing):
    """Accepted: nothing is compiled ahead of time that a stance could keep from it."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: str | Callable[..., Any] | None = None) -> None:
        known = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile")
        if stance not in known:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}; one of {', '.join(known)}")


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    """The function itself, or a decorator that returns it."""
    return fn if fn is not None else (lambda f: f)


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself."""
    return fn


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False, is_embedded_type: bool = False
) -> Any:
    """A decorator that returns its function: programs run as they are written."""
    return lambda f: f


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays as one of tensors."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        import numpy

        from flambeau.ops.from_memory import from_numpy
        from flambeau.tensor import Tensor
        from flambeau.utils._pytree import tree_map

        arrays = tree_map(lambda t: t.numpy() if isinstance(t, Tensor) else t, (args, kwargs))
        return tree_map(lambda a: from_numpy(a) if isinstance(a, numpy.ndarray) else a, fn(*arrays[0], **arrays[1]))

    return wrapped


def nested_compile_region(fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None) -> Any:
    """The function itself, or a decorator that returns it."""
    return fn if fn is not None else (lambda f: f)


def reset() -> None:
    """Accepted: there are no caches of guarded code. `flambeau cache clear` empties the cache of kernels."""


def cudagraph_mark_step_begin() -> None:
    """Accepted."""


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Accepted; what it was: False."""
    return False


def is_compiling() -> bool:
    """Whether a program is being exported (torch.export, torch.onnx.export), where values are not known. Else False: what is compiled runs."""
    return watch.record is not None


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """Whether a program is being exported."""
    return watch.record is not None


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `backend=` accepts: PyTorch's, all of them the same here, and the registered ones."""
    usual = ("cudagraphs", "inductor", "openxla", "tvm") if exclude_tags else _BACKENDS
    return sorted((*usual, *_registered))


def register_backend(compiler_fn: Callable[..., Any] | None = None, name: str | None = None, tags: Any = ()) -> Any:
    """Give a function of (GraphModule, example inputs) a name for `backend=`."""
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, tags)
    _registered[name or compiler_fn.__name__] = compiler_fn
    return compiler_fn


def lookup_backend(compiler_fn: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function of a backend's name."""
    if callable(compiler_fn):
        return compiler_fn
    if compiler_fn in _registered:
        return _registered[compiler_fn]
    if compiler_fn in _BACKENDS:
        return lambda gm, example_inputs: gm.forward
    raise InvalidBackend(compiler_fn)


def get_default_backend() -> str | Callable[..., Any]:
    """What set_default_backend said; "inductor" before."""
    return _default[0]  # type: ignore[no-any-return]


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """Accepted and remembered."""
    _default[0] = "inductor" if backend is None else backend


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """None: compiled kernels are in flambeau's own cache on disk."""
    return None


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """None: compiled kernels are in flambeau's own cache on disk."""
    return None


def load_compiled_function(file: Any, *, f_globals: Any = None, external_data: Any = None) -> Any:
    """RuntimeError: functions are not saved compiled; their kernels are in the cache on disk."""
    raise RuntimeError("torch.compiler.load_compiled_function: functions are not saved compiled; their kernels are in flambeau's cache on disk")


def _all_guards(guard_entries: Any) -> list[bool]:
    """There are no guards to drop."""
    return [True for _ in guard_entries]


keep_portable_guards_unsafe = skip_guard_on_inbuilt_nn_modules_unsafe = skip_guard_on_all_nn_modules_unsafe = _all_guards
skip_guard_on_globals_unsafe = skip_all_guards_unsafe = _all_guards


def keep_tensor_guards_unsafe(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """There are no guards to drop."""
    return _all_guards(guard_entries)


__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "get_default_backend", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "list_backends", "load_cache_artifacts",
    "load_compiled_function", "nested_compile_region", "reset", "save_cache_artifacts", "set_default_backend", "set_enable_guard_collectives",
    "set_stance", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip


def named(name: str) -> Any:
    """A function of this module, which `torch.compiler` hands out."""
    return globals()[name]
