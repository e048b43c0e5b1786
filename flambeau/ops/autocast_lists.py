"""Which operations autocast runs in lower precision, in float32, or in the widest dtype of their arguments.

The lists are those of PyTorch 2.13's CPU autocast (aten/src/ATen/autocast_mode.cpp, the kernels under AutocastCPU), by the
names of our recorded operations. Functions that are several of our operations follow these (inverse is linalg_inv_ex). PyTorch's
compositions (einsum, tensordot, inner, the recurrent cells) follow the products inside them. What is not listed runs as without
autocast.

A call is cast inside its own edge of the trace: casts of one tensor are one node (common subexpressions), and their
gradients come back in the tensor's own dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from flambeau import dtypes
from flambeau.trace.recorder import local
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from flambeau.ops.registry import Operation

LOWER: Final = frozenset(
    "matmul mm bmm addmm addbmm baddbmm linalg_vecdot linear prelu scaled_dot_product_attention "
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "einsum tensordot inner lstm_layer".split()
)
FLOAT32: Final = frozenset(
    # reductions, movement, sampling
    "prod quantile_values cdist_values trace polar view_as_complex grid_sample avg_pool3d max_pool3d adaptive_avg_pool3d "
    # losses
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss huber_values "
    "kl_div l1_values margin_ranking_loss mse_values multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss "
    "smooth_l1_values soft_margin_loss triplet "
    # linear algebra
    "cholesky_inverse cholesky_solve lu_solve geqrf ormqr linalg_cholesky_ex linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh "
    "linalg_householder_product linalg_inv_ex linalg_lstsq linalg_pinv linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv "
    # Fourier transforms
    "fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2 fft_irfft2 fft_rfftn fft_irfftn fft_hfft "
    "fft_ihfft".split()
)
WIDEST: Final = frozenset("cat stack index_copy".split())
# Compositions whose inside is under autocast, too: the products run in lower precision, the state keeps its own.
INSIDE: Final = frozenset("gru_layer rnn_layer lstm_cell gru_cell rnn_cell".split())

LISTED: Final = LOWER | FLOAT32 | WIDEST | INSIDE
_made: dict[tuple[Operation, dtypes.dtype], Callable[..., Any]] = {}


def casting(op: Operation, lower: dtypes.dtype) -> Callable[..., Any]:
    """The body of an operation under autocast to `lower`: it takes placeholders and casts them first, where a list says so."""
    found = _made.get((op, lower))
    if found is None:
        found = _made[op, lower] = _casting(op, lower)
    return found


def _casting(op: Operation, lower: dtypes.dtype) -> Callable[..., Any]:
    name = op.name.removeprefix("nn.functional.").replace(".", "_")
    body = op.apply
    if name in INSIDE:
        return lambda *args: _run_inside(body, lower, args)
    if name in LOWER:
        return lambda *args: body(*[cast(a, lower) for a in args])
    if name in FLOAT32:
        return lambda *args: body(*[cast(a, dtypes.float32) for a in args])
    if name == "pad_by_index":
        return lambda *args: body(*([cast(a, dtypes.float32) for a in args] if _listed_padding(*args) else args))
    if name in WIDEST:
        return lambda *args: body(*_widest(args, lower))
    return body


def _run_inside(body: Callable[..., Any], lower: dtypes.dtype, args: Sequence[Any]) -> Any:
    return while_set(local.trace, "autocast", lower, body, *args)


def _listed_padding(input: Any, pad: Sequence[int], mode: str) -> bool:
    """One operation of ours is seven of PyTorch's, of which five are listed: reflection in 1-D and 2-D, replication."""
    return mode == "replicate" or (mode == "reflect" and len(pad) <= 4)


def eligible(x: Any) -> bool:
    """Whether autocast may change the dtype of an argument: floating tensors, but for float64, and no Python numbers."""
    m = getattr(x, "_meta", None)
    return m is not None and not m.wrapped and m.dtype.is_floating_point and m.dtype is not dtypes.float64


def cast(x: Any, to: dtypes.dtype) -> Any:
    """An argument (a tensor, a list of them, anything else) with its eligible tensors in the dtype `to`; inside a body."""
    from flambeau.ops import primitives as prim

    if isinstance(x, list):
        return [cast(item, to) for item in x]
    return prim.cast(x, dtype=to) if eligible(x) and x._meta.dtype is not to else x


def float32_under_autocast(x: Any) -> Any:
    """An argument of a listed function that is not one operation: in float32 where autocast is on."""
    return x.to(dtypes.float32) if local.main.autocast is not None and eligible(x) else x


def _widest(args: Sequence[Any], lower: dtypes.dtype) -> list[Any]:
    """PyTorch's `promote` policy: float32 if any eligible argument has it (or another dtype than `lower`), else `lower`."""
    flat = [x for a in args for x in (a if isinstance(a, list) else [a]) if eligible(x)]
    to = lower if all(x._meta.dtype is lower for x in flat) else dtypes.float32
    return [cast(a, to) for a in args]
