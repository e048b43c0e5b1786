"""Random numbers: flambeau's generator, of an attribute's seed where there is one."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.onnx.importing.registry import Call, operator


def _generator(n: Call) -> Any:
    """The node's own generator if it has a seed: each run goes on with it."""
    if "seed" not in n.attributes:
        return None
    if "generator" not in n.kept:
        n.kept["generator"] = flambeau.Generator().manual_seed(int(n.get("seed")))
    return n.kept["generator"]


def _uniform(n: Call, shape: Any, kind: Any) -> Any:
    low, high = n.get("low", 0.0), n.get("high", 1.0)
    return (flambeau.rand(shape, generator=_generator(n)) * (high - low) + low).to(kind)


def _normal(n: Call, shape: Any, kind: Any) -> Any:
    return (flambeau.randn(shape, generator=_generator(n)) * n.get("scale", 1.0) + n.get("mean", 0.0)).to(kind)


@operator("RandomUniform")
def random_uniform(n: Call) -> Any:
    """Uniform numbers of a shape."""
    return _uniform(n, n.get("shape"), n.dtype("dtype", 1))


@operator("RandomUniformLike")
def random_uniform_like(n: Call, x: Any) -> Any:
    """Uniform numbers of another tensor's shape."""
    return _uniform(n, x.shape, n.dtype("dtype") or x.dtype)


@operator("RandomNormal")
def random_normal(n: Call) -> Any:
    """Normal numbers of a shape."""
    return _normal(n, n.get("shape"), n.dtype("dtype", 1))


@operator("RandomNormalLike")
def random_normal_like(n: Call, x: Any) -> Any:
    """Normal numbers of another tensor's shape."""
    return _normal(n, x.shape, n.dtype("dtype") or x.dtype)


@operator("Bernoulli")
def bernoulli(n: Call, x: Any) -> Any:
    """1 with the probability that x says."""
    kind = n.dtype("dtype") or x.dtype
    return (flambeau.rand(x.shape, generator=_generator(n)) < x.to(flambeau.float32)).to(kind)


@operator("Multinomial")
def multinomial(n: Call, x: Any) -> Any:
    """Classes drawn by the logarithms of their probabilities."""
    drawn = flambeau.multinomial(flambeau.softmax(x, 1), n.get("sample_size", 1), replacement=True, generator=_generator(n))
    return drawn.to(n.dtype("dtype", 6))
