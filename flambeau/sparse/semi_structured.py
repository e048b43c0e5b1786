"""torch.sparse.to_sparse_semi_structured: matrices of which at most two of four neighbours of a row are not zero (2:4 sparsity).

A SparseSemiStructuredTensor keeps the values and a bit for each place: in float32 34 bytes of 64, in 16 bits 18 of 32. A product with few rows reads only
these (compiler/kernels/two_of_four.py); one with many, or where there is no instruction for it, multiplies by the dense weight, which is made for the call.
PyTorch has this on CUDA only, in its libraries' packing; here `packed` and `meta` are flambeau's own on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import flambeau as torch
from flambeau.compiler.graph import TWO_OF_FOUR_BLOCK
from flambeau.ops.dispatch import admit
from flambeau.ops.primitives.two_of_four import spread, two_of_four_matmul
from flambeau.ops.registry import operation
from flambeau.runtime.target import vector_bits
from flambeau.tensor import Tensor

FEW_ROWS = 64  # up to which the values are multiplied as they are; a product of more rows is worth making the dense weight
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@operation(name="semi_structured_product")  # type: ignore[untyped-decorator]
def _product(x: Tensor, packed: Tensor, meta: Tensor) -> Tensor:
    return two_of_four_matmul(x, packed, meta)  # type: ignore[no-any-return]


@operation(name="semi_structured_to_dense")  # type: ignore[untyped-decorator]
def _spread(packed: Tensor, meta: Tensor) -> Tensor:
    return spread(packed, meta)  # type: ignore[no-any-return]


def _rows_times_weight(x: Tensor, packed: Tensor, meta: Tensor) -> Tensor:
    """(M, N): x (M, K) times the transpose of the weight (N, K), in x's dtype."""
    if x.dtype is not packed.dtype:
        raise RuntimeError(f"SparseSemiStructuredTensor: expected a dense matrix of {packed.dtype}, as the sparse one is, got {x.dtype}")
    if x.shape[1] != packed.shape[1] * 2:
        raise RuntimeError(f"SparseSemiStructuredTensor: a weight of shape {(packed.shape[0], packed.shape[1] * 2)} times {x.shape[1]} features")
    if x.shape[0] <= FEW_ROWS and x.device.type == "cpu" and vector_bits() == 512:
        return _product(x.float().contiguous(), packed, meta).to(x.dtype)  # type: ignore[attr-defined, no-any-return]
    return x @ _spread(packed, meta).t()  # type: ignore[no-any-return]


class SparseSemiStructuredTensor(Tensor):
    """A matrix (N, K): `packed` (N, K / 2), the values that are kept, and `meta` (N, K / 8), uint8, whose bit k % 8 of byte k / 8 says that k is.

    Of a transposed one they are `packed_t` and `meta_t`. It can be the weight of F.linear (and of nn.Linear), and be multiplied by a dense matrix; it has
    t, detach, clone, to(device or dtype) and to_dense. NotImplementedError for all else. Gradients with respect to the dense operand only.
    """

    BACKEND = "flambeau"
    SPARSE_DISPATCH: ClassVar[dict[str, Callable[..., Any]]] = {}

    packed: Tensor | None
    meta: Tensor | None
    packed_t: Tensor | None
    meta_t: Tensor | None

    @staticmethod
    def __new__(cls: Any, shape: Any, packed: Any, meta: Any, packed_t: Any = None, meta_t: Any = None, requires_grad: bool = False) -> Any:
        given = packed if packed is not None else packed_t
        if given is None:
            raise ValueError("SparseSemiStructuredTensor: at least one of packed or packed_t must be provided")
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, tuple(shape), dtype=given.dtype, device=given.device, requires_grad=requires_grad
        )
        made.packed, made.meta, made.packed_t, made.meta_t = packed, meta, packed_t, meta_t
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(shape={self.shape})"

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Any, ...]]:
        names = [n for n in ("packed", "meta", "packed_t", "meta_t") if getattr(self, n) is not None]
        return names, (tuple(self.shape), self.requires_grad)

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, outer_size: Any = None, outer_stride: Any = None) -> Any:
        return cls(context[0], *[inner.get(n) for n in ("packed", "meta", "packed_t", "meta_t")], requires_grad=context[1])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "_overloadpacket", func).__name__
        handler = cls.SPARSE_DISPATCH.get(name)
        if handler is None:
            raise NotImplementedError(f"{cls.__name__} only supports a specific set of operations, can't perform requested op ({func}); use to_dense()")
        return handler(*args, **(kwargs or {}))

    @classmethod
    def from_dense(cls, original_tensor: Tensor, alg_id: int = 0) -> SparseSemiStructuredTensor:
        """Of a matrix; see to_sparse_semi_structured."""
        return to_sparse_semi_structured(original_tensor)

    def to_dense(self, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
        """The matrix with its zeros."""
        packed, meta = self._parts()
        found = _spread(packed, meta)
        found = found if self.packed is not None else found.t()
        return found if dtype is None else found.to(dtype)  # type: ignore[no-any-return]

    def values(self) -> Tensor:
        """The values that are kept."""
        return self._parts()[0]

    def indices(self) -> Tensor:
        """The bits that say where they are."""
        return self._parts()[1]

    def _parts(self) -> tuple[Tensor, Tensor]:
        return (self.packed, self.meta) if self.packed is not None else (self.packed_t, self.meta_t)  # type: ignore[return-value]


admit(SparseSemiStructuredTensor)
# PyTorch has a class for each of two libraries of GPUs.
SparseSemiStructuredTensorCUSPARSELT = SparseSemiStructuredTensorCUTLASS = SparseSemiStructuredTensor


def _with(s: SparseSemiStructuredTensor, change: Callable[[Tensor], Tensor], values_only: bool = False) -> SparseSemiStructuredTensor:
    keep: Callable[[Tensor], Tensor] = (lambda t: t) if values_only else change
    parts = [p if p is None else f(p) for p, f in ((s.packed, change), (s.meta, keep), (s.packed_t, change), (s.meta_t, keep))]
    return SparseSemiStructuredTensor(s.shape, *parts)  # type: ignore[call-arg, arg-type]


def _transposed(s: SparseSemiStructuredTensor) -> SparseSemiStructuredTensor:
    return SparseSemiStructuredTensor((s.shape[1], s.shape[0]), s.packed_t, s.meta_t, s.packed, s.meta)  # type: ignore[call-arg, arg-type]


def _mm(a: Any, b: Any) -> Tensor:
    """A product of which one side is a sparse matrix."""
    if isinstance(a, SparseSemiStructuredTensor) and isinstance(b, SparseSemiStructuredTensor):
        raise ValueError("SparseSemiStructuredTensor @ SparseSemiStructuredTensor is not supported; use to_dense() of one")
    if isinstance(b, SparseSemiStructuredTensor):
        if b.packed is not None:
            return a @ b.to_dense()  # type: ignore[no-any-return]
        found = _rows_times_weight(a.reshape(-1, a.shape[-1]), b.packed_t, b.meta_t)  # type: ignore[arg-type]
        return found.view(*a.shape[:-1], b.shape[1])
    if a.packed is None or b.ndim != 2:
        return a.to_dense() @ b  # type: ignore[no-any-return]
    return _rows_times_weight(b.t(), a.packed, a.meta).t()  # type: ignore[no-any-return]


def _addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return bias * beta + _mm(a, b) * alpha  # type: ignore[no-any-return]


def _linear(input: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
    if not isinstance(weight, SparseSemiStructuredTensor):
        raise NotImplementedError("SparseSemiStructuredTensor: linear needs it as the weight")
    found = _mm(input, _transposed(weight))
    return found if bias is None else found + bias


def _to(s: SparseSemiStructuredTensor, *args: Any, dtype: Any = None, device: Any = None, **_: Any) -> SparseSemiStructuredTensor:
    for a in args:
        dtype, device = (a, device) if isinstance(a, torch.dtype) else (dtype, a) if isinstance(a, (str, torch.device)) else (dtype, device)
    if dtype is not None and dtype not in _DTYPES:
        raise RuntimeError(f"Error original_tensor.dtype {dtype} is not a supported dtype for {type(s).__name__}!")
    moved = s if device is None else _with(s, lambda t: t.to(device))
    return moved if dtype is None else _with(moved, lambda t: t.to(dtype), values_only=True)


SparseSemiStructuredTensor.SPARSE_DISPATCH.update(
    mm=_mm, matmul=_mm, addmm=_addmm, linear=_linear, t=_transposed, detach=lambda s: _with(s, Tensor.detach), alias=lambda s: _with(s, lambda t: t),
    clone=lambda s, **_: _with(s, Tensor.clone), _to_copy=_to, to=_to, values=lambda s: s.values(), indices=lambda s: s.indices(),
    view=lambda s, size: _viewed(s, size),
)  # fmt: skip


def _viewed(s: SparseSemiStructuredTensor, size: Any) -> SparseSemiStructuredTensor:
    if tuple(size) not in (tuple(s.shape), (-1, s.shape[1])):
        raise NotImplementedError(f"`view` is not implemented for SparseSemiStructuredTensor, except for the case of {tuple(s.shape)} itself")
    return _with(s, lambda t: t)


def to_sparse_semi_structured(original_tensor: Tensor, transposed: bool = False, alg_id: int = 0) -> SparseSemiStructuredTensor:
    """The semi-structured form of a matrix (N, K) of float32, bfloat16 or float16, on any device. K must be a multiple of 16.

    RuntimeError where more than two of four neighbours of a row are not zero (docs/quantization.md shows how to prune so), and for other
    dtypes, dims and shapes. `transposed` and `alg_id` are accepted, as in PyTorch.
    """
    if original_tensor.ndim != 2:
        raise RuntimeError(f"Error original_tensor.dim = {original_tensor.ndim} is not supported! Only 2d tensors are currently supported.")
    if original_tensor.dtype not in _DTYPES:
        raise RuntimeError(f"Error original_tensor.dtype {original_tensor.dtype} is not a supported dtype for SparseSemiStructuredTensor!")
    rows, count = original_tensor.shape
    if rows == 0 or count == 0 or count % TWO_OF_FOUR_BLOCK:
        raise RuntimeError(
            f"Error original_tensor.shape {tuple(original_tensor.shape)} is not supported! Both dimensions must be larger or equal than and a multiple of "
            f"(1, {TWO_OF_FOUR_BLOCK})"
        )
    fours = original_tensor.detach().view(rows, count // 4, 4)
    there = fours != 0
    number = there.sum(-1, keepdim=True)
    if int(number.max()) > 2:
        raise RuntimeError(
            f"to_sparse_semi_structured: {int((number > 2).sum())} of {number.numel()} groups of four neighbours of a row have more than two values that are "
            "not zero; take the mask of two of four first"
        )
    # Two of each four are kept, in their order; zeros fill up where fewer than two are not zero.
    kept = (there.float() * 2 - torch.arange(4) / 8).topk(2, dim=-1)[1].sort(-1)[0]
    packed = fours.gather(-1, kept).view(rows, count // 2)
    bits = torch.zeros(rows, count // 4, 4, dtype=torch.uint8).scatter(-1, kept, 1)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    meta = (bits.view(rows, count // 8, 8) * weights).sum(-1).to(torch.uint8)
    return SparseSemiStructuredTensor((rows, count), packed, meta, requires_grad=original_tensor.requires_grad)  # type: ignore[call-arg, arg-type]
