"""torch._functorch.eager_transforms: torch.func's derivatives under their older home."""

from __future__ import annotations

from flambeau.func.forward_mode import hessian as hessian
from flambeau.func.forward_mode import jacfwd as jacfwd
from flambeau.func.forward_mode import jvp as jvp
from flambeau.func.forward_mode import linearize as linearize
from flambeau.func.functionalization import functionalize as functionalize
from flambeau.func.levels import debug_unwrap as debug_unwrap
from flambeau.func.reverse import grad as grad
from flambeau.func.reverse import grad_and_value as grad_and_value
from flambeau.func.reverse import jacrev as jacrev
from flambeau.func.reverse import vjp as vjp
from flambeau.func.steps import replaceable as _replaceable
from flambeau.func.tracking import _wrap_tensor_for_grad as _wrap_tensor_for_grad

_replaceable(__name__, "_wrap_tensor_for_grad")
