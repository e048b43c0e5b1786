"""The core operators of ATen, each with a call: what a module is made of, and what it is given.

A call is (operator with its overload, arguments). Tensors are letters: `x` (3, 4), `y` like it, `p` positive, `u` within (-1, 1), `b` of bools, `i` of
integers, and others that `tensors` lists. `UNREACHABLE` says which operators no exported program has, and why.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np


def tensors() -> dict[str, Any]:
    """The arrays that calls name by letters."""
    r = np.random.default_rng(0)

    def real(*shape: int) -> Any:
        return r.standard_normal(shape).astype("f")

    return {
        "x": real(3, 4), "y": real(3, 4), "p": np.abs(real(3, 4)) + 1.1, "u": r.uniform(-0.9, 0.9, (3, 4)).astype("f"), "b": real(3, 4) > 0,
        "c": real(3, 4) > 0, "i": r.integers(1, 9, (3, 4)), "j": r.integers(1, 9, (3, 4)), "m": real(4, 5), "v": real(5), "w": real(4),
        "n": np.array([1.0, np.nan, np.inf, -np.inf], "f"), "A": real(2, 3, 4), "B": real(2, 4, 5), "I": real(2, 4, 6, 6), "K": real(6, 2, 3, 3),
        "o": real(6), "g": np.abs(real(4)) + 0.5, "h": real(4), "V": real(2, 3, 4, 6, 6), "s": np.array([2, 0, 1]), "t": np.array([[0, 2, 1, 0]]),
        "z": r.integers(0, 6, (7,)), "T": real(6, 4), "f": np.array([0, 3, 5]), "q": r.uniform(-1, 1, (2, 5, 5, 2)).astype("f"), "C": real(1, 18, 9),
        "L": real(2, 4, 8), "G": real(2, 6, 6, 6), "P": real(2, 4, 3, 3), "Q": real(7, 4), "M": (real(2, 4, 4) + 1j * real(2, 4, 4)).astype("complex64"),
        "S": real(2, 4, 6), "U": real(2, 4, 1), "F": real(2, 4, 2, 2), "k": real(12), "D": real(4, 4),
    }  # fmt: skip


CALLS: Final = """
_adaptive_avg_pool2d.default(I, [2, 2]); _adaptive_avg_pool3d.default(V, [2, 2, 2]); _adaptive_avg_pool2d_backward.default(F, I)
_cdist_forward.default(A, S[:, :3, :4], 2.0, None); _pdist_forward.default(x, 2.0)
_embedding_bag.default(T, z, f, False, 1, False, None)
_fft_r2c.default(A, [2], 0, True); _fft_c2r.default(M, [2], 2, 6)
_log_softmax.default(x, 1, False); _softmax.default(x, 1, False)
_native_batch_norm_legit.no_stats(I, g, h, True, 0.1, 1e-05); _native_batch_norm_legit_no_training.default(I, g, h, h, g, 0.1, 1e-05)
_to_copy.default(x, dtype=float64); abs.default(x); acos.default(u); acosh.default(p); add.Scalar(x, 2.5, 2); add.Tensor(x, y, alpha=2)
addmm.default(v, x, m, beta=0.5, alpha=2); alias.default(x); amax.default(x, [1]); amin.default(x, [0], True); any.default(b); any.dim(b, 1)
any.dims(b, [0, 1]); arange.start_step(1, 9, 2, device=cpu, pin_memory=False); argmax.default(x, 1); argmin.default(x)
as_strided.default(x, [2, 2], [4, 1], 1); asin.default(u); asinh.default(x); atan.default(x); atan2.default(x, y); atanh.default(u)
avg_pool2d.default(I, [2, 2], [2, 2], [1, 1], True, False); avg_pool2d_backward.default(P, I, [2, 2], [2, 2], [0, 0], False, True, None)
avg_pool3d.default(V, [2, 2, 2], [2, 2, 2]); bitwise_and.Scalar(i, 3); bitwise_and.Tensor(i, j); bitwise_not.default(i); bitwise_or.Scalar(i, 3)
bitwise_or.Tensor(i, j); bitwise_xor.Scalar(i, 3); bitwise_xor.Tensor(i, j); bmm.default(A, B); cat.default([x, y], 1); ceil.default(x)
clamp.default(x, -0.5, 0.5); clamp.Tensor(x, u, p); clone.default(x); col2im.default(C, [5, 5], [3, 3], [1, 1], [0, 0], [1, 1])
constant_pad_nd.default(x, [1, 2, 0, 1], 0.5); convolution.default(I, K, o, [1, 1], [1, 1], [1, 1], False, [0, 0], 2)
convolution_backward.default(G, I, K, [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 2, [True, True, True])
copy.default(x, y); cos.default(x); cosh.default(x); cumsum.default(x, 1); diagonal.default(D, 1); div.Scalar(x, 3.0)
div.Scalar_mode(x, 0.3, rounding_mode='floor'); div.Tensor(x, p); div.Tensor_mode(x, p, rounding_mode='trunc'); elu.default(x, 1.5, 1.1)
embedding.default(T, z); embedding_dense_backward.default(Q, z, 6, -1, False)
empty.memory_format([2, 3], device=cpu, pin_memory=False); empty_strided.default([2, 3], [3, 1], device=cpu, pin_memory=False)
eq.Scalar(i, 3); eq.Tensor(i, j); erf.default(x); exp.default(x); expand.default(w, [2, 4]); expm1.default(x); fill.Scalar(x, 2.0)
flip.default(x, [0, 1]); floor.default(x); fmod.Scalar(x, 0.7); fmod.Tensor(x, p); full.default([2, 3], 1.5, device=cpu, pin_memory=False)
full_like.default(x, 2.0, pin_memory=False); gather.default(x, 0, t); ge.Scalar(x, 0.1); ge.Tensor(x, y); gelu.default(x, approximate='tanh')
grid_sampler_2d.default(I, q, 0, 0, False); gt.Scalar(x, 0.1); gt.Tensor(x, y); hardtanh.default(x, -0.5, 0.7); index.Tensor(x, [s, None])
index_put.default(x, [s], w, True); index_select.default(x, 0, s); isinf.default(n); isnan.default(n); le.Scalar(x, 0.1); le.Tensor(x, y)
leaky_relu.default(x, 0.2); log.default(p); log10.default(p); log1p.default(p); log2.default(p); logical_and.default(b, c); logical_not.default(b)
logical_or.default(b, c); logical_xor.default(b, c); lt.Scalar(x, 0.1); lt.Tensor(x, y); masked_scatter.default(x, b, k); max.dim(x, 1)
max_pool2d_with_indices.default(I, [2, 2], [2, 2], [1, 1]); max_pool3d_with_indices.default(V, [2, 2, 2], [2, 2, 2])
max_pool2d_with_indices_backward.default(P, I, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
maximum.default(x, y); mean.default(x); mean.dim(x, [1], True); min.dim(x, 1); minimum.default(x, y); mm.default(x, m); mul.Scalar(x, 2.5)
mul.Tensor(x, y); native_dropout.default(x, 0.5, False); native_group_norm.default(I, g, h, 2, 4, 36, 2, 1e-05)
native_group_norm_backward.default(I, I, stat, stat, g, 2, 4, 36, 2, [True, True, True])
native_layer_norm.default(x, [4], g, h, 1e-05); native_layer_norm_backward.default(y, x, [4], row, row, g, h, [True, True, True])
ne.Scalar(i, 3); ne.Tensor(i, j); neg.default(x); permute.default(A, [2, 0, 1]); pow.Scalar(2.0, x); pow.Tensor_Scalar(x, 3)
pow.Tensor_Tensor(p, x); prod.default(x); prod.dim_int(x, 1); rand.default([2, 3], device=cpu, pin_memory=False)
randn.default([2, 3], device=cpu, pin_memory=False); randperm.default(5, device=cpu, pin_memory=False); reciprocal.default(p)
reflection_pad1d.default(S, [1, 2]); reflection_pad2d.default(I, [1, 2, 2, 1]); reflection_pad3d.default(V, [1, 1, 2, 1, 1, 2]); relu.default(x)
remainder.Scalar(x, 0.7); remainder.Tensor(x, p); repeat.default(x, [2, 1, 3]); replication_pad2d.default(I, [1, 2, 2, 1])
replication_pad3d.default(V, [1, 1, 2, 1, 1, 2]); round.default(x); rsqrt.default(p)
scalar_tensor.default(2.5, device=cpu, pin_memory=False); scatter.src(x, 0, t, y); scatter.value(x, 0, t, 2.0)
scatter_add.default(x, 0, t, y); scatter_reduce.two(x, 0, t, y, 'amax'); select.int(A, 1, 2); select_scatter.default(x, w, 0, 1)
sigmoid.default(x); sign.default(x); sin.default(x); sinh.default(x); slice.Tensor(x, 1, 1, 3); slice_scatter.default(x, y[:, 1:3], 1, 1, 3)
sort.default(x, 1, True); split_with_sizes.default(x, [1, 3], 1); sqrt.default(p); squeeze.dim(U, 2); squeeze.dims(U, [0, 2]); sub.Scalar(x, 2.5, 2)
sub.Tensor(x, y, alpha=2); sum.dim_IntList(x, [1], True); tan.default(x); tanh.default(x); topk.default(x, 2, 1); trunc.default(x)
unsqueeze.default(x, 1); upsample_bilinear2d.vec(I, [9, 8], False, None); upsample_nearest2d.vec(I, None, [2.0, 2.0]); var.correction(x, [1], correction=1)
var.dim(x, [1], False, True); view.default(x, [2, 6]); where.self(b, x, y)
"""

# What gives sizes, or values, to Python, and what writes: an exported program has none of them, or is asked for in another way.
UNREACHABLE: Final = {
    "_local_scalar_dense.default": "a value that Python is given: export refuses it, as values are not known",
    "nonzero.default": "the size of its result depends on values: export refuses it",
    "_native_batch_norm_legit.default": "writes to its statistics; run_decompositions gives _native_batch_norm_legit_functional in PyTorch",
    "atan2.out": "writes into a tensor that is given; export writes atan2.default",
    "sym_numel.default": "a size: export writes sym_size.int, and products of them",
    "sym_size.int": "a size: dynamic programs of test_pt2.py have it",
    "sym_storage_offset.default": "where a view begins is fixed when a program is exported",
    "sym_stride.int": "strides follow from the sizes: export writes them as arithmetic over sym_size.int",
}


def calls() -> dict[str, str]:
    """{"add.Tensor": its call, as an expression over `aten` and the letters}."""
    found = {}
    for call in CALLS.replace("\n", ";").split(";"):
        if call.strip():
            found[call.strip().split("(")[0]] = call.strip()
    return found
