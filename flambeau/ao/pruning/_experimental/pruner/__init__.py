"""torch.ao.pruning._experimental.pruner: structured pruning: whole rows of weights become zeros, then go, and the layers behind them shrink, too.

pruner = SaliencyPruner({"sparsity_level": 0.5})
pruner.prepare(model, [{"tensor_fqn": "conv1.weight"}])  # masks
pruner.step()                                            # which channels are least; train on with the zeros, as long as one likes
smaller = pruner.prune()                                 # the channels are gone
"""

from __future__ import annotations

from flambeau.ao.pruning._experimental.pruner.base_structured_sparsifier import BaseStructuredSparsifier
from flambeau.ao.pruning._experimental.pruner.FPGM_pruner import FPGMPruner
from flambeau.ao.pruning._experimental.pruner.lstm_saliency_pruner import LSTMSaliencyPruner
from flambeau.ao.pruning._experimental.pruner.parametrization import BiasHook, FakeStructuredSparsity
from flambeau.ao.pruning._experimental.pruner.saliency_pruner import SaliencyPruner
