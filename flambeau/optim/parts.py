"""Private helpers of torch.optim.optimizer that optimizers copied from PyTorch's source import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.grad_modes import switch
from flambeau.optim.counts import kept_dtype
from flambeau.tensor import Tensor
from flambeau.trace.recorder import local
from flambeau.trace.while_set import while_switched

_params_doc = _foreach_doc = _fused_doc = _capturable_doc = _differentiable_doc = _maximize_doc = ""
_foreach_supported_types = [Tensor]
_get_scalar_dtype = kept_dtype


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A step that records gradients only where the optimizer's default "differentiable" says so."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return while_switched(switch, local.main.grad_enabled, bool(self.defaults.get("differentiable", False)), func, self, *args, **kwargs)

    return step


def _default_to_fused_or_foreach(params: Sequence[Any], differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """(False, False): a loop over the parameters is recorded and fused anyway."""
    return False, False


def _get_value(x: Any) -> Any:
    """A tensor's number."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: Any) -> Any:
    """As it is."""
    return x


def _dispatch_sqrt(x: Any) -> Any:
    """The square root of a number or a tensor."""
    import math

    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def _to_scalar(x: Any) -> Any:
    """A one-element tensor without dimensions."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The devices whose steps could be captured: none of them is here."""
    return ["cuda", "xpu", "hpu", "privateuseone", *(["xla"] if supports_xla else [])]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The devices with PyTorch's foreach kernels."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The devices with PyTorch's fused optimizers."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _device_dtype_check_for_fused(p: Any, cuda_unsupported: bool = False) -> None:
    """RuntimeError unless a parameter is floating, and on a device with fused optimizers."""
    devices = _get_fused_kernels_supported_devices()
    if p.device.type not in devices or not p.is_floating_point():
        raise RuntimeError(
            f"`fused=True` requires all the params to be floating point Tensors of supported devices: {devices} but {p.dtype} and {p.device.type}"
        )


def _disable_dynamo_if_unsupported(single_tensor_fn: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that returns its function."""
    return lambda func: func


def _view_as_real(params: list[Any], *state_and_grads: list[Any]) -> None:
    """Replace complex tensors by views of pairs of real numbers, in the lists."""
    from flambeau import is_complex, view_as_real

    for i, p in enumerate(params):
        if is_complex(p):
            params[i] = view_as_real(p)
            for column in state_and_grads:
                column[i] = view_as_real(column[i])
