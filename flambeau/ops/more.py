"""Small public names that are not operations of their own: copies of views, in-place views, questions, windows; and the
installation of joining.py, numeric.py and foreach.py into the torch namespace and the Tensor class."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.layouts import strided
from flambeau.ops import foreach, joining, numeric
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.elementwise import conj, conj_physical, neg_view
from flambeau.ops.former_orders import formerly
from flambeau.ops.linear import addbmm, addmm, mm
from flambeau.ops.named import public
from flambeau.ops.wrapper import MISSING
from flambeau.trace.meta import CONJ, NEG
from flambeau.trace.mutation import assign, lead_others_anew, make_ready, refuse_leaf, refuse_made_without_gradients
from flambeau.trace.objects import twin
from flambeau.trace.storage import changed_shape, count_as
from flambeau.trace.while_set import while_switched
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

VIEWS = "transpose squeeze unsqueeze t swapaxes swapdims as_strided".split()
COPIES = "alias as_strided detach diagonal expand narrow permute select split squeeze t transpose unbind unfold unsqueeze view".split()
INPLACE = "gcd lcm put masked_scatter index_reduce".split()


@upward
def refuse_one_of_many(target: Tensor, name: str) -> None:
    """RuntimeError if a view is one of several of a call, or a custom function's (autograd/one_of_many.py)."""
    raise NotImplementedError


@upward
def leave_to_what_it_was(t: Tensor) -> None:
    """Before an in-place view: hooks are of what the tensor has been until now (autograd/hooks.py)."""
    raise NotImplementedError


# -- in-place views -------------------------------------------------------------------------------------------------
def become_view(self: Tensor, view: Callable[[Any], Any], name: str) -> Tensor:
    """Make `self` the view `view(self)` of its own memory; its history becomes the view's."""
    from flambeau.trace.evaluate import flush
    from flambeau.trace.recorder import local, storage_of

    refuse_leaf(self, name)
    if local.main.grad_enabled:
        refuse_made_without_gradients(self)
        if self.requires_grad:
            refuse_one_of_many(self, name)
    source = self
    if self._history is not None:  # an earlier segment's value: the view must lead back to it, so it keeps its own name
        flush(local.main, "in-place view")
        source = twin(self)
    if self.requires_grad and not self.is_leaf:
        lead_others_anew(self)
    if self.requires_grad and self.is_leaf:
        self._replace(view(source))  # without gradients it stays a leaf
        changed_shape(storage_of(self))
        return self
    if self._hooks or self._retains_grad:
        leave_to_what_it_was(self)
    tr = local.main

    def become() -> None:
        made = while_switched(tr.set_grad_enabled, tr.grad_enabled, True, view, source)  # a no_grad block takes no history away
        self._take(made)
        self._detached = made._detached
        self._became = storage_of(self).cut

    tr.holding(become)
    changed_shape(storage_of(self))
    return self


def _view_in_place(name: str) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return become_view(self, lambda x: getattr(x, name)(*args, **kwargs), name + "_")

    method.__name__ = method.__qualname__ = name + "_"
    method.__doc__ = f"In-place form of `{name}`: the tensor becomes that view of its own memory."
    return method


def resize_(self: Tensor, *sizes: Any, size: Any = MISSING, memory_format: Any = None) -> Tensor:
    """Another shape in place, contiguous in the memory format: the first elements of the storage are kept, new ones are uninitialised."""
    from flambeau.ops.creation import check_counts, empty
    from flambeau.ops.shape import sizes_given
    from flambeau.trace.recorder import storage_of
    from flambeau.trace.strides import format_strides

    shape = sizes_given("resize_", "size", sizes, size)
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if tuple(self.shape) == shape:
        return self
    if shape:
        check_counts(shape, self.element_size())
    numel, before = math.prod(shape), self._version
    capacity = self.untyped_storage().nbytes() // self.element_size() - self.storage_offset()
    strides = format_strides(shape, None, memory_format)
    if numel <= capacity:
        return become_view(self, lambda x: x.as_strided(shape, strides, x.storage_offset()), "resize_")
    storage = self._storage
    if (
        self.storage_offset() or (storage is not None and storage.external is not None) or (storage is not None and getrefcount(storage) > 3)
    ):  # others may see the memory: it grows where it is
        self.untyped_storage().resize_((self.storage_offset() + numel) * self.element_size())
        become_view(self, lambda x: x.as_strided(shape, strides, x.storage_offset()), "resize_")
        count_as(storage_of(self), before + 1)
        return self
    grown = empty((numel,), dtype=self.dtype, device=self.device)
    grown[:capacity] = self.as_strided((capacity,), (1,), self.storage_offset())
    self._take(grown.as_strided(shape, strides))
    count_as(storage_of(self), before + 1)
    return self


def addbmm_(self: Tensor, batch1: Tensor, batch2: Tensor, *former: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """In-place form of `addbmm`; as PyTorch's, it resizes a tensor that is repeated along dims of the result."""
    if former:
        return formerly("addbmm_", addbmm_, 3, (self, batch1, batch2, *former), {})  # type: ignore[no-any-return]
    batch1, batch2 = make_ready(self, (batch1, batch2), "addbmm_")
    result = addbmm(self, batch1, batch2, beta=beta, alpha=alpha)
    if tuple(result.shape) != tuple(self.shape):
        resize_(self, tuple(result.shape))
    return assign(self, result, "addbmm_", True)


_shown = inspect.signature(addbmm_)  # without the former order
addbmm_.__signature__ = _shown.replace(parameters=[p for p in _shown.parameters.values() if p.kind is not p.VAR_POSITIONAL])  # type: ignore[attr-defined]


def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """resize_ to the shape of another tensor; with preserve_format also to its memory format."""
    from flambeau.ops.shape import suggested_format
    from flambeau.queries import contiguous_format, preserve_format
    from flambeau.trace.strides import format_strides

    m = the_template._meta
    if memory_format is preserve_format:
        memory_format = suggested_format(m)
    result = resize_(input, tuple(m.shape))
    if memory_format in (None, contiguous_format):
        return result
    return become_view(result, lambda x: x.as_strided(m.shape, format_strides(tuple(m.shape), None, memory_format), x.storage_offset()), "resize_as_")


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Fill the main diagonal in place; with `wrap`, of a tall matrix again after each full square."""
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError(f"all dimensions of input must be of equal length, got {tuple(self.shape)}")
    shape, strides = tuple(self.shape), self.stride()
    count, step = min(shape), sum(strides)
    self.as_strided((count,), (step,), self.storage_offset()).fill_(fill_value)
    if wrap and self.ndim == 2:
        rows, columns = shape
        for start in range(columns + 1, rows, columns + 1):
            length = min(columns, rows - start)
            self.as_strided((length,), (step,), self.storage_offset() + start * strides[0]).fill_(fill_value)
    return self


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it. Slow: for checks only."""
    return map_all(self, (), callable)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and of another tensor's."""
    return map_all(self, (tensor,), callable)


def map_all(self: Tensor, others: tuple[Any, ...], function: Callable[..., Any]) -> Tensor:
    """`function` of the elements of self and of the others, written over self."""
    from flambeau.ops.from_data import tensor

    if self.requires_grad:
        raise TypeError("apply_() and map_() cannot be called on a Tensor that requires grad")
    if any(x.requires_grad for x in others):
        raise RuntimeError("Can't call map_() or map2_() with a Tensor that requires grad. Use detach() first.")
    if not callable(function):
        raise TypeError(f"'{type(function).__name__}' object is not callable: the last argument of apply_(), map_() and map2_() must be a function")
    rows = [x.expand(self.shape).reshape(-1).tolist() for x in (self, *others)]
    values = [function(*items) for items in zip(*rows, strict=True)]
    wrong = next((v for v in values if not isinstance(v, (int, float, complex)) and not hasattr(v, "item")), None)
    if wrong is not None:
        raise TypeError(f"apply_(), map_() and map2_() take a function that gives numbers, got one that gave {wrong!r}")
    return self.copy_(tensor(values, dtype=self.dtype).reshape(self.shape))  # type: ignore[no-any-return]


# -- writing --------------------------------------------------------------------------------------------------------
@public("index_reduce")
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """A copy with the slices of `source` reduced (prod, mean, amax, amin) into the slices at `index` of a dim."""
    from flambeau.ops.indexing import check_rows
    from flambeau.ops.shape import dim_of

    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin, but got {reduce}.")
    d = dim_of(dim, input.ndim)
    check_rows(input, d, index, source, "index_reduce")
    if (reduce != "mean" or input.dtype.is_complex) and (input.numel() or not include_self):
        refuse_dtype("index_reduce", input.dtype)
    wide = index.reshape([-1 if i == d else 1 for i in range(input.ndim)]).expand(source.shape)
    return input.scatter_reduce(d, wide, source, reduce, include_self=include_self)


def fill(input: Tensor, value: Any) -> Any:
    """A tensor like input with every element `value`."""
    return input.clone().fill_(value)


def detach_(input: Tensor) -> Tensor:
    """Forget the tensor's history, in place."""
    return input.detach_()


# -- questions ------------------------------------------------------------------------------------------------------
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return tuple(input.shape) == tuple(other.shape)


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same memory."""
    same = self.shape == tensor.shape and self.stride() == tensor.stride()
    if not same or self.dtype is not tensor.dtype or self.storage_offset() != tensor.storage_offset():
        return False
    return bool(self.untyped_storage() == tensor.untyped_storage())  # of memories without bytes the addresses are one


def is_conj(input: Tensor) -> bool:
    """Whether the tensor is a view of memory that has the conjugates of its elements."""
    return bool(input._meta.bits & CONJ)


def is_neg(input: Tensor) -> bool:
    """Whether the tensor is a view of memory that has the negatives of its elements."""
    return bool(input._meta.bits & NEG)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.is_signed()


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, or a copy if it is a view of conjugates (`is_conj`)."""
    return input.clone() if input._meta.bits & CONJ else input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, or a copy if it is a view of negatives (`is_neg`)."""
    return input.clone() if input._meta.bits & NEG else input


def adjoint(input: Tensor) -> Any:
    """The conjugate of the last two dims transposed."""
    return input.mH


def _copy_of_view(name: str) -> Any:
    def call(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        from flambeau.queries import contiguous_format
        from flambeau.trace.mutation import into
        from flambeau.trace.recorder import name_operation

        if name == "alias" and args:
            raise TypeError(f"alias_copy() takes 1 positional argument but {len(args) + 1} were given")
        method = {"alias": "view_as", "view": "reshape"}.get(name, name)  # a copy of any view, whether or not there is one
        try:
            made = getattr(input, method)(*((input,) if name == "alias" else args), **kwargs)
        except Exception as error:
            name_operation(error, name + "_copy")
            raise
        if out is None:
            parts = [x.clone(memory_format=contiguous_format) for x in (made if isinstance(made, tuple) else (made,))]
            return tuple(parts) if isinstance(made, tuple) else parts[0]
        for target, part in zip(out, made, strict=True) if isinstance(made, tuple) else ((out, made),):
            into(target, part, name + "_copy")
        return None if isinstance(made, tuple) else out

    call.__name__ = call.__qualname__ = name + "_copy"
    call.__doc__ = f"`{name}` as a copy."
    return call


@public("view_as_complex_copy")
def view_as_complex_copy(input: Tensor) -> Any:
    """`view_as_complex` as a copy."""
    import flambeau

    return flambeau.view_as_complex(input).clone()


@public("view_as_real_copy")
def view_as_real_copy(input: Tensor) -> Any:
    """`view_as_real` as a copy."""
    import flambeau

    return flambeau.view_as_real(input).clone()


@public("slice_copy")
def slice_copy(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """input[start:end:step] along a dim, as a copy."""
    import flambeau
    from flambeau.ops.shape import dim_of

    part = input[(slice(None),) * dim_of(dim, input.ndim) + (slice(start, end, step),)]
    return part.clone(memory_format=flambeau.contiguous_format)


# -- creation -------------------------------------------------------------------------------------------------------
def scalar_tensor(s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """A number as a 0-d tensor of the default dtype."""
    from flambeau.ops.from_data import tensor

    kind = dtype or dtypes.get_default_dtype()
    if isinstance(s, complex) and not kind.is_complex:
        raise RuntimeError(f"scalar_tensor(): value cannot be converted to type {kind.name} without overflow: {s} is complex")
    return tensor(s, dtype=kind, device=device, requires_grad=bool(requires_grad))


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], *, dtype: Any = None, **options: Any) -> Any:
    """Uninitialised and dense, with the dims in memory in the order of `physical_layout` (outermost first)."""
    from flambeau.ops.creation import empty

    if sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(f"empty_permuted(): Number of dimensions in size does not match the length of the physical_layout: {size}, {physical_layout}")
    made = empty([size[d] for d in physical_layout], dtype=dtype, **options)
    return made.permute([list(physical_layout).index(d) for d in range(len(size))])


def new_empty_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], dtype: Any = None, **options: Any) -> Any:
    """empty_strided of this tensor's dtype."""
    from flambeau.ops.creation import empty_strided

    return empty_strided(size, stride, dtype=dtype or self.dtype, **{"device": self.device, **options})


def window_dtype(name: str, d: Any) -> Any:
    """The dtype of a window's values: the default one, or the one given, which is floating."""
    kind = d or dtypes.get_default_dtype()
    if not (kind.is_floating_point or kind.is_complex):
        raise RuntimeError(f"{name} expects floating point dtypes, got: {kind}")
    return kind


def _cosine_window(name: str, first: float, second: float, third: float) -> Any:
    """first - second * cos(2 pi n / N) + third * cos(4 pi n / N): the generalised cosine windows."""

    def window(
        window_length: int, periodic: bool = True, alpha: float = first, beta: float = second, *, dtype: Any = None, layout: Any = strided,
        device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    ) -> Any:  # fmt: skip
        from flambeau.ops.creation import arange

        a, b = float(alpha), float(beta)
        kind = window_dtype(name, dtype)
        if window_length < 0:
            raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
        span = window_length if periodic else window_length - 1
        n = arange(window_length, dtype=dtypes.float64)
        x = n * (2 * math.pi / max(span, 1))
        wave: Any = a - b * x.cos()
        if third:
            wave = wave + third * (2 * x).cos()
        if window_length == 1:
            wave = wave * 0 + 1
        return wave.to(device=device, dtype=kind).requires_grad_(requires_grad)

    def plain(
        window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = strided, device: Any = None, pin_memory: bool = False,
        requires_grad: bool = False,
    ) -> Any:  # fmt: skip
        return window(window_length, periodic, dtype=dtype, device=device, requires_grad=requires_grad)

    made = window if name == "hamming_window" else plain  # the others have no coefficients to choose
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"The {name.split('_')[0]} window; `periodic` for spectral analysis, else symmetric."
    return made


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = strided, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """The triangular window; `periodic` for spectral analysis, else symmetric."""
    from flambeau.ops.creation import arange, ones

    kind = window_dtype("bartlett_window", dtype)
    if window_length < 0:
        raise RuntimeError(f"bartlett_window requires non-negative window_length, got window_length={window_length}")
    if window_length == 1:
        return ones(1, dtype=kind, device=device, requires_grad=requires_grad)
    half = (window_length if periodic else window_length - 1) / 2
    n: Any = arange(window_length, dtype=dtypes.float64)
    return (1 - (n / half - 1).abs()).to(device=device, dtype=kind).requires_grad_(requires_grad)


def install(namespace: dict[str, Any], cls: Any) -> None:
    """All of it into the torch namespace and the Tensor class, where a name is not taken yet."""
    functions: dict[str, Any] = {f.__name__: f for f in (*joining.FUNCTIONS, *numeric.FUNCTIONS)}
    methods: dict[str, Any] = {f.__name__: f for f in (*joining.METHODS, *numeric.METHODS)}
    both = (index_reduce, is_same_size, is_conj, is_neg, resolve_conj, resolve_neg, resize_as_, adjoint)
    f: Any
    for f in both:
        functions[f.__name__] = methods[f.__name__] = f
    for name, whole in (("_neg_view", neg_view), ("_conj", conj), ("_conj_physical", conj_physical)):
        functions[name] = methods[name] = whole
    functions |= {"_conj_copy": _copy_of_view("conj"), "_neg_view_copy": _copy_of_view("_neg_view")}
    for f in (fill, is_signed, scalar_tensor, empty_permuted, bartlett_window):
        functions[f.__name__] = f
    for f in (addbmm_, resize_, fill_diagonal_, apply_, map_, is_set_to, new_empty_strided):
        methods[f.__name__] = f
    functions |= {"row_stack": joining.row_stack, "trapz": numeric.trapz, "spmm": mm}
    functions |= foreach.functions()
    for name in COPIES:
        functions[name + "_copy"] = _copy_of_view(name)
    functions |= {"view_as_complex_copy": view_as_complex_copy, "view_as_real_copy": view_as_real_copy, "slice_copy": slice_copy, "saddmm": addmm}
    methods["narrow_copy"] = functions["narrow_copy"]
    # the coefficients are those of torch.hann_window, hamming_window, blackman_window
    functions["hann_window"] = _cosine_window("hann_window", 0.5, 0.5, 0.0)
    functions["hamming_window"] = _cosine_window("hamming_window", 0.54, 0.46, 0.0)
    functions["blackman_window"] = _cosine_window("blackman_window", 0.42, 0.5, 0.08)
    for name in VIEWS:
        methods[name + "_"] = _view_in_place(name)
    functions["as_strided_"] = methods["as_strided_"]
    for name in INPLACE:
        methods[name + "_"] = in_place(name)
    functions |= {"gcd_": methods["gcd_"], "lcm_": methods["lcm_"]}
    functions |= {"fill_": cls.fill_, "zero_": cls.zero_, "detach_": detach_}
    for name, f in functions.items():
        namespace.setdefault(name, f)
    for name, f in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, f)


def in_place(name: str) -> Any:
    """The method `name_`, made of the method `name`."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        from flambeau.trace.mutation import replace

        return replace(getattr(type(self), name), self, args, kwargs, name + "_")

    method.__name__ = method.__qualname__ = name + "_"
    method.__code__ = method.__code__.replace(co_name=name + "_")  # errors that are found late say it (trace/place.py)
    method.__doc__ = f"In-place form of `{name}`: the result replaces the values of the tensor, which is returned."
    return method
