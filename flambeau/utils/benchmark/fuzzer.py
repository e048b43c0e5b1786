"""Random tensors for benchmarks: sizes from distributions, memory layouts by chance, the same ones for the same seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as torch


class FuzzedParameter:
    """A number: "uniform" or "loguniform" between minval and maxval, or {value: probability}."""

    def __init__(
        self, name: str, minval: float | None = None, maxval: float | None = None, distribution: str | dict[Any, float] | None = None, strict: bool = False
    ) -> None:
        self._name, self._minval, self._maxval, self.strict = name, minval, maxval, strict
        if not isinstance(distribution, dict) and distribution not in ("uniform", "loguniform"):
            raise ValueError(f"FuzzedParameter {name!r}: distribution is 'uniform', 'loguniform' or a dict, not {distribution!r}")
        if not isinstance(distribution, dict) and (minval is None or maxval is None):
            raise ValueError(f"FuzzedParameter {name!r}: minval and maxval are needed for a {distribution} distribution")
        self._distribution: Any = distribution

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self._name

    def sample(self, state: random.Random) -> Any:
        """One value."""
        if isinstance(self._distribution, dict):
            (value,) = state.choices(list(self._distribution), list(self._distribution.values()))
            return value
        low, high = self._minval, self._maxval
        assert low is not None and high is not None
        if self._distribution == "loguniform":
            value = 2 ** state.uniform(math.log2(low), math.log2(high))
            return max(low, min(high, round(value) if isinstance(low, int) and isinstance(high, int) else value))
        return state.randint(low, high) if isinstance(low, int) and isinstance(high, int) else state.uniform(low, high)


class ParameterAlias:
    """A value of a parameter's distribution that is another parameter's."""

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


class FuzzedTensor:
    """A tensor whose sizes (and steps) are numbers or parameters' names; with `probability_contiguous` it is, else its dims are permuted."""

    def __init__(
        self, name: str, size: tuple[str | int, ...], steps: tuple[str | int, ...] | None = None, probability_contiguous: float = 0.5,
        min_elements: int | None = None, max_elements: int | None = None, max_allocation_bytes: int | None = None,
        dim_parameter: str | None = None, roll_parameter: str | None = None, dtype: Any = torch.float32, cuda: bool = False,
        tensor_constructor: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        if cuda:
            raise AssertionError("FuzzedTensor: Torch not compiled with CUDA enabled")
        self._name, self._size, self._steps, self._contiguous = name, size, steps, probability_contiguous
        self._min, self._max, self._bytes = min_elements, max_elements, max_allocation_bytes
        self._dim, self._roll, self._dtype = dim_parameter, roll_parameter, dtype
        self._constructor = tensor_constructor or self.default_tensor_constructor

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self._name

    @staticmethod
    def default_tensor_constructor(size: tuple[int, ...], dtype: Any, **kwargs: Any) -> Any:
        """Normal numbers, or integers below 127."""
        if dtype.is_floating_point or dtype.is_complex:
            return torch.rand(size=size, dtype=dtype, device="cpu")
        return torch.randint(1, 127, size=size, dtype=dtype, device="cpu")

    def _sizes(self, params: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        dim = len(self._size) if self._dim is None else params[self._dim]

        def resolve(values: tuple[str | int, ...]) -> tuple[int, ...]:
            return tuple(int(params[v]) if isinstance(v, str) else v for v in values[:dim])

        size = resolve(self._size)
        steps = resolve(self._steps) if self._steps is not None else (1,) * len(size)
        return size, steps, tuple(n * s for n, s in zip(size, steps, strict=True))

    def satisfies_constraints(self, params: dict[str, Any]) -> bool:
        """Whether the number of elements and of bytes is allowed."""
        size, _, allocated = self._sizes(params)
        count = math.prod(size)
        if self._min is not None and count < self._min:
            return False
        if self._max is not None and count > self._max:
            return False
        return self._bytes is None or math.prod(allocated) * self._dtype.itemsize <= self._bytes

    def _make_tensor(self, params: dict[str, Any], state: random.Random) -> tuple[Any, dict[str, Any]]:
        size, steps, allocated = self._sizes(params)
        order = list(range(len(size)))
        if len(size) > 1 and state.random() > self._contiguous:
            state.shuffle(order)
        raw = self._constructor(tuple(allocated[i] for i in order), self._dtype, **params)
        back = sorted(range(len(order)), key=order.__getitem__)
        made = raw.permute(back) if order != sorted(order) else raw
        made = made[tuple(slice(None, None, s) for s in steps)] if any(s != 1 for s in steps) else made
        return made, {
            "numel": int(made.numel()), "order": order, "steps": steps, "is_contiguous": made.is_contiguous(), "dtype": str(self._dtype),
        }  # fmt: skip


class FuzzedSparseTensor(FuzzedTensor):
    """A sparse COO tensor: `sparse_dim`, `density` and `coalesced` are parameters' names."""

    def __init__(
        self, name: str, size: tuple[str | int, ...], min_elements: int | None = None, max_elements: int | None = None,
        dim_parameter: str | None = None, sparse_dim: str | None = None, nnz: str | None = None, density: str | None = None,
        coalesced: str | None = None, dtype: Any = torch.float32, cuda: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, size, None, 1.0, min_elements, max_elements, None, dim_parameter, None, dtype, cuda)
        self._sparse_dim, self._nnz, self._density, self._coalesced = sparse_dim, nnz, density, coalesced

    @staticmethod
    def sparse_tensor_constructor(size: tuple[int, ...], dtype: Any, sparse_dim: int, nnz: int, is_coalesced: bool) -> Any:
        """`nnz` elements at random places."""
        indices = torch.stack([torch.randint(0, n, (nnz,)) for n in size[:sparse_dim]])
        made = torch.sparse_coo_tensor(indices, torch.rand((nnz, *size[sparse_dim:])).to(dtype), size)
        return made.coalesce() if is_coalesced else made

    def _make_tensor(self, params: dict[str, Any], state: random.Random) -> tuple[Any, dict[str, Any]]:
        size, _, _ = self._sizes(params)
        sparse_dim = min(int(params[self._sparse_dim]) if self._sparse_dim else len(size), len(size))
        density = float(params[self._density]) if self._density else 0.1
        nnz = int(params[self._nnz]) if self._nnz else math.ceil(math.prod(size[:sparse_dim]) * density)
        coalesced = bool(params[self._coalesced]) if self._coalesced else True
        made = self.sparse_tensor_constructor(size, self._dtype, sparse_dim, nnz, coalesced)
        return made, {"numel": int(made.numel()), "shape": size, "sparse_dim": sparse_dim, "density": density, "dtype": str(self._dtype)}


class Fuzzer:
    """Draws parameters until all constraints hold, and makes the tensors of them."""

    def __init__(self, parameters: list[Any], tensors: list[Any], constraints: list[Callable[..., bool]] | None = None, seed: int | None = None) -> None:
        self._seed = random.randrange(2**32) if seed is None else seed
        self._parameters = [p for group in parameters for p in (group if isinstance(group, (list, tuple)) else (group,))]
        self._tensors = [t for group in tensors for t in (group if isinstance(group, (list, tuple)) else (group,))]
        names = [x.name for x in (*self._parameters, *self._tensors)]
        if len(set(names)) != len(names):
            raise ValueError(f"Fuzzer: names must differ, got {names}")
        self._constraints = constraints or []
        self._rejected = self._drawn = 0

    def take(self, n: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """n times (tensors by name, their properties, parameters)."""
        state = random.Random(self._seed)
        torch.manual_seed(self._seed)
        for _ in range(n):
            params = self._generate(state)
            made = {t.name: t._make_tensor(params, state) for t in self._tensors}
            yield {k: v[0] for k, v in made.items()}, {k: v[1] for k, v in made.items()}, params

    @property
    def rejection_rate(self) -> float:
        """The share of drawn parameters that the constraints refused."""
        return self._rejected / self._drawn if self._drawn else 0.0

    def _generate(self, state: random.Random) -> dict[str, Any]:
        strict = {p.name for p in self._parameters if p.strict}
        for _ in range(1000):
            self._drawn += 1
            params = {p.name: p.sample(state) for p in self._parameters}
            for name in params:
                while isinstance(params[name], ParameterAlias):
                    params[name] = params[params[name].alias_to]
            if all(c(params) for c in self._constraints) and all(t.satisfies_constraints(params) for t in self._tensors):
                return params
            self._rejected += 1
            if strict and self._rejected > 100_000:
                break
        raise ValueError("Fuzzer: 1000 draws in a row were refused by the constraints")
