"""Names, order and kinds of parameters that differ between namespaces and overloads: the same calls give the same texts, or the same errors."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

from tests.documentation.compare import same_text  # noqa: E402 - the line above may skip

# Calls with m (the module), F, x (2, 3), y (2, 4, 4), I (twice the identity), p (pivots) and w (5, 3).
CALLS = """
m.tensor_split(y, sections=2); m.tensor_split(y, indices=(1,)); m.tensor_split(y, tensor_indices_or_sections=m.tensor(2)); m.hsplit(y, sections=2)
m.vsplit(y, indices=(1,))
m.dsplit(y, indices=(1, 3)); y.hsplit(2); m.tensor_split(y); m.swapaxes(x, axis0=0, axis1=1); m.swapaxes(x, dim0=0, dim1=1); x.swapaxes(0, 1)
m.swapdims(x, dim0=0, dim1=1)
x.view(); x.reshape(); x.expand(); x.permute(); x.flip(); x.tile(); x.repeat(); x.sum_to_size(); x.clone().resize_(); x.view(size=(3, 2))
x.reshape(shape=(6,)); x.repeat(repeats=(1, 2))
m.inverse(input=I); m.inverse(A=I); m.det(input=I); m.det(A=I); m.cholesky_solve(I, input2=I); m.cholesky_inverse(input=I)
m.orgqr(I, input2=m.ones(3))
m.ormqr(input=I, input2=m.ones(3), input3=I); m.lu_solve(input=I, LU_data=I, LU_pivots=p); m.matrix_exp(input=I); m.linalg.matrix_exp(input=I)
m.linalg.matrix_exp(A=I)
m.isin(element=1.0, test_elements=x); m.isin(elements=x, test_element=1); m.isin(1.0, x); m.isin(x, 1, invert=True); m.isin(1, 1); m.isin(x, x[0])
m.special.airy_ai(x=x + 1); m.special.airy_ai(input=x); m.special.spherical_bessel_j0(x=x); m.special.chebyshev_polynomial_t(x=x, n=2)
m.special.chebyshev_polynomial_t(input=x, n=2)
m.special.legendre_polynomial_p(x, 2, out=m.empty(0)); m.special.softmax(x, 1, m.float64); m.special.multigammaln(x + 3, 2, out=m.empty(0))
m.linalg.vector_norm(input=x); m.linalg.vector_norm(x=x); m.linalg.vector_norm(x, out=m.empty(0)); m.linalg.vector_norm()
m.promote_types(type1=m.float32, type2=m.int32); m.result_type(tensor=x, other=x); m.result_type(tensor=x, scalar=1)
m.result_type(scalar1=1, scalar2=2); m.result_type(x)
m.diff(x, out=m.empty(0)); m.softmax(x, 1, m.float64); m.softmax(x); m.softmax(x, axis=0); m.log_softmax(x, 1, m.float64)
x.norm(2, 0, False, m.float64)
m.kl_div(x, x, 1); m.kl_div(x, x, reduction=2, log_target=True); m.kl_div(x, x, reduction='mean'); m.rrelu(x, 0.1, 0.2, False, None)
m.dropout(x, p=0.5, train=False); m.dropout(x)
x.clone().copy_(other=x); x.copy_(src=x); x.is_pinned(device='cpu'); x.clone().random_(**{'from': 3, 'to': 4}); x.clone().random_(to=1)
x.where(condition=x > 0, other=x)
m.ones_like(x, pin_memory=None); m.fill_(input=x.clone(), value=1); m.zero_(input=x.clone()); m.detach_(input=x.clone())
m.resize_as_(input=x.clone(), the_template=x)
m.index_put(input=x, indices=(m.tensor(0),), values=m.tensor(1.0)); m.histogramdd(x, [2, 2, 2], None, None, True); m.nuclear_norm(x, False)
m.nuclear_norm(x, (0, 1), True)
m.frobenius_norm(x, (0, 1), True); m.frobenius_norm(x); m.gcd(m.tensor([12, 8]), m.tensor([8, 3]), out=m.empty(0, dtype=m.int64))
m.kron(x, x, out=m.empty(0)); m.msort(x, out=m.empty(0))
m.cross(x, x + 1, dim=1, out=m.empty(0)); m.float_power(x, 2, out=m.empty(0, dtype=m.float64)); m.mvlgamma(x + 3, 2, out=m.empty(0))
m.histogram(x, 2); m.aminmax(x); x.nanmedian(0)
m.col_indices_copy(I.to_sparse_csr()); m.view_as_real_copy(m.view_as_complex(x[:, :2])); m.view_as_complex_copy(x[:, :2]); m.slice_copy(x, 1, 0, 2)
m.slice_copy(x, 1, out=m.empty(0))
m.embedding_bag(w, m.tensor([0, 1, 2, 4]), m.tensor([0, 2]), False, 0)[0]; m.embedding_bag(w, m.tensor([0, 1, 2, 4]), m.tensor([0, 2]), False, 1)[:3]
m.i0_(x.clone())
m.layer_norm(x, (3,), None, None, 1e-5, False); m.group_norm(x[None], 2, cudnn_enabled=False); m.max_pool1d(x, 2, stride=()); m.max_pool2d(x[None], 2)
m.cosine_embedding_loss(x, x + 1, m.tensor([1, 1]), 0.1, 2); m.triplet_margin_loss(x, x + 1, x - 1, reduction=0)
m.margin_ranking_loss(x, x, m.ones(2, 3), 0.1, 1)
m.ctc_loss(m.log_softmax(m.ones(4, 1, 3), 2), m.tensor([[1, 2]]), m.tensor([4]), m.tensor([2]), 0, 1); m.lstm(x); m.tril_indices(2, 2)
x.float(memory_format=m.preserve_format)
m.sparse_csr_tensor(m.tensor([0, 1]), m.tensor([0]), m.tensor([1.0]), layout=m.sparse_csr); x.t().contiguous(memory_format=m.contiguous_format)
m.sym_sum((1, 2, 3))
m.asarray([1, 2], copy=False); m.asarray(x, dtype=m.float64, copy=False); m.asarray(x, copy=True, requires_grad=True)
m.asarray(bytearray(8), dtype=m.int32); m.asarray(5.0)
m.Generator().set_state(m.Generator().get_state()) is not None; x[0, 'a']; m.sort(x, stable=True, descending=True)
m.linalg.lstsq(I[None], m.ones(2, 3, 1)).rank; x.index(0)
F.grad.conv2d_input((1, 2, 4, 4), m.ones(4, 1, 3, 3), m.ones(1, 4, 2, 2), 2, 1, 1, 2); F.grad.conv1d_weight(y, (3, 4, 2), m.ones(2, 3, 3))
F.grad.conv3d_weight(y[None], (1, 1, 2, 2, 2), m.ones(1, 1, 1, 3, 3))
"""


def scope_of(module: Any) -> dict[str, Any]:
    """The names that calls use."""
    return {
        "m": module, "F": module.nn.functional, "x": module.arange(6.0).view(2, 3), "y": module.ones(2, 4, 4), "I": module.eye(3) * 2,
        "p": module.tensor([1, 2, 3], dtype=module.int32), "w": module.arange(15.0).view(5, 3),
    }  # fmt: skip


@pytest.mark.parametrize("call", [c.strip() for line in CALLS.strip().splitlines() for c in line.split("; ")])
def test_call(call: str) -> None:
    shown = []
    for module in (torch, flambeau):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                shown.append(repr(eval(call, scope_of(module))))
            except Exception as error:
                shown.append(type(error).__name__)
    assert same_text(*shown), shown


def test_recurrent_network_by_keywords() -> None:
    shown = []
    for module in (torch, flambeau):
        torch.manual_seed(0)
        flambeau.manual_seed(0)
        layer, x = module.nn.LSTM(3, 2), module.ones(4, 1, 3)
        state = (module.zeros(1, 1, 2), module.zeros(1, 1, 2))
        shown.append(
            repr(
                module.lstm(
                    input=x, hx=state, params=tuple(layer.parameters()), has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False,
                    batch_first=False,
                )[0].detach()
            )
        )  # fmt: skip
    assert same_text(*shown), shown
