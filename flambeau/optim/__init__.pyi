"""torch.optim. Written by scripts/stubs: do not edit."""

# ruff: noqa
from __future__ import annotations

from builtins import dict as _dict
from builtins import str as _str
from collections.abc import Iterator as _Iterator
from flambeau.optim import lr_scheduler as lr_scheduler
from flambeau.optim import swa_utils as swa_utils
from flambeau.optim.adam import Adam as Adam
from flambeau.optim.adam import AdamW as AdamW
from flambeau.optim.adaptive import Adadelta as Adadelta
from flambeau.optim.adaptive import Adagrad as Adagrad
from flambeau.optim.adaptive import RMSprop as RMSprop
from flambeau.optim.classic import ASGD as ASGD
from flambeau.optim.classic import Rprop as Rprop
from flambeau.optim.lbfgs import LBFGS as LBFGS
from flambeau.optim.matrices import Adafactor as Adafactor
from flambeau.optim.matrices import Muon as Muon
from flambeau.optim.optimizer import Optimizer as Optimizer
from flambeau.optim.sgd import SGD as SGD
from flambeau.optim.sparse_adam import SparseAdam as SparseAdam
from flambeau.optim.variants import Adamax as Adamax
from flambeau.optim.variants import NAdam as NAdam
from flambeau.optim.variants import RAdam as RAdam
from flambeau.tensor import Tensor as _Tensor
from typing import Any as _Any

def swap_in_optimizer_params_and_state(optimizer: _Any, swapin_parameters: _dict[_str, _Tensor], swapin_optim_state: _dict[_str, _Any]) -> _Iterator[None]: ...
