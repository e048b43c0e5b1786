"""torch.optim: optimizers and learning-rate schedules."""

from flambeau.optim import lr_scheduler, swa_utils
from flambeau.optim.adam import Adam, AdamW
from flambeau.optim.adaptive import Adadelta, Adagrad, RMSprop
from flambeau.optim.classic import ASGD, Rprop
from flambeau.optim.lbfgs import LBFGS
from flambeau.optim.matrices import Adafactor, Muon
from flambeau.optim.optimizer import Optimizer
from flambeau.optim.sgd import SGD
from flambeau.optim.sparse_adam import SparseAdam
from flambeau.optim.stateless import swap_in_optimizer_params_and_state
from flambeau.optim.variants import Adamax, NAdam, RAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop",
    "SparseAdam", "lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip

from flambeau.documentation import document as _document
from flambeau.names import answering as _answering
from flambeau.ops.guard import guard as _guard

_guard("optim", globals())
_document("torch.optim", globals())
__getattr__ = _answering("torch.optim", globals())
