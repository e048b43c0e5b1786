"""functorch: the package that came before torch.func, which PyTorch still brings along beside torch."""

from __future__ import annotations

import flambeau
from flambeau._functorch.deprecated import combine_state_for_ensemble as combine_state_for_ensemble
from flambeau._functorch.deprecated import functionalize as functionalize
from flambeau._functorch.deprecated import grad as grad
from flambeau._functorch.deprecated import grad_and_value as grad_and_value
from flambeau._functorch.deprecated import hessian as hessian
from flambeau._functorch.deprecated import jacfwd as jacfwd
from flambeau._functorch.deprecated import jacrev as jacrev
from flambeau._functorch.deprecated import jvp as jvp
from flambeau._functorch.deprecated import make_functional as make_functional
from flambeau._functorch.deprecated import make_functional_with_buffers as make_functional_with_buffers
from flambeau._functorch.deprecated import vjp as vjp
from flambeau._functorch.deprecated import vmap as vmap
from flambeau._functorch.make_functional import FunctionalModule as FunctionalModule
from flambeau._functorch.make_functional import FunctionalModuleWithBuffers as FunctionalModuleWithBuffers
from flambeau.export.make_fx import make_fx as make_fx

__version__ = flambeau.__version__
