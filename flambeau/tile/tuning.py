"""Choosing among configurations: `autotune` (measured once, stored), `heuristics`, `Config`."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.tensor import Tensor
from flambeau.tile.functions import IGNORED, JITFunction

_MOST: Final = 12  # configurations that are measured; more differ by what says something to a GPU only
_SECONDS: Final = 0.05  # of measurement a configuration


class Config:
    """Values for constexpr parameters. What says how a GPU shall run a kernel is kept, and changes nothing here."""

    def __init__(
        self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1, maxnreg: int | None = None,
        pre_hook: Callable[..., Any] | None = None, ir_override: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas = dict(kwargs), num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook = maxnreg, pre_hook

    def all_kwargs(self) -> dict[str, Any]:
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}: {v}' for k, v in self.kwargs.items())})"


class Autotuner:
    """A kernel whose configuration is the fastest of a list, for each value of the key's arguments.

    Arguments are in Triton's order, as packages derive classes from it. `keys`, `configs_top_k` and kin are those that they read.
    """

    def __init__(
        self, fn: Any, arg_names: Sequence[str], configs: Sequence[Config], key: Sequence[str], reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None, pre_hook: Any = None, post_hook: Any = None, prune_configs_by: dict[str, Any] | None = None,
        warmup: Any = None, rep: Any = None, use_cuda_graph: bool = False, do_bench: Any = None, cache_results: bool = False,
    ) -> None:  # fmt: skip
        self.fn, self.key = fn, list(key)
        self.keys, self.cache_results = self.key, cache_results
        self.configs = list(configs) or [Config({})]
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.restore_copies: dict[str, Tensor] = {}
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook: Callable[..., Any] = pre_hook or self._prepare
        self.post_hook: Callable[..., Any] = post_hook or self._restore
        pruning = prune_configs_by or {}
        self.early_config_prune, self.perf_model, self.configs_top_k = (pruning.get(k) for k in ("early_config_prune", "perf_model", "top_k"))
        self.arg_names: list[str] = list(arg_names)
        self.cache: dict[Any, Config] = {}
        self.best_config: Config | None = None
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    @property
    def base_fn(self) -> Any:
        return getattr(self.fn, "base_fn", self.fn)

    def _prepare(self, named: dict[str, Any], reset_only: bool = False) -> None:
        """Before a launch that is measured: zeros where they are asked for, copies of what the kernel writes over."""
        for n in self.reset_to_zero:
            if named[n] is not None:
                named[n].zero_()
        if not reset_only:
            self.restore_copies = {n: named[n].clone() for n in self.restore_value if isinstance(named.get(n), Tensor)}

    def _restore(self, named: dict[str, Any], exception: Any = None) -> None:
        """After it: what was written over is as it was."""
        for n, copy in self.restore_copies.items():
            named[n].copy_(copy)
        self.restore_copies = {}

    def _distinct(self, named: dict[str, Any]) -> list[Config]:
        """The configurations that differ here, pruned as the user says."""
        configs = self.configs
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, named, **{k: v for k, v in named.items() if k not in ("configs", "named_args")})) or configs
        found: dict[str, Config] = {}
        for c in configs:
            found.setdefault(repr(c), c)
        return list(found.values())[:_MOST]

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch with the best configuration; measure first, if this key is new."""
        named = {**dict(zip(self.arg_names, args, strict=False)), **{k: v for k, v in kwargs.items() if k not in IGNORED or k in self.arg_names}}
        key = tuple([named.get(k) for k in self.key] + [str(v.dtype) for v in named.values() if isinstance(v, Tensor)])
        best = self.cache.get(key)
        if best is None:
            configs = self._distinct(named)
            best = configs[0] if len(configs) == 1 else self._chosen(configs, key, named, args, kwargs, grid)
            self.cache[key] = best
        self.best_config = best
        return self._launch(best, named, args, kwargs, grid)

    def _launch(self, config: Config, named: dict[str, Any], args: Any, kwargs: dict[str, Any], grid: Any) -> Any:
        if config.pre_hook is not None:
            config.pre_hook({**named, **config.kwargs})
        return self.fn.run(*args, grid=grid, **{**kwargs, **config.kwargs})

    def _chosen(self, configs: list[Config], key: Any, named: dict[str, Any], args: Any, kwargs: dict[str, Any], grid: Any) -> Config:
        """The fastest, as it was found before (beside the object cache) or by measuring now."""
        from flambeau.runtime import object_cache, target, threads

        source = getattr(self.base_fn, "src", self.__name__)
        text = json.dumps([source, list(map(repr, configs)), repr(key), target.fingerprint(), threads.count()])
        name = f"tile:autotune:{hashlib.sha256(text.encode()).hexdigest()}"
        stored = object_cache.load(name)
        if stored is not None and stored.decode() in map(repr, configs):
            return next(c for c in configs if repr(c) == stored.decode())
        best = min(configs, key=lambda c: self._seconds(c, named, args, kwargs, grid))
        self.pre_hook(named, reset_only=True)
        object_cache.store(name, repr(best).encode())
        return best

    def _seconds(self, config: Config, named: dict[str, Any], args: Any, kwargs: dict[str, Any], grid: Any) -> float:
        """The best of some launches; infinite where the configuration has no meaning."""
        from flambeau.tile.errors import CompilationError

        best, until = float("inf"), 0.0
        try:
            while until == 0.0 or time.perf_counter() < until:
                self.pre_hook(named, reset_only=False)
                start = time.perf_counter()
                self._launch(config, named, args, kwargs, grid)
                now = time.perf_counter()
                self.post_hook(named, exception=None)
                if until:  # not the first, which compiles
                    best = min(best, now - start)
                until = until or now + _SECONDS
        except CompilationError as error:
            self.post_hook(named, exception=error)
            return float("inf")
        return best if best < float("inf") else now - start


def autotune(configs: Sequence[Config], key: Sequence[str], **options: Any) -> Callable[[Any], Autotuner]:
    """A decorator: the kernel with the fastest of some configurations, found for each value of the `key` arguments and stored."""
    return lambda fn: Autotuner(fn, fn.arg_names, configs, key, **options)


class Heuristics:
    """A kernel some of whose constexpr parameters are computed from the other arguments."""

    def __init__(self, fn: Any, arg_names: Sequence[str], values: dict[str, Callable[[dict[str, Any]], Any]]) -> None:
        self.fn, self.values = fn, values
        self.arg_names: list[str] = list(arg_names)
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__

    @property
    def base_fn(self) -> JITFunction:
        return getattr(self.fn, "base_fn", self.fn)  # type: ignore[no-any-return]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch."""
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        for name, value in self.values.items():
            kwargs[name] = named[name] = value(named)
        return self.fn.run(*args, grid=grid, **kwargs)


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """A decorator: constexpr parameters by functions of the arguments."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
