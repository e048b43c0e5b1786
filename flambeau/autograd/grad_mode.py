"""torch.autograd.grad_mode: blocks with and without gradients."""

from __future__ import annotations

from flambeau.grad_modes import _force_original_view_tracking as _force_original_view_tracking
from flambeau.grad_modes import enable_grad as enable_grad
from flambeau.grad_modes import inference_mode as inference_mode
from flambeau.grad_modes import no_grad as no_grad
from flambeau.grad_modes import set_grad_enabled as set_grad_enabled
