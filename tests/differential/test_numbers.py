"""NaN, infinities, zeros of both signs, negative and huge numbers as arguments: every operator of PyTorch's database that takes numbers.

`python -m tests.differential.sweep float64 64 --form numbers` makes more calls.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.differential.samples import Unsupported, torch
from tests.differential.sweep import differences, on_alarm

import flambeau  # isort: skip

NUMBERED = (
    "__radd__ add addbmm addcdiv addcmul addmm addmv addr allclose arange baddbmm cauchy cdist constant_pad_nd cumulative_trapezoid exponential full "
    "full_like geometric gradient index_fill isclose lerp linalg.matrix_norm linalg.matrix_rank linalg.norm linalg.norm/subgradients_at_zero "
    "linalg.vector_norm linspace linspace/tensor_overload log_normal logit logspace logspace/tensor_overload masked.norm masked.normalize masked.std "
    "masked.var nanquantile native_batch_norm native_group_norm native_layer_norm new_full normal normal/in_place normal/number_mean norm/inf pinverse "
    "quantile renorm rsub scatter signal.windows.exponential signal.windows.gaussian signal.windows.general_hamming sub trapezoid trapz"
).split() + [
    f"nn.functional.{name}"
    for name in (
        "alpha_dropout batch_norm celu cosine_embedding_loss cosine_similarity cross_entropy dropout dropout2d dropout3d elu embedding embedding_bag "
        "feature_alpha_dropout/with_train feature_alpha_dropout/without_train gaussian_nll_loss group_norm hardshrink hardtanh hinge_embedding_loss "
        "huber_loss instance_norm interpolate/area interpolate/bicubic interpolate/bilinear interpolate/linear interpolate/nearest "
        "interpolate/nearest-exact interpolate/trilinear layer_norm leaky_relu linear_cross_entropy local_response_norm margin_ranking_loss "
        "multi_head_attention_forward multi_margin_loss normalize pad/circular pad/constant pad/reflect pad/replicate pad/replicate_negative "
        "pairwise_distance pdist poisson_nll_loss rms_norm rrelu scaled_dot_product_attention smooth_l1_loss softplus softshrink threshold "
        "triplet_margin_loss upsample_bilinear upsample_nearest"
    ).split()
]


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """A case that does not end fails."""
    before = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("label", NUMBERED)
def test_special_numbers(label: str) -> None:
    try:
        found = differences(label, "float64", 8, "numbers")[1]
    except Unsupported:
        pytest.skip("samples of another layout")
    assert not found, "\n".join(found)


NAN, INF = float("nan"), float("inf")
CALLS = {  # what the database does not call with such a number
    "fractional pools of ratio 0": lambda m: m.nn.functional.fractional_max_pool3d(m.ones(1, 1, 4, 4, 4), 2, output_ratio=0.0),
    "fractional pools of a negative ratio": lambda m: m.nn.functional.fractional_max_pool3d(m.ones(1, 1, 4, 4, 4), 2, output_ratio=-1.0),
    "fractional pools of ratio NaN": lambda m: m.nn.functional.fractional_max_pool2d(m.ones(1, 1, 4, 4), 2, output_ratio=[NAN, NAN]),
    "lp_pool of order 0": lambda m: m.nn.functional.lp_pool1d(m.ones(1, 1, 4), 0.0, 2),
    "instance_norm of equal elements": lambda m: m.nn.functional.instance_norm(m.zeros(2, 3, 4), eps=0.0),
    "native_batch_norm": lambda m: m.native_batch_norm(m.ones(2, 3), None, None, None, None, True, 0.1, 0.0),
    "batch_norm without an eps": lambda m: m.nn.functional.batch_norm(m.ones(2, 3), m.zeros(3), m.ones(3), eps=0.0),
    "no terms": lambda m: [m.addmm(m.full((2, 2), -0.0), m.ones(2, 0), m.ones(0, 2), alpha=a, beta=b) for a in (1, INF, NAN) for b in (0, 1)],
    "addbmm of no batch": lambda m: m.addbmm(m.ones(2, 2), m.ones(0, 2, 1), m.ones(0, 1, 2), alpha=INF),
    "dropout of NaN": lambda m: m.nn.Dropout(NAN)(m.ones(2)),
    "torch.dropout": lambda m: m.dropout(m.ones(2), -1.0, True),
    "rrelu": lambda m: m.nn.functional.rrelu(m.ones(2), 0.1, INF, True),
    "uniform_": lambda m: m.ones(2).uniform_(NAN, 1.0),
    "range": lambda m: m.range(0, 1, -INF),
    "range of NaN": lambda m: m.range(0, 1, NAN),
    "norm of one element": lambda m: m.linalg.vector_norm(m.tensor([[-2.0], [3.0]]), 1e300, dim=1),
    "norm of none": lambda m: m.linalg.vector_norm(m.zeros(0), NAN),
    "src and value": lambda m: m.scatter(m.ones(2), 0, m.tensor([0]), m.ones(1), value=2.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_more_special_numbers(name: str) -> None:
    answers = []
    for module in (flambeau, torch):
        try:
            found = CALLS[name](module)
            answers.append(str([t.tolist() for t in (found if isinstance(found, (list, tuple)) else [found])]))
        except (RuntimeError, ValueError, TypeError, ArithmeticError) as error:
            answers.append(next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"))
    assert answers[0] == answers[1]
