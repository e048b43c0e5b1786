"""Gradients beside PyTorch's, of every operator of its database: whether results require them, and at zeros and ties what they are.

`python -m tests.differential.slopes` compares all operators at more values, second gradients and tangents too.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator

import pytest

from tests.differential.known import INTERNAL, KNOWN, Known, skipped
from tests.differential.samples import OPERATORS, Unsupported, cases, supported
from tests.differential.slopes import differences, leaves_of, untracked
from tests.differential.sweep import on_alarm

# Results that depend on an argument by a formula that breaks somewhere: roots, quotients, logarithms, powers, pieces that meet.
SINGULAR = (
    "abs amax amin atan2 cdist clamp copysign cumprod dist float_power fmax fmin frexp hypot linalg.matrix_norm linalg.norm linalg.vector_norm "
    "logaddexp logaddexp2 logcumsumexp logsumexp masked.norm masked.normalize masked.std masked.var masked_select max/binary max/reduction_no_dim maximum "
    "min/binary min/reduction_no_dim minimum nextafter nn.functional.binary_cross_entropy_with_logits nn.functional.celu "
    "nn.functional.cosine_embedding_loss nn.functional.cosine_similarity nn.functional.elu nn.functional.gelu nn.functional.hardsigmoid "
    "nn.functional.hardswish nn.functional.hardtanh nn.functional.huber_loss nn.functional.l1_loss nn.functional.leaky_relu "
    "nn.functional.logsigmoid nn.functional.mish nn.functional.multilabel_soft_margin_loss nn.functional.normalize "
    "nn.functional.pairwise_distance nn.functional.pdist nn.functional.relu nn.functional.relu6 nn.functional.selu nn.functional.silu "
    "nn.functional.smooth_l1_loss nn.functional.soft_margin_loss nn.functional.softplus nn.functional.softshrink nn.functional.softsign "
    "nn.functional.triplet_margin_loss norm norm/fro norm/inf pow prod renorm rsqrt sgn sinc special.entr special.xlog1py sqrt std std/unbiased "
    "std_mean std_mean/unbiased var var_mean xlogy"
).split()

# Results that follow from an argument by no formula: counts, samples, what is not implemented, what has no elements; and arguments that are refused.
TIED = (
    "bernoulli cat cdist combinations heaviside histogram histogramdd igamma igammac linalg.eigh linalg.householder_product linalg.lstsq "
    "linalg.matrix_power linalg.qr linalg.svd matrix_exp native_group_norm native_layer_norm nn.functional.binary_cross_entropy "
    "nn.functional.cross_entropy nn.functional.grid_sample nn.functional.multi_margin_loss nn.functional.nll_loss nn.functional.pdist "
    "nn.functional.soft_margin_loss nextafter normal normal/number_mean ormqr special.zeta sum_to_size svd triangular_solve unique unique_consecutive"
).split()


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """A case that does not end fails."""
    before = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("label", [pytest.param(n, marks=() if n in TIED else pytest.mark.slow) for n in sorted(set(OPERATORS) - INTERNAL)])
def test_results_require_gradients(label: str) -> None:
    """By each argument alone, and by all of them."""
    if not supported(label, "float64"):
        return
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for case in cases(label, "float64", False, 2):
                if not skipped(label, "float64", case.args, case.kwargs):
                    found += [f"{case.text[:300]}\n    {text}" for text in untracked(case)]
        except Unsupported:
            return
    assert not found, "\n".join(found)


@pytest.mark.parametrize("label", SINGULAR)
def test_slopes_where_formulas_break(label: str) -> None:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases(label, "float64", True, 1):
            if any(i.requires_grad for i in leaves_of([case.args, case.kwargs])):
                for values in ("zeros", "ones"):
                    found += [f"{case.text[:300]} of {values}\n    {text}" for text in differences(case, values, KNOWN.get(label, Known("")), 1, True)]
    assert not found, "\n".join(found)
