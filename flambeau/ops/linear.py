"""Products: matmul and its relatives, einsum, tensordot, outer and dot products."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from math import prod as product_of
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.dtypes import promote_types
from flambeau.foreign import refuse
from flambeau.ops import primitives as prim
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.primitive import laid_out
from flambeau.ops.promotion import convert, fitted, result_type
from flambeau.ops.registry import Number, operation
from flambeau.ops.remembered import remembered
from flambeau.ops.shape import as_shape, dim_of
from flambeau.ops.tied import tied
from flambeau.ops.wrapper import twin
from flambeau.trace.mutation import into
from flambeau.trace.objects import _TENSOR
from flambeau.trace.strides import iterator_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


_HALVES = (dtypes.float16, dtypes.bfloat16)


def _one_dtype(name: str, *tensors: Any) -> None:
    first = tensors[0].dtype
    for x in tensors[1:]:
        if x.dtype is not first:
            raise RuntimeError(f"{name}: expected m1 and m2 to have the same dtype, but got: {first.name} != {x.dtype.name}; convert one of them")


def _product(a: Any, b: Any, wide: bool = False) -> Any:
    """The primitive, with booleans refused and small results of vectors left to it."""
    d = a._meta.dtype
    if d in dtypes.FLOATS8:
        return convert(prim.matmul(convert(a, dtypes.float32), convert(b, dtypes.float32)), d)
    return prim.matmul(a, b, wide=True) if wide and d in _HALVES else prim.matmul(a, b)


def _matrix_shapes(name: str, a: Any, b: Any) -> None:
    if a._meta.shape[-1] != b._meta.shape[-2]:
        raise RuntimeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied ({a._meta.shape[-2]}x{a._meta.shape[-1]} and "
            f"{b._meta.shape[-2]}x{b._meta.shape[-1]}): the last dimension of the first, {a._meta.shape[-1]}, must equal the "
            f"second to last of the second, {b._meta.shape[-2]} (shapes {tuple(a._meta.shape)} and {tuple(b._meta.shape)})"
        )


def matmul_of(a: Any, b: Any, name: str = "matmul", wide: bool = False) -> Any:
    """NumPy's matmul rule, inside a body. `wide`: the product of 16-bit operands in float32, as it is accumulated, for what is added to it before
    both are rounded."""
    from flambeau.ops.primitive import broadcast_shapes

    _one_dtype(name, a, b)
    if a._meta.dtype in dtypes.FLOATS8 and (a._meta.ndim == 1 or b._meta.ndim != 2):
        refuse_dtype("bmm", a._meta.dtype)
    na, nb = a._meta.ndim, b._meta.ndim
    if na == 0 or nb == 0:
        raise RuntimeError(f"{name}: both arguments to matmul need to be at least 1D, but they are {na}D and {nb}D")
    x = as_shape(a, (1, a._meta.shape[0])) if na == 1 else a
    y = as_shape(b, (b._meta.shape[0], 1)) if nb == 1 else b
    if na == 1 and nb == 1 and a._meta.shape[0] != b._meta.shape[0]:
        raise RuntimeError(f"{name}: inconsistent tensor size, expected tensor {tuple(a.shape)} and src {tuple(b.shape)} to have the same number of elements")
    _matrix_shapes(name, x, y)
    sx, sy = tuple(x._meta.shape), tuple(y._meta.shape)
    if len(sy) == 2 and len(sx) > 2:  # fold the batch into the rows: one large product
        rows = product_of(sx[:-1])
        result = as_shape(_product(as_shape(x, (rows, sx[-1])), y, wide), (*sx[:-1], sy[-1]))
    elif len(sx) == 2 and len(sy) == 2:
        result = _product(x, y, wide)
    else:
        batch = broadcast_shapes(name, [sx[:-2], sy[:-2]])
        x = prim.expand(x, shape=(*batch, *sx[-2:])) if sx[:-2] != batch else x
        y = prim.expand(y, shape=(*batch, *sy[-2:])) if sy[:-2] != batch else y
        result = _product(x, y, wide)
    shape = list(result._meta.shape)
    if na == 1:
        del shape[-2]
    if nb == 1:
        del shape[-1]
    return as_shape(result, tuple(shape)) if (na == 1 or nb == 1) else result


@operation(method=True, out=True, aliases=("linalg_matmul",))
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, batched over leading dims that broadcast; vectors count as a row or a column."""
    return matmul_of(input, other)


def _need(name: str, x: Any, ndim: int, argument: str) -> None:
    if x._meta.ndim != ndim:
        kind = {1: "vector", 2: "matrix", 3: "batch of matrices"}[ndim]
        raise RuntimeError(f"{name}: {argument} must be a {kind} ({ndim}D), got shape {tuple(x._meta.shape)}")


@operation(method=True, out=True)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _need("mm", input, 2, "self")
    _need("mm", mat2, 2, "mat2")
    return matmul_of(input, mat2, "mm")


@operation(name="_int_mm", public=False)
def integer_product(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two int8 matrices in int32, which they are not widened for."""
    return prim.matmul(input, mat2, wide=True)  # type: ignore[no-any-return]


@operation(method=True, out=True)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two equally long batches of matrices."""
    _need("bmm", input, 3, "batch1")
    _need("bmm", mat2, 3, "batch2")
    if input._meta.shape[0] != mat2._meta.shape[0] or input._meta.shape[2] != mat2._meta.shape[1]:
        b, n, m = input._meta.shape
        raise RuntimeError(
            f"bmm: Expected size for first two dimensions of batch2 tensor to be: [{b}, {m}] but got: [{mat2._meta.shape[0]}, {mat2._meta.shape[1]}]."
        )
    return matmul_of(input, mat2, "bmm")


@operation(method=True, out=True)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector."""
    _need("mv", input, 2, "input")
    _need("mv", vec, 1, "vec")
    if input._meta.shape[1] != vec._meta.shape[0]:
        raise RuntimeError(f"mv: size mismatch, got input ({input._meta.shape[0]}x{input._meta.shape[1]}), vec ({vec._meta.shape[0]})")
    return matmul_of(input, vec, "mv")


@operation(method=True, out=True)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The dot product of two vectors of equal length."""
    if input._meta.ndim != 1 or tensor._meta.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input._meta.ndim}D and {tensor._meta.ndim}D tensors")
    return matmul_of(input, tensor, "dot")


@operation(method=True, out=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product with the first vector conjugated."""
    if input._meta.ndim != 1 or other._meta.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input._meta.ndim}D and {other._meta.ndim}D tensors")
    return matmul_of(prim.conj_physical(input) if input.dtype.is_complex else input, other, "vdot")


@operation(method=True, out=True, aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors."""
    _need("outer", input, 1, "self")
    _need("outer", vec2, 1, "vec2")
    return as_shape(input, (input._meta.shape[0], 1)) * vec2


@operation(method=True, out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dims."""
    if input._meta.ndim == 0 or other._meta.ndim == 0:
        return input * other
    if input._meta.shape[-1] != other._meta.shape[-1]:
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and {list(other.shape)}")
    k = input._meta.shape[-1]
    left = as_shape(input, (product_of(input._meta.shape[:-1]), k))
    right = as_shape(other, (product_of(other._meta.shape[:-1]), k))
    result = matmul_of(left, prim.permute(right, dims=(1, 0)), "inner")
    return as_shape(result, (*input._meta.shape[:-1], *other._meta.shape[:-1]))


def _affine(name: str, base: Any, product: Any, beta: Any, alpha: Any, terms: int = 1) -> Any:
    """beta * base + alpha * product; a beta of 0 ignores base, NaN included, and an alpha of 0 the product where PyTorch's does.

    `terms`: of the product; of none, alpha is not looked at.
    """
    narrow = base.dtype
    if name in ("addmv", "addr"):  # the numbers must fit into 16 bits, too
        for number in (beta, alpha):
            fitted(number, narrow, name)
    if not terms:
        alpha, product = 1, tied(prim.full_of(tuple(product._meta.shape), _nothing(narrow)), product)
    if narrow in _HALVES:  # beta and alpha keep their digits, and the result is rounded once
        product, base = convert(product, dtypes.float32), convert(base, dtypes.float32)
        return convert(_affine(f"{name} of {narrow}", base, product, beta, alpha, terms), narrow)
    blas = _by_blas(name, product, terms)
    if not (isinstance(alpha, (int, float)) and alpha == 1):
        alpha = fitted(alpha, product.dtype, name)
        scaled = prim.mul(product, alpha)
        product = prim.where(prim.eq(alpha, 0), _nothing(product.dtype), scaled) if blas else scaled
    if not (isinstance(beta, (int, float)) and beta == 1):
        beta = fitted(beta, product.dtype, name)
        nothing = _nothing(product.dtype) if terms else prim.constant(0, product.dtype)
        ignored = prim.eq(beta, 0)
        base = prim.where(ignored, nothing, prim.mul(prim.where(ignored, nothing, base), beta))  # the inner one keeps NaN out of gradients
    return prim.add(product, base)


def _by_blas(name: str, product: Any, terms: int) -> bool:
    """Whether PyTorch leaves the sum to BLAS, which does not read what is multiplied by 0: infinities and NaN in it have no effect."""
    m = product._meta
    if m.dtype.category < 2 or m.dtype.itemsize < 4:
        return False
    if name == "baddbmm":  # small ones are loops
        return bool(m.shape[-1] * m.shape[-2] * terms >= 400)
    return name in ("addmm", "addbmm") or (name == "addmv" and not m.dtype.is_complex)


def _nothing(kind: Any) -> Any:
    """What is added without changing a bit."""
    return prim.constant(-0.0 if kind.is_floating_point else 0, kind)


def _fits(name: str, base: Any, product: Any) -> None:
    from flambeau.ops.primitive import broadcast_shapes

    target = tuple(product._meta.shape)
    if broadcast_shapes(name, [base._meta.shape, target]) != target:
        raise RuntimeError(f"{name}: the expanded size of the tensor {tuple(base.shape)} must match the size of the product {target}")


def _with_base(name: str, ndims: tuple[int, int], text: str) -> Any:
    def body(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        _need(name, mat1, ndims[0], "mat1")
        _need(name, mat2, ndims[1], "mat2")
        _one_dtype(name, input, mat1, mat2)
        product = matmul_of(mat1, mat2, name, wide=True)
        _fits(name, input, product)
        return _affine(name, input, product, beta, alpha, mat1._meta.shape[-1])

    body.__doc__ = text
    names = {"addmm": ("mat1", "mat2"), "addmv": ("mat", "vec"), "baddbmm": ("batch1", "batch2")}[name]
    import inspect

    signature = inspect.signature(body)
    renamed = [p.replace(name=dict(zip(("mat1", "mat2"), names, strict=True)).get(k, k)) for k, p in signature.parameters.items()]
    body.__signature__ = signature.replace(parameters=renamed)  # type: ignore[attr-defined]
    return operation(name=name, method=True, inplace=True, out=True)(body)


addmm = _with_base("addmm", (2, 2), "beta * input + alpha * (mat1 @ mat2).")
addmv = _with_base("addmv", (2, 1), "beta * input + alpha * (mat @ vec).")
baddbmm = _with_base("baddbmm", (3, 3), "beta * input + alpha * (batch1 @ batch2), for each matrix of the batch.")


@operation(method=True, out=True)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * the sum of all products of the batch."""
    _need("addbmm", batch1, 3, "batch1")
    _need("addbmm", batch2, 3, "batch2")
    b, n, k = batch1._meta.shape
    left = as_shape(prim.permute(batch1, dims=(1, 0, 2)), (n, b * k))
    right = as_shape(batch2, (b * k, batch2._meta.shape[2]))
    return _affine("addbmm", input, matmul_of(left, right, "addbmm", wide=True), beta, alpha, b * k)


@operation(method=True, inplace=True, out=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    kind = functools.reduce(promote_types, [x._meta.dtype for x in (input, vec1, vec2)])  # one without dims counts as much
    for what, number in (("beta", beta), ("alpha", alpha)):
        if isinstance(number, bool) and kind is not dtypes.bool_:
            raise RuntimeError(f"addr(): Boolean {what} only supported for Boolean results, but the result is {kind}; give a number")
        if kind.category < 2 and (isinstance(number, (float, complex)) or (hasattr(number, "_meta") and number._meta.dtype.category > 1)):
            raise RuntimeError(f"addr(): For integral input tensors, argument {what} must not be a floating point number.")
    for name, vector in (("vec1", vec1), ("vec2", vec2)):
        if vector._meta.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {vector._meta.ndim}-D")
    column = as_shape(vec1, (vec1._meta.shape[0], 1))
    result = _affine("addr", convert(input, kind), prim.mul(convert(column, kind), convert(vec2, kind)), beta, alpha)
    return laid_out(result, iterator_strides([x._meta for x in (input, column, vec2)], tuple(result._meta.shape)))


@operation(name="tensordot")
def _tensordot(a: Tensor, b: Tensor, left: tuple[int, ...], right: tuple[int, ...]) -> Tensor:
    la = [d for d in range(a._meta.ndim) if d not in left]
    lb = [d for d in range(b._meta.ndim) if d not in right]
    for i, j in zip(left, right, strict=True):
        if a._meta.shape[i] == 1 != b._meta.shape[j]:  # one of a for all of b
            b = as_shape(prim.sum(b, dims=(j,)), _ones_at(b, j))
        elif b._meta.shape[j] == 1 != a._meta.shape[i]:
            a = as_shape(prim.sum(a, dims=(i,)), _ones_at(a, i))
        if a._meta.shape[i] != b._meta.shape[j]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a._meta.shape[i]} in dim {i} and second has size {b._meta.shape[j]} in dim {j}"
            )
    k = product_of([a._meta.shape[d] for d in left])
    x = as_shape(prim.permute(a, dims=(*la, *left)), (product_of([a._meta.shape[d] for d in la]), k))
    y = as_shape(prim.permute(b, dims=(*right, *lb)), (k, product_of([b._meta.shape[d] for d in lb])))
    return as_shape(matmul_of(x, y, "tensordot"), (*[a._meta.shape[d] for d in la], *[b._meta.shape[d] for d in lb]))


def _ones_at(x: Any, dim: int) -> tuple[int, ...]:
    return tuple([1 if j == dim else s for j, s in enumerate(x._meta.shape)])


@remembered
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Sums of products over `dims` dims (the last of a with the first of b), or over listed pairs of dims."""
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0 or dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims >= 0 and at most the number of dimensions, but got dims={dims}")
        left, right = tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))
    else:
        first, second = dims
        first, second = ([v] if isinstance(v, int) else list(v) for v in (first, second))
        left = tuple([dim_of(int(d), a.ndim) for d in first])
        right = tuple([dim_of(int(d), b.ndim) for d in second])
        if len(left) != len(right):
            raise RuntimeError("both dimension lists should have same length")
    return into(out, _tensordot(a, b, left, right), "tensordot")


# -- einsum -------------------------------------------------------------------------------------------------------


def _subscripts(text: str, start: int, where: str, ellipsis: str) -> tuple[list[str], bool]:
    """The labels of one term, "..." for the dots, and whether it has dots. `start`: its place in the equation, `where`: whose it is."""
    labels: list[str] = []
    place, dots = 0, False
    while place < len(text):
        character = text[place]
        if character == ".":
            if dots:
                raise RuntimeError(f"einsum(): found '.' for {where} {'but' if where == 'output' else 'for which'} an ellipsis {ellipsis}was already found")
            if text[place : place + 3] != "...":
                raise RuntimeError(f"einsum(): found '.' for {where} that is not part of any ellipsis")
            dots, place = True, place + 3
            labels.append("...")
            continue
        if character != " ":
            if not (character.isascii() and character.isalpha()):
                raise RuntimeError(
                    f"einsum(): invalid subscript given at index {start + place} in the equation string, subscripts must be in [a-zA-Z], not {character!r}"
                )
            labels.append(character)
        place += 1
    return labels, dots


def _parse_einsum(equation: str, operands: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
    """Labels of each operand and of the result; the ellipsis becomes numbered labels ("...", k)."""
    left, arrow, right = equation.partition("->")
    terms, start = [], 0
    for i, term in enumerate(left.split(",")):
        terms.append(_subscripts(term, start, f"operand {i}", ""))
        start += len(term) + 1
    if len(terms) != len(operands):
        raise RuntimeError(
            "einsum(): more operands were provided than specified in the equation" if len(operands) > len(terms)
            else "einsum(): fewer operands were provided than specified in the equation"
        )  # fmt: skip
    widest = 0
    parsed: list[list[Any]] = []
    for i, ((labels, dots), x) in enumerate(zip(terms, operands, strict=True)):
        named = len(labels) - dots
        extra = x._meta.ndim - named
        if (extra < 0) or (extra and not dots):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) {'is more than' if dots else 'does not match'} the number of dimensions "
                f"({x._meta.ndim}) for operand {i}{'' if dots else ' and no ellipsis was given'}"
            )
        widest = max(widest, extra)
        parsed.append(_with_numbers(labels, extra))
    if arrow:
        result = _with_numbers(_subscripts(right, len(left) + 2, "output", "(...) ")[0], widest)
    else:
        flat = [label for term in parsed for label in term if isinstance(label, str)]
        result = [*_with_numbers(["..."], widest), *sorted({label for label in flat if flat.count(label) == 1})]
    known = {label for term in parsed for label in term}
    for label in result:
        if label not in known:
            raise RuntimeError(f"einsum(): output subscript {label} does not appear in the equation for any input operand")
        if result.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {label} appears more than once in the output")
    return parsed, result


def _with_numbers(labels: Sequence[str], dims: int) -> list[Any]:
    """Labels with those of so many dims in the place of "..."."""
    return [one for label in labels for one in ([("...", k) for k in range(dims, 0, -1)] if label == "..." else [label])]


def _diagonals(x: Any, labels: list[Any], operand: int) -> tuple[Any, list[Any]]:
    """Repeated labels of operand number `operand`: take the diagonal."""
    labels = list(labels)
    while True:
        again = next((label for label in labels if labels.count(label) > 1), None)
        if again is None:
            return x, labels
        a = labels.index(again)
        b = labels.index(again, a + 1)
        if x._meta.shape[a] != x._meta.shape[b]:
            sizes = f"{x._meta.shape[b]} != {x._meta.shape[a]}"
            raise RuntimeError(f"einsum(): subscript {again} is repeated for operand {operand} but the sizes don't match, {sizes}")
        x = prim.diagonal(x, offset=0, dim1=a, dim2=b)
        labels = [label for d, label in enumerate(labels) if d not in (a, b)] + [again]


def _pair(x: Any, lx: list[Any], y: Any, ly: list[Any], later: set[Any]) -> tuple[Any, list[Any]]:
    """Contract two operands as one batched matrix product; labels that nobody needs later are summed."""
    kinds = x.dtype, y.dtype
    size = dict(zip(lx, x._meta.shape, strict=True))
    for label, s in zip(ly, y._meta.shape, strict=True):
        if size.get(label, 1) == 1:
            size[label] = s

    def drop(z: Any, lz: list[Any], other: list[Any]) -> tuple[Any, list[Any]]:
        alone = tuple([d for d, label in enumerate(lz) if label not in other and label not in later])
        if alone:
            z = prim.sum(convert(z, dtypes.int64) if z.dtype.category < 2 else z, dims=alone)
            lz = [label for d, label in enumerate(lz) if d not in alone]
        return z, lz

    x, lx = drop(x, lx, ly)
    y, ly = drop(y, ly, lx)
    shared = [label for label in lx if label in ly]
    batch = [label for label in shared if label in later]
    inner_labels = [label for label in shared if label not in later]
    if inner_labels and x.dtype is not y.dtype:
        if kinds[0] is not kinds[1]:
            raise RuntimeError(f"einsum(): operands that are contracted must have one dtype, but found {kinds[0]} and {kinds[1]}; convert one of them")
        x, y = convert(x, dtypes.int64), convert(y, dtypes.int64)  # a sum of whole numbers is int64
    if inner_labels and x.dtype is dtypes.bool_:
        raise NotImplementedError("einsum(): contractions are not implemented for bool; convert the operands to an integer dtype")
    rows = [label for label in lx if label not in shared]
    columns = [label for label in ly if label not in shared]

    def arrange(z: Any, lz: list[Any], order: list[Any], groups: tuple[list[Any], list[Any], list[Any]]) -> Any:
        z = prim.permute(z, dims=tuple([lz.index(label) for label in order]))
        full = tuple([size[label] for label in order])
        if tuple(z._meta.shape) != full:
            z = prim.expand(z, shape=full)
        return as_shape(z, tuple([product_of([size[label] for label in group]) for group in groups]))

    if not inner_labels:  # an outer or elementwise product: let it fuse
        order = batch + rows + columns

        def spread(z: Any, lz: list[Any]) -> Any:
            z = prim.permute(z, dims=tuple([lz.index(label) for label in order if label in lz]))
            return as_shape(z, tuple([z._meta.shape[[q for q in order if q in lz].index(label)] if label in lz else 1 for label in order]))

        kind = result_type(x, y)
        return prim.mul(convert(spread(x, lx), kind), convert(spread(y, ly), kind)), order
    a = arrange(x, lx, batch + rows + inner_labels, (batch, rows, inner_labels))
    b = arrange(y, ly, batch + inner_labels + columns, (batch, inner_labels, columns))
    result = prim.matmul(a, b)
    order = batch + rows + columns
    return as_shape(result, tuple([size[label] for label in order])), order


@operation(name="einsum")
def _einsum(operands: Sequence[Tensor], equation: str) -> Tensor:
    parsed, result = _parse_einsum(equation, operands)
    sizes: dict[Any, int] = {}
    work: list[tuple[Any, list[Any]]] = []
    for i, (x, labels) in enumerate(zip(operands, parsed, strict=True)):
        x, labels = _diagonals(x, labels, i)
        for label, s in zip(labels, x._meta.shape, strict=True):
            if sizes.get(label, 1) != 1 and s not in (1, sizes[label]):
                what = f"subscript {label} has" if isinstance(label, str) else "a dimension covered by the ellipsis has"
                raise RuntimeError(f"einsum(): {what} size {s} for operand {i} which does not broadcast with previously seen size {sizes[label]}")
            sizes[label] = max(sizes.get(label, 1), s) if s else 0
        work.append((x, labels))
    while len(work) > 1:
        (x, lx), (y, ly), rest = work[0], work[1], work[2:]
        later = set(result).union(*[set(labels) for _, labels in rest])
        work = [_pair(x, lx, y, ly, later), *rest]
    x, labels = work[0]
    alone = tuple([d for d, label in enumerate(labels) if label not in result])
    if alone:
        x = prim.sum(convert(x, dtypes.int64) if x.dtype.category < 2 else x, dims=alone)  # as `sum` does; products keep the dtype
        labels = [label for label in labels if label in result]
    order = tuple([labels.index(label) for label in result])
    if order != tuple(range(len(order))):
        return prim.permute(x, dims=order)
    return prim.alias(x) if x is operands[0] else x


_LACKS = "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"


def _letter(label: Any) -> str:
    """The letter of a dim's number in a list of subscripts."""
    if label is Ellipsis:
        return "..."
    if isinstance(label, _TENSOR[0]) and label.numel() != 1:
        raise RuntimeError(f"einsum(): a subscript of a subscripts list must be one whole number, not a tensor of shape {tuple(label.shape)}")
    try:
        number = operator.index(label)
    except TypeError:
        raise TypeError(f"einsum(): a subscript of a subscripts list must be an Ellipsis or a whole number in [0, 52), not {label!r}") from None
    if not 0 <= number < 52:
        raise ValueError(f"einsum(): a subscript of a subscripts list must be within the valid range [0, 52), not {number}")
    return chr(ord("A") + number if number < 26 else ord("a") + number - 26)


def _equation(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation and the operands of einsum's other form: tensor, labels, tensor, labels, ... and perhaps the result's labels."""
    equation = ",".join(["".join(map(_letter, labels)) for labels in arguments[1::2]])
    if len(arguments) % 2:
        return equation + "->" + "".join(map(_letter, arguments[-1])), arguments[:-1:2]
    return equation, arguments[::2]


def _spread(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of einsum with its operands one by one, where they came as one list."""
    while len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])
    return args


def einsum(*args: Any) -> Tensor:
    """Sums of products in Einstein's notation: "bik,bkj->bij" and the operands, or each operand followed by the list of its dims' numbers.

    Pairs are contracted from left to right. RuntimeError where equation and operands do not fit; TypeError for what is no string or no tensor;
    ValueError for nothing, and for numbers of dims outside of [0, 52).
    """
    if len(args) < 2:
        raise ValueError(_LACKS)
    first = args[0]
    if isinstance(first, _TENSOR[0]):
        equation, operands = _equation(args)
    else:
        if isinstance(first, bytes):
            first = first.decode("latin-1")
        if not isinstance(first, str):
            raise TypeError(f"einsum(): argument 'equation' (position 1) must be str, not {type(first).__name__}")
        equation, *operands = _spread((first, *args[1:]))
        if not operands:
            raise ValueError(_LACKS)
    for i, x in enumerate(operands):
        if not isinstance(x, _TENSOR[0]):
            refuse((x,), "einsum()")
            raise TypeError(f"einsum(): expected Tensor as element {i} in argument 'operands' (position 2), but got {type(x).__name__}")
    return _einsum(operands, equation)  # type: ignore[no-any-return]


einsum.asked_as = _spread  # type: ignore[attr-defined]


@operation(method=True)
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    _need("trace", input, 2, "self")
    d = prim.diagonal(input, offset=0, dim1=0, dim2=1)
    return prim.sum(convert(d, dtypes.int64) if d.dtype.category < 2 else d, dims=(0,))


@operation(method=True, out=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product."""
    n = max(input._meta.ndim, other._meta.ndim)
    a = (1,) * (n - input._meta.ndim) + tuple(input._meta.shape)
    b = (1,) * (n - other._meta.ndim) + tuple(other._meta.shape)
    x = as_shape(input, tuple([s for size in a for s in (size, 1)]))
    y = as_shape(other, tuple([s for size in b for s in (1, size)]))
    return as_shape(x * y, tuple([p * q for p, q in zip(a, b, strict=True)]))


def _rmatmul(self: Tensor, other: Any) -> Any:
    return matmul(other, self)


def _imatmul(self: Tensor, other: Tensor) -> Tensor:
    return matmul(self, other)  # type: ignore[no-any-return]


def install_methods(cls: Any) -> None:
    """The @ operator."""
    cls.__matmul__ = twin(matmul, "__matmul__")
    cls.__rmatmul__ = twin(_rmatmul, "__rmatmul__")
    cls.__imatmul__ = twin(_imatmul, "__imatmul__")
