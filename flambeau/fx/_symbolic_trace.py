"""torch.fx._symbolic_trace: where PyTorch defines the tracer, and the parts from which packages make tracers of their own."""

from __future__ import annotations

import functools as functools
from types import FunctionType as FunctionType

from flambeau.fx._compatibility import compatibility as compatibility
from flambeau.fx.proxy import Proxy as Proxy
from flambeau.fx.symbolic_trace import PH as PH
from flambeau.fx.symbolic_trace import Tracer as Tracer
from flambeau.fx.symbolic_trace import _autowrap_check as _autowrap_check
from flambeau.fx.symbolic_trace import _patch_wrapped_functions as _patch_wrapped_functions
from flambeau.fx.symbolic_trace import _Patcher as _Patcher
from flambeau.fx.symbolic_trace import is_fx_tracing as is_fx_tracing
from flambeau.fx.symbolic_trace import symbolic_trace as symbolic_trace
from flambeau.fx.symbolic_trace import wrap as wrap
from flambeau.nn.modules.module import Module

_orig_module_call = Module.__call__
_orig_module_getattr = Module.__getattr__


class ScriptObject:
    """TorchScript's objects, of which there are none here: for isinstance."""
