"""functorch.experimental: names that torch.func has since."""

from __future__ import annotations

from flambeau._functorch.apis import chunk_vmap as chunk_vmap
from flambeau.func.forward_mode import hessian as hessian
from flambeau.func.forward_mode import jacfwd as jacfwd
from flambeau.func.forward_mode import jvp as jvp
from flambeau.func.functionalization import functionalize as functionalize
from flambeau.func.modules import replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_
