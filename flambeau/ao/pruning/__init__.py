"""torch.ao.pruning: weights that become zeros by a rule and a schedule, and whole channels that are taken away.

Masks are parametrisations of the weights while the model is trained. `squash_mask` leaves zeros; a structured pruner's `prune` (under
`_experimental.pruner`, as in PyTorch) makes the layers smaller.
"""

from __future__ import annotations

from flambeau.ao.pruning.scheduler.base_scheduler import BaseScheduler
from flambeau.ao.pruning.scheduler.cubic_scheduler import CubicSL
from flambeau.ao.pruning.scheduler.lambda_scheduler import LambdaSL
from flambeau.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier
from flambeau.ao.pruning.sparsifier.nearly_diagonal_sparsifier import NearlyDiagonalSparsifier
from flambeau.ao.pruning.sparsifier.utils import FakeSparsity, fqn_to_module, get_arg_info_from_tensor_fqn, module_to_fqn
from flambeau.ao.pruning.sparsifier.weight_norm_sparsifier import WeightNormSparsifier
from flambeau.names import answering as _answering

__getattr__ = _answering("torch.ao.pruning", globals())
