"""GradScaler: losses are scaled up so that float16 gradients do not vanish, and steps with an infinite gradient are skipped.

The gradients of an optimizer are checked and divided by the scale in one recorded edge, in the pass that made them. Whether
one was infinite is read once, when the step has to be decided. Micikevicius et al., Mixed Precision Training, 2018.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import flambeau as torch
from flambeau.optim.optimizer import update
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here


class OptState(Enum):
    """How far an optimizer has come in this iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


@update
def unscale(grads: Sequence[Tensor], inverse: Tensor) -> tuple[Tensor, ...]:
    """(1.0 if a gradient has an element that is not finite, else 0.0; each gradient times `inverse`, in its own dtype)."""
    found = torch.stack([torch.logical_not(torch.isfinite(g)).any() for g in grads]).any()
    return (found.to(torch.float32), *[(g.to(torch.float32) * inverse).to(g.dtype) if _narrow(g) else g * inverse.to(g.dtype) for g in grads])


def _narrow(g: Tensor) -> bool:
    return g.dtype in (torch.float16, torch.bfloat16)


def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients by `inv_scale` in place; `found_inf` becomes 1 if an element is not finite."""
    from flambeau.nn.functional.engine import overwrite
    from flambeau.ops.foreach import check_tensors

    check_tensors("_amp_foreach_non_finite_check_and_unscale_", self)
    with torch.no_grad():
        found, *scaled = unscale(list(self), inv_scale)
        overwrite(list(self), scaled)
        found_inf.copy_(torch.maximum(found_inf, found.reshape(found_inf.shape)))


def _amp_update_scale_(
    self: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float, scale_backoff_factor: float, growth_interval: int
) -> Tensor:
    """The scale (self) and the steps since it last grew, after a step in which `found_inf` was found."""
    if found_inf.item():
        growth_tracker.zero_()
        return self.mul_(scale_backoff_factor)
    steps = int(growth_tracker.item()) + 1
    grown = self.item() * scale_growth_factor
    if steps == growth_interval and grown <= torch.finfo(torch.float32).max:
        self.fill_(grown)
    growth_tracker.fill_(0 if steps == growth_interval else steps)
    return self


class GradScaler:
    """`scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`.

    A step is left out if a gradient is infinite or NaN; the scale then shrinks by `backoff_factor`. After `growth_interval`
    good steps in a row it grows by `growth_factor`. `device`: "cpu"; "cuda" warns and disables the scaler without CUDA.
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda":
            from flambeau import cuda

            if not cuda.is_available():
                warn_here("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.")
                self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
            self._init_scale = init_scale
            self._scale: Tensor | None = None  # made by the first scale()
            self._growth_factor = growth_factor
            self._backoff_factor = backoff_factor
            self._growth_interval = growth_interval
            self._tracker = 0  # good steps in a row
            self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh_state)

    # -- scaling ----------------------------------------------------------------------------------------------------
    def _need_scale(self, name: str) -> Tensor:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale

    def scale(self, outputs: Tensor | Iterable[Any]) -> Any:
        """A tensor, or each tensor of an iterable (also nested), times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._scale = torch.full((), self._init_scale, dtype=torch.float32)
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled  # type: ignore[call-arg]
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _check(self, optimizer: Any, inverse: Tensor, allow_fp16: bool, write: bool) -> dict[Any, Tensor]:
        """{device: found_inf} of the gradients of an optimizer; with `write`, they are also multiplied by `inverse`."""
        grads: list[Tensor] = []
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if not allow_fp16 and p.grad.dtype == torch.float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    grads.append(p.grad)
        if not grads:
            return {}
        from flambeau.nn.functional.engine import overwrite

        parts = [g.to_local() if hasattr(g, "to_local") else g for g in grads]  # of DTensors, which lie over processes
        with torch.no_grad():
            found, *scaled = unscale(parts, inverse)
            if write:
                overwrite(parts, scaled)
            found = self._anywhere(found, grads)
        return {grads[0].device: found}

    def _anywhere(self, found: Tensor, grads: Sequence[Any]) -> Tensor:
        """Whether a gradient has an element that is not finite in any process that has a part of one."""
        meshes = {id(g.device_mesh): g for g in grads if hasattr(g, "device_mesh")}
        for g in meshes.values():
            found = g._greatest_anywhere(found)
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer by the scale, in place: before clipping, for example. At most once a step."""
        if not self._enabled:
            return
        scale = self._need_scale("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        with torch.no_grad():
            inverse = scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, torch.zeros((), dtype=torch.float32), False)
        state["stage"] = OptState.UNSCALED

    def _unscale_grads_(self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool) -> dict[Any, Tensor]:
        """Multiply the gradients by `inv_scale`; {device: found_inf}. Scalers of packages have their own."""
        return {device: torch.maximum(found, found_inf.to(found.dtype)) for device, found in self._check(optimizer, inv_scale, allow_fp16, write=True).items()}

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        self._need_scale("_check_inf_per_device")
        found = self._check(optimizer, torch.ones((), dtype=torch.float32), allow_fp16=True, write=False)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        found: dict[Any, Tensor] = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        return found

    # -- stepping ---------------------------------------------------------------------------------------------------
    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients, if `unscale_` has not, and call optimizer.step(*args, **kwargs) unless one is not finite.

        Returns what the step returns, or None for a step left out.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        scale = self._need_scale("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):  # it reads the two attributes, or asks the scaler, and decides by itself
            if "grad_scaler" in inspect.signature(optimizer.step).parameters:
                warn_here(
                    "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near future GradScaler "
                    "registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and let the optimizer use them directly.",
                    FutureWarning,
                )
                result = optimizer.step(*args, **{**kwargs, "grad_scaler": self})
                state["stage"] = OptState.STEPPED
                return result
            if state["stage"] is OptState.READY:
                self._check_inf_per_device(optimizer)
                optimizer.grad_scale = scale * getattr(optimizer, "grad_scale", 1)
            else:
                optimizer.grad_scale = getattr(optimizer, "grad_scale", None)
            optimizer.found_inf = sum(state["found_inf_per_device"].values())
            result = optimizer.step(*args, **kwargs)
            state["stage"] = OptState.STEPPED
            del optimizer.grad_scale, optimizer.found_inf
            return result
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None
        if not sum(v.item() for v in state["found_inf_per_device"].values()):
            result = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Set the scale for the next iteration: `new_scale`, or by what was found in this one."""
        if not self._enabled:
            return
        scale = self._need_scale("update")
        if new_scale is not None:
            if isinstance(new_scale, Tensor) and (new_scale.numel() != 1 or new_scale.requires_grad or new_scale.device.type != self._device):
                raise AssertionError("new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False.")
            scale.fill_(float(new_scale))
        else:
            found = [v for state in self._per_optimizer_states.values() for v in state["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            if any(v.item() for v in found):
                self._tracker = 0
                scale.fill_(scale.item() * self._backoff_factor)
            else:
                self._tracker += 1
                if self._tracker == self._growth_interval:
                    self._tracker = 0
                    grown = scale.item() * self._growth_factor
                    if math.isfinite(grown) and grown <= torch.finfo(torch.float32).max:
                        scale.fill_(grown)
        self._per_optimizer_states = defaultdict(_fresh_state)

    # -- settings and state -----------------------------------------------------------------------------------------
    @property
    def _growth_tracker(self) -> Tensor | None:
        return None if self._scale is None else torch.full((), self._tracker, dtype=torch.int32)

    @property
    def _init_growth_tracker(self) -> int:
        return self._tracker

    @_init_growth_tracker.setter
    def _init_growth_tracker(self, value: int) -> None:
        self._tracker = value

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def _get_growth_tracker(self) -> int:
        return self._tracker if self._enabled else 0

    def get_scale(self) -> float:
        """The scale; 1.0 if disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set by what the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set by what the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many good steps in a row let the scale grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set how many good steps in a row let the scale grow."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs, in PyTorch's form; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._tracker,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; RuntimeError for an empty one, unless this scaler is disabled."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._tracker = state_dict["_growth_tracker"]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError("A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after scaler.update().")
            state["_init_scale"] = self.get_scale()
            state["_scale"] = None
        return state
