"""torch.nn.utils._per_sample_grad: each sample's own gradient, in `grad_sample` of the parameters.

The module runs by vmap, each sample with parameters of its own, whose gradients are what is wanted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.upward import upward
from flambeau.utils._pytree import tree_flatten, tree_unflatten


@upward
def vmap(func: Any) -> Any:
    """A function over a batch (func/mapping.py)."""
    raise NotImplementedError


@upward
def functional_call(module: Module, parameter_and_buffer_dicts: Any, args: Any, kwargs: Any) -> Any:
    """A module with other parameters (func/modules.py)."""
    raise NotImplementedError


def _size(leaves: list[Any], dim: int) -> int:
    """How many samples the tensors have."""
    sizes = [leaf.shape[dim] for leaf in leaves if isinstance(leaf, Tensor)]
    if not sizes:
        raise RuntimeError(
            "Unable to find a tensor in the passed args and kwargs. They may not be pytree-able and so ExpandedWeights cannot compute the batch size "
            "from the inputs. Please specify it explicitly"
        )
    for size in sizes:
        if size != sizes[0]:
            raise RuntimeError(
                f"When computing batch size, found at least one input with batch size {sizes[0]} and one with batch size {size}. Please specify it "
                "explicitly using the batch size kwarg in call_for_per_sample_grads"
            )
    return int(sizes[0])


def _own(p: Tensor, size: int, factor: int) -> Tensor:
    """The parameter once for each sample; its gradient becomes `grad_sample` of the parameter."""
    each = p.detach().expand(size, *p.shape).requires_grad_()

    def keep(grad: Tensor) -> None:
        scaled = grad * factor
        before = getattr(p, "grad_sample", None)
        p.grad_sample = scaled if before is None else before + scaled  # type: ignore[attr-defined]

    each.register_hook(keep)
    return each  # type: ignore[no-any-return]


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True,
) -> Callable[..., Any]:  # fmt: skip
    """The module as a function whose backward pass gives parameters `grad_sample`, (samples, *shape), and no `grad`.

    The samples lie in the first dim of the tensors it is called with (`batch_first=False`: the second); with `batch_size`, of those that are so long.
    `loss_reduction`: "mean" if the loss is a mean over samples. RuntimeError for arguments that do not fit, and while a `grad_sample` is left.
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(f"Batch size passed must be None or an integer, got {type(batch_size).__name__}")
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for weight in module.parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError(
                "Current Expanded Weights accumulates the gradients, which will be incorrect for multiple calls without clearing gradients. Please "
                f"clear out the grad_sample parameter of {weight} or post an issue to pytorch/pytorch to prioritize correct behavior"
            )
    dim = 0 if batch_first else 1

    @functools.wraps(module.forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        size = _size(leaves, dim) if batch_size is None else batch_size
        mapped = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.ndim > dim and leaf.shape[dim] == size]
        own = {name: _own(p, size, size if loss_reduction == "mean" else 1) for name, p in module.named_parameters() if p.requires_grad}

        def one(parameters: dict[str, Tensor], *samples: Tensor) -> Any:
            given = list(leaves)
            for i, sample in zip(mapped, samples, strict=True):
                given[i] = sample.unsqueeze(dim)
            inner, named = tree_unflatten(given, structure)
            results, shape = tree_flatten(functional_call(module, parameters, inner, named))
            return tree_unflatten([r.squeeze(dim) for r in results], shape)

        return vmap(one, in_dims=(0, *[dim] * len(mapped)), out_dims=dim, randomness="different")(own, *[leaves[i] for i in mapped])

    return call
