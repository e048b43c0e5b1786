"""torch._dynamo.eval_frame: where PyTorch defines what torch.compile makes of modules."""

from __future__ import annotations

from flambeau.compiling import OptimizedModule as OptimizedModule
from flambeau.compiling import disable as disable
from flambeau.compiling import set_stance as set_stance
