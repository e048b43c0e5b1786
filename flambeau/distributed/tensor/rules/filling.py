"""Tensors made like others, and random numbers: parts have numbers of their own, the whole on every process the same."""

from __future__ import annotations

from typing import Any, Final

import flambeau
from flambeau.distributed.tensor.api import DTensor, inner, made
from flambeau.distributed.tensor.placement_types import Replicate, Shard
from flambeau.distributed.tensor.spec import Spec
from flambeau.ops.dispatch import DisableTorchFunctionSubclass


def seeded(spec: Spec) -> Any:
    """A generator for this process's part: equal on processes that have the same part, where the default generators are at the same place."""
    base = int(flambeau.randint(0, 1 << 62, ()).item())
    place = 0
    for d, p in enumerate(spec.placements):
        if isinstance(p, Shard):
            place = place * spec.mesh.shape[d] + spec.mesh.get_local_rank(d)
    return flambeau.Generator().manual_seed((base + place * 0x9E3779B97F4A7C15) % (1 << 63))


def _like(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return made(func(inner(x), *args, **kwargs), x._layout.gradient())


def _random_like(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    result = flambeau.empty_like(inner(x), **{k: v for k, v in kwargs.items() if k in ("dtype",)})
    generator = seeded(x._layout)
    if "randint" in func.__name__:
        low, high = (0, args[0]) if len(args) == 1 else args[:2]
        result.random_(low, high, generator=generator)
    else:
        (result.normal_ if "randn" in func.__name__ else result.uniform_)(generator=generator)
    found = made(result, x._layout.gradient())
    return found.requires_grad_() if kwargs.get("requires_grad") else found


def _fill_randomly(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("generator", None)
    func(inner(x), *args, generator=seeded(x._layout), **kwargs)
    return x


def _new(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    result = func(inner(x), *args, **kwargs)
    shape = tuple(result.shape)
    spec = x._layout.gradient() if shape == x._layout.shape else Spec(x._layout.mesh, (Replicate(),) * x._layout.mesh.ndim, shape)
    if shape == x._layout.shape:
        sizes = spec.local_shape()
        result = func(inner(x), sizes, *args[1:], **kwargs) if isinstance(args[0], (tuple, list)) else func(inner(x), *sizes, **kwargs)
    return made(result, spec)


def detach(func: Any, x: Any) -> Any:
    """The same memory without history."""
    return made(inner(x).detach(), x._layout)


def _same(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    with DisableTorchFunctionSubclass():
        func(x, *args, **kwargs)
    return x


def _compare(func: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*[t.full_tensor() if isinstance(t, DTensor) else t for t in (x, y)], *args, **kwargs)


def _updated(func: Any, *lists: Any) -> Any:
    """An optimizer's step, which is of each element: on the parts. New states lie as their parameters do."""
    params = lists[0]
    parts = [[inner(_as(t, p)) for t, p in zip(a, params, strict=True)] if isinstance(a, (list, tuple)) and len(a) == len(params) else a for a in lists]
    new = func(*parts)
    return [made(t, p._layout) if isinstance(p, DTensor) and t.ndim else t for t, p in zip(new, list(params) * (len(new) // len(params)), strict=True)]


def _as(t: Any, p: Any) -> Any:
    if isinstance(t, DTensor) and isinstance(p, DTensor) and t._layout.placements != p._layout.placements:
        return t.redistribute(placements=p._layout.placements)
    return t


def _scaled(func: Any, tensors: Any, total: Any, bound: Any) -> Any:
    """Gradients scaled by their total norm (nn.utils.clip_grads_with_norm_)."""
    if isinstance(total, DTensor):
        total = total.full_tensor()
    return _each(tensors, func([inner(t) for t in tensors], total, bound))


def _clamped(func: Any, tensors: Any, bound: Any) -> Any:
    return _each(tensors, func([inner(t) for t in tensors], bound))


def _each(tensors: Any, new: Any) -> Any:
    return tuple([made(n, t._layout) if isinstance(t, DTensor) else n for n, t in zip(new, tensors, strict=True)])


def _gradients(func: Any, outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """autograd.grad: gradients lie as the inputs do."""
    given = inputs if isinstance(inputs, (tuple, list)) else [inputs]
    results = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    seeds = grad_outputs if isinstance(grad_outputs, (tuple, list)) or grad_outputs is None else [grad_outputs]
    if seeds is not None:
        seeds = [
            inner(s.redistribute(placements=r._layout.gradient().placements)) if isinstance(s, DTensor) else s for s, r in zip(seeds, results, strict=True)
        ]
    with DisableTorchFunctionSubclass():
        found = func(results, given, seeds, *args, **kwargs)
    return tuple([made(g, x._layout.gradient()) if isinstance(x, DTensor) and g is not None else g for g, x in zip(found, given, strict=True)])


DIRECT: Final[dict[str, Any]] = {
    **dict.fromkeys(("zeros_like", "ones_like", "empty_like", "full_like"), _like), **dict.fromkeys(("rand_like", "randn_like", "randint_like"), _random_like),
    **dict.fromkeys("normal_ uniform_ random_ bernoulli_ exponential_ log_normal_ cauchy_ geometric_".split(), _fill_randomly),
    **dict.fromkeys("new_zeros new_ones new_empty new_full".split(), _new), "detach": detach, "requires_grad_": _same, "detach_": _same,
    **dict.fromkeys(("equal", "allclose"), _compare), "grad": _gradients, "scaled": _scaled, "clamped": _clamped,
    **dict.fromkeys([f"{name}_update" for name in "adam sgd rmsprop adagrad adadelta rprop asgd adamax nadam radam".split()], _updated),
}  # fmt: skip
