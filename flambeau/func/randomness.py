"""Random functions under a vmap. A draw happens at the call (ops/random.py), so "different" is one draw for all samples, of the shape
that PyTorch draws, and gives PyTorch's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.func.batch import aligned_below, refuse_random, wrap
from flambeau.ops.shape import sizes_of
from flambeau.tensor import Tensor

if TYPE_CHECKING:
    from flambeau.func.batch import VmapLevel

_FACTORIES = frozenset(("rand", "randn", "randint", "randperm"))


def draw(level: VmapLevel, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a random function where `level` is the innermost transform."""
    if level.randomness == "error":
        refuse_random()
    name = function.__name__
    if name == "rrelu_slopes":
        raise RuntimeError("vmap: we do not yet support aten::rrelu: how many numbers it draws depends on values")
    batched = any(level.mine(a) for a in (*args, *kwargs.values()))
    if name.endswith("_"):
        return _in_place(level, function, args, kwargs)
    if level.randomness == "same":
        return _same(level, function, args, kwargs, batched)
    if name == "_draw":  # a mask of dropout: (shape, probability, strides, generator)
        shape, probability, _, generator = args
        return wrap(level, level.call_below(function, (level.size, *shape), probability, None, generator))
    if name in _FACTORIES or (name == "normal" and (len(args) > 2 or "size" in kwargs)):
        return _factory(level, function, args, kwargs)
    ndim = max([a.ndim for a in args if isinstance(a, Tensor)], default=0)

    def below() -> Any:
        given = [aligned_below(level.batched(a), ndim) if isinstance(a, Tensor) else a for a in args]
        if name == "multinomial" and ndim == 2:
            rows = given[0].shape[1]
            drawn = function(given[0].reshape(-1, given[0].shape[-1]), *given[1:], **kwargs)
            return drawn.reshape(level.size, rows, -1)
        return function(*given, **kwargs)

    return wrap(level, level.call_below(below))


def _in_place(level: VmapLevel, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, *rest = args
    others = [a for a in (*rest, *kwargs.values()) if isinstance(a, Tensor)]
    if level.randomness == "same":
        if any(level.mine(a) for a in others):
            raise RuntimeError("Vmap does not currently support same randomness with a batched tensor input")
        if not level.mine(target):
            level.call_below(function, *args, **kwargs)
            return target
        from flambeau.ops.creation import empty

        drawn = level.call_below(lambda: function(empty(tuple(target.shape), dtype=target.dtype), *rest, **kwargs))
        return target.copy_(drawn)
    if not level.mine(target):
        raise RuntimeError(
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. If this is "
            "necessary for your usage, please file an issue with functorch."
        )

    def below() -> None:
        given = [aligned_below(a._inner, target.ndim) if level.mine(a) else a for a in rest]
        function(target._inner, *given, **kwargs)

    level.call_below(below)
    return target


def _same(level: VmapLevel, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], batched: bool) -> Any:
    if not batched:
        return level.call_below(function, *args, **kwargs)
    if function.__name__.endswith("_like"):
        from flambeau.ops.creation import empty

        shape, d = tuple(args[0].shape), args[0].dtype
        return level.call_below(lambda: function(empty(shape, dtype=d), *args[1:], **kwargs))
    raise RuntimeError("Vmap does not currently support same randomness with a batched tensor input")


def _factory(level: VmapLevel, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = function.__name__
    if name == "randperm":
        from flambeau.ops.concatenated import stack

        return wrap(level, level.call_below(lambda: stack([function(*args, **kwargs) for _ in range(level.size)])))
    numbers: tuple[Any, ...] = ()
    options = dict(kwargs)
    if "size" in options:
        size, numbers = options.pop("size"), args
    elif name in ("randint", "normal"):
        *numbers, size = args  # type: ignore[assignment]
    else:
        size = args
    shape = (level.size, *sizes_of((size,) if isinstance(size, int) else tuple(size)))
    if name in ("rand", "randn"):
        return wrap(level, level.call_below(function, shape, **options))
    return wrap(level, level.call_below(function, *numbers, shape, **options))
