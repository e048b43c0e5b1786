"""Pruning: a parameter `name` becomes `name_orig`, a buffer `name_mask`, and their product, computed again before each forward."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import flambeau as torch
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.convert_parameters import parameters_to_vector
from flambeau.tensor import Tensor


# -- amounts --------------------------------------------------------------------------------------------------------
def _validate_pruning_amount_init(amount: Any) -> None:
    """PyTorch's name for the check of an amount alone."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or (not isinstance(amount, numbers.Integral) and float(amount) > 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    """PyTorch's name for the check of an amount against a size."""
    if isinstance(amount, numbers.Integral) and amount > tensor_size:  # type: ignore[operator]
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """How many of a tensor's elements to prune: the amount itself, or a share. PyTorch's name, which methods of pruning of others call."""
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _count(amount: Any, size: int) -> int:
    _validate_pruning_amount(amount, size)
    return _compute_nparams_toprune(amount, size)


def _check_structured(t: Tensor, dim: int) -> None:
    if t.ndim <= 1:
        raise ValueError(f"Structured pruning can only be applied to multidimensional tensors. Found tensor of shape {t.shape} with {t.ndim} dims")
    if dim >= t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _without(mask: Tensor, flat: Tensor) -> Tensor:
    """The mask with zeros at flat indices."""
    return mask.reshape(-1).index_fill(0, flat, 0).reshape(mask.shape)  # type: ignore[no-any-return, attr-defined]


def _along(channels: Tensor, t: Tensor, dim: int) -> Tensor:
    """One value for each slice of a dim, over the whole of t."""
    shape = [1] * t.ndim
    shape[dim] = -1
    return channels.to(t.dtype).reshape(shape).expand(t.shape)  # type: ignore[attr-defined]


# -- methods --------------------------------------------------------------------------------------------------------
class BasePruningMethod(ABC):
    """A forward pre-hook; a subclass says in `compute_mask` what stays, and its PRUNING_TYPE: unstructured, structured, global."""

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of `t` (of the same shape), on top of `default_mask`."""

    def apply_mask(self, module: Module) -> Tensor:
        """The product of the original parameter and its mask."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(dtype=original.dtype) * original  # type: ignore[no-any-return]

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> BasePruningMethod:
        """Prune `module.name`; what an earlier method pruned stays pruned. `importance_scores` stand for the values."""
        earlier = [(k, h) for k, h in module._forward_pre_hooks.items() if isinstance(h, BasePruningMethod) and h._tensor_name == name]
        if len(earlier) > 1:
            raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a PruningContainer.")
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        for key, old in earlier:
            del module._forward_pre_hooks[key]
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got {importance_scores.shape} vs {original.shape}"
            )
        scores = original if importance_scores is None else importance_scores
        first = not isinstance(method, PruningContainer)
        if first:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            mask = torch.ones_like(original, requires_grad=False)
        else:
            mask = getattr(module, name + "_mask").detach().clone()
        try:
            with torch.no_grad():
                mask = method.compute_mask(scores, default_mask=mask)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:
                module.register_parameter(name, getattr(module, name + "_orig"))
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of a tensor."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError(f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs {t.shape}")
        mask = torch.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, default_mask=mask)  # type: ignore[no-any-return, operator]

    def remove(self, module: Module) -> None:
        """Make the pruning permanent: the parameter gets its name back, with zeros."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        assert original is not None
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods in turn: each sees only what the ones before it left."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add a method of the same tensor."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        left: tuple[Any, ...]
        if method.PRUNING_TYPE == "unstructured":
            left = (default_mask == 1,)
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
            dim = method.dim + t.ndim if method.dim < 0 else method.dim
            if dim < 0:
                raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
            kept = default_mask.sum(dim=[d for d in range(t.ndim) if d != dim]) != 0  # type: ignore[attr-defined]
            left = tuple(kept if d == dim else slice(None) for d in range(t.ndim))
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.to(dtype=t.dtype).clone()  # type: ignore[attr-defined]
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(dtype=t.dtype)
        return mask  # type: ignore[no-any-return]


class Identity(BasePruningMethod):
    """Prunes nothing: the parameter only gets its mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> BasePruningMethod:  # type: ignore[override]
        return super().apply(module, name)


class _Unstructured(BasePruningMethod):
    """Single elements, `amount` of them: those that `_chosen` picks."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        """The flat indices of `count` elements."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        if count == 0:
            return default_mask.clone()  # type: ignore[no-any-return, attr-defined]
        return _without(default_mask, self._chosen(t, count))


class RandomUnstructured(_Unstructured):
    """Random elements."""

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        return torch.rand_like(t).reshape(-1).topk(count).indices  # type: ignore[no-any-return, attr-defined]

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> BasePruningMethod:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Unstructured):
    """The elements that are smallest in magnitude."""

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        return t.abs().reshape(-1).topk(count, largest=False).indices  # type: ignore[no-any-return, attr-defined]

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> BasePruningMethod:  # type: ignore[override]
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomStructured(BasePruningMethod):
    """Random slices of a dim."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _check_structured(t, self.dim)
        count = _count(self.amount, t.shape[self.dim])
        if count == 0:
            return default_mask
        drawn = torch.rand(t.shape[self.dim])
        kept = drawn > drawn.kthvalue(count).values  # type: ignore[attr-defined]
        return _along(kept, t, self.dim) * default_mask.to(t.dtype)  # type: ignore[no-any-return, operator]

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, dim: int = -1) -> BasePruningMethod:  # type: ignore[override]
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """The slices of a dim whose n-norm is smallest."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _check_structured(t, self.dim)
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if count == 0:
            return default_mask
        others = [d for d in range(t.ndim) if d != self.dim % t.ndim]
        largest = torch.norm(t, p=self.n, dim=others).topk(size - count).indices  # type: ignore[attr-defined]
        kept = torch.zeros(size).index_fill(0, largest, 1)  # type: ignore[attr-defined]
        return _along(kept, t, self.dim) * default_mask.to(t.dtype)  # type: ignore[no-any-return, operator]

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """What a given mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)  # type: ignore[no-any-return, operator]

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> BasePruningMethod:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


# -- functions --------------------------------------------------------------------------------------------------------
def identity(module: Any, name: str) -> Any:
    """Give `module.name` a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prune an amount (a share, or a number) of random elements."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prune an amount of the smallest elements."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prune an amount of random slices of a dim."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> Any:
    """Prune an amount of the slices of a dim with the smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Prune the (module, name) pairs as if they were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = importance_scores if importance_scores is not None else {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of type {method.PRUNING_TYPE}')
    with torch.no_grad():
        values = parameters_to_vector([scores.get((m, n), getattr(m, n)) for m, n in pairs])
        masks = parameters_to_vector([getattr(m, n + "_mask", torch.ones_like(getattr(m, n))) for m, n in pairs])
        method._tensor_name = "temp"
        mask = PruningContainer(method).compute_mask(values, masks)
    start = 0
    for module, name in pairs:
        weight = getattr(module, name)
        custom_from_mask(module, name, mask=mask[start : start + weight.numel()].view(weight.shape))
        start += weight.numel()


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune by a mask of the tensor's shape."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Any, name: str) -> Any:
    """Make the pruning of `module.name` permanent."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether a module, or one inside it, has a pruning hook."""
    return any(isinstance(hook, BasePruningMethod) for _, m in module.named_modules() for hook in m._forward_pre_hooks.values())


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("nn.utils.prune", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.nn.utils.prune", globals())
