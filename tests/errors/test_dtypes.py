"""Which dtypes the operators of PyTorch's database take: a sixteenth of them here, all of them with `python -m tests.errors.dtypes`."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.differential.samples import OPERATORS
from tests.differential.sweep import on_alarm
from tests.errors.dtypes import KNOWN, differences, refused_empties

LABELS = list(OPERATORS)


@pytest.fixture(autouse=True)
def alarms() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("share", [pytest.param(k, marks=[pytest.mark.slow] if k else []) for k in range(16)])
def test_dtypes(share: int) -> None:
    found = [line for label in LABELS[share::16] if label not in KNOWN for line in differences(label, numbers=False)]
    assert not found, "\n".join(found)


POINTWISE = (
    "abs ceil clamp frac hypot nextafter logaddexp atan2 sign lerp pow log_softmax nn.functional.gelu nn.functional.leaky_relu addmm kthvalue "
    "softmax/with_dtype log_softmax/with_dtype linalg.matrix_rank nn.functional.hardtanh nn.functional.soft_margin_loss _softmax_backward_data "
    "nn.functional.hinge_embedding_loss nn.functional.embedding_bag linalg.slogdet unravel_index scatter_reduce/mean"
)


@pytest.mark.parametrize("label", POINTWISE.split())
def test_dtypes_without_a_kernel(label: str) -> None:
    assert not list(differences(label, numbers=False))


# Empty tensors of a dtype that PyTorch has no kernel for; docs/differences.md names where they are still refused.
EMPTY = (
    "softmax softmax/with_dtype log_softmax log_softmax/with_dtype nn.functional.softmin mm bmm mv matmul addmm addmv addbmm baddbmm tensordot "
    "nn.functional.linear nn.functional.bilinear nn.functional.linear_cross_entropy cdist nn.functional.conv_transpose1d "
    "nn.functional.conv_transpose2d nn.functional.conv_transpose3d nn.functional.glu sum amax cumsum sort nn.functional.relu var"
)


@pytest.mark.parametrize("label", EMPTY.split())
def test_empty_tensors_pass_where_pytorch_takes_them(label: str) -> None:
    assert not list(refused_empties(label))


def test_the_known_ones_still_differ() -> None:
    """At least one of a kind: a reason that no longer holds is no reason."""
    for label in ("round/decimals_0", "masked.logsumexp", "nn.functional.pdist"):
        assert list(differences(label, numbers=False)), label
