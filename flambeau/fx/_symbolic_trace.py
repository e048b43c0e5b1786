"""torch.fx._symbolic_trace: where PyTorch defines the tracer."""

from __future__ import annotations

from flambeau.fx.symbolic_trace import PH as PH
from flambeau.fx.symbolic_trace import Tracer as Tracer
from flambeau.fx.symbolic_trace import is_fx_tracing as is_fx_tracing
from flambeau.fx.symbolic_trace import symbolic_trace as symbolic_trace
from flambeau.fx.symbolic_trace import wrap as wrap
