"""Tensor: metadata and operators over the recorder. What the operators mean is in ops/; methods are installed from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flambeau import dtypes, layouts
from flambeau import tensor_asks as asks
from flambeau.devices import CPU, META, Device
from flambeau.dtypes import dtype
from flambeau.foreign import refuse
from flambeau.module_names import is_ours
from flambeau.runtime import memory
from flambeau.trace import reading
from flambeau.trace.blank import refuse_read
from flambeau.trace.debugging import in_a_trace_function
from flambeau.trace.evaluate import observe, observed
from flambeau.trace.existing import from_buffer as from_buffer
from flambeau.trace.immediate import replay
from flambeau.trace.meta import CONJ, NEG, Meta, Size, meta
from flambeau.trace.objects import _TENSOR, bare, from_storage, inner_dict, is_view, twin
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import Trace, local, storage_of
from flambeau.trace.storage import FAMILIES, RESHAPED, Storage
from flambeau.trace.strides import has_format
from flambeau.trace.tiers import OPEN
from flambeau.trace.traces import TRACE_SLOTS
from flambeau.tracebacks import shorten, shorten_bare

_new: Callable[[type], Any] = object.__new__
_READERS = memory.READERS


if TYPE_CHECKING:
    from flambeau.tensor_methods import Methods  # a stub: what ops/ installs
else:
    Methods = object


class Tensor(Methods):
    """A multi-dimensional array of one dtype, with PyTorch's interface.

    Operations on it are recorded and run when a value is looked at; see docs/design.md. Internal state: `_gen` and `_slot`
    name the pending value in a trace; `_storage` is shared with views; `_meta` has shape, strides, dtype and gradient flags.
    """

    # Every tensor has these, at fixed places: native code reads them (ops/known_edge.py). What is `__dict__`'s has its default here.
    __slots__ = ("__dict__", "__weakref__", "_gen", "_immediate", "_meta", "_slot", "_storage", "_view")
    _gen: int
    _slot: int
    _meta: Meta
    _storage: Storage | None
    _immediate: tuple[Any, ...] | None  # the call that made it without a trace, until it is looked at (immediate.py)
    _view: bool  # whether it was made as a view; not set where it was not (is_view)
    _offset: int = 0
    _input_key: tuple[Any, ...] | None = None  # of the edge under which a trace takes it as an input
    _history: tuple[Any, int] | None = None
    _detached: int = 0  # odd: by detach(); even: by .data, whose writes are not counted, as in PyTorch; views have their base's. See Storage
    _set_at: int = -1  # when it was last given other memory by set_(), in the order of segments (trace/storage.ORDER)
    _became: int | None = None  # by an in-place view, when this was `cut` of its storage (arrival.has_own_alias)
    _hooks: dict[int, Any] | None = None
    _post_hooks: dict[int, Any] | None = None
    _grad_dtype: Any = ...  # the dtype that its gradient is to have: None for any, ... for the tensor's own
    _retains_grad: bool = False
    _grad: Tensor | None = None
    _where: Device | None = None  # of a tensor whose class has `__torch_dispatch__`: the device that it says
    __array_priority__ = 1000

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        """Legacy constructor: `Tensor(2, 3)` is uninitialised, `Tensor([1, 2])` has these values (default dtype)."""
        t: Tensor = asks.legacy_constructor(dtypes.get_default_dtype(), *args, any_dtype=True, **kwargs)
        return t if cls is Tensor else t.as_subclass(cls)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not is_ours(cls.__module__):
            asks.admit(cls)
            asks.part(cls)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a subclass does with a function of which it is an argument: the plain function, results as the subclass."""
        return asks.torch_function(cls, func, types, args, kwargs)

    def as_subclass(self, cls: Any) -> Any:
        """The same memory and history as a tensor of another class."""
        return asks.as_subclass(self, cls)

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
        """A tensor of a subclass that shares the memory of `data`, as a leaf."""
        t: Tensor = bare(cls)
        t._take(data.detach())
        # The history of `data` is not its own, whatever is written to either; mostly there is none, and writes are cheaper then.
        t._detached = next(FAMILIES) if data._detached % 2 or (data._meta.requires_grad and not data.is_leaf) else False
        if require_grad:
            t.requires_grad_()
        return t

    # -- metadata -----------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return self._meta.shape

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        shape = self._meta.shape
        if dim is None:
            return shape
        if dim.__class__ is not int:
            require("size", dim, self)
        elif -len(shape) <= dim < len(shape):  # the usual case: 0.3 us less
            return shape[dim]
        return shape[normalize_dim(dim, len(shape))]

    @property
    def dtype(self) -> dtype:
        """The element type."""
        return self._meta.dtype

    @property
    def device(self) -> Device:
        """Where the elements are: `cpu`, or `meta` of a tensor that has none."""
        return self._meta.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._meta.ndim

    def dim(self) -> int:
        """The number of dimensions."""
        return self._meta.ndim

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        return self._meta.numel

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """The step in elements from one index to the next, for each dimension or for one."""
        strides = self._meta.strides
        if dim is None:
            return strides
        if dim.__class__ is not int:
            require("stride", dim, self)
        return strides[normalize_dim(dim, len(strides))]

    def storage_offset(self) -> int:
        """The index in the storage of the first element."""
        return self._offset if self._meta.dynamic else self._meta.offset

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._meta.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._meta.numel * self._meta.dtype.itemsize

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in the order of the memory format, by default row-major, without gaps."""
        if memory_format is None:
            return self._meta.is_contiguous
        _must_be("is_contiguous", "memory_format MemoryFormat", memory_format)
        return has_format(self._meta, memory_format)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating one."""
        return self._meta.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self._meta.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self._meta.dtype.is_signed

    is_cuda = is_sparse = is_quantized = is_mps = is_xpu = is_nested = False
    is_sparse_csr = is_mkldnn = is_vulkan = False
    layout = layouts.strided
    names: Any = None

    @property
    def is_meta(self) -> bool:
        """Whether it has a shape and no elements: the device `meta`."""
        return self._meta.device is META

    @property
    def is_leaf(self) -> bool:
        """Whether gradients stop here: made by the user, or not requiring gradients."""
        m = self._fresh_meta()
        return not m.requires_grad or (m.leaf and self._history is None)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients with respect to this tensor can be asked for."""
        return self._fresh_meta().requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def _fresh_meta(self) -> Meta:
        """The metadata; re-reads a view whose base has been written in place since (its gradient flags may differ)."""
        storage = self._storage
        if storage is not None and (self._gen == -1 or storage.cut >= 0):
            tr = local.trace
            if self._gen != tr.gen and (storage.gen == tr.gen or (storage.cut >= 0 and (self._detached == storage.family or storage.others is not None))):
                tr.resolve(self)
        return self._meta

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Turn the recording of gradients for this leaf on or off, in place."""
        m = self._fresh_meta()
        if m.requires_grad == requires_grad:
            return self
        if not requires_grad and not self.is_leaf:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if requires_grad and not (m.dtype.is_floating_point or m.dtype.is_complex):
            raise RuntimeError(f"only Tensors of floating point and complex dtype can require gradients, got {m.dtype}")
        self._become_leaf(m.variant(requires_grad=requires_grad, leaf=True))
        return self

    def _become_leaf(self, m: Meta) -> None:
        """Give this tensor leaf metadata; a pending value is read again through its storage, as a boundary."""
        if self._storage is not None and self._storage.history is not None:
            asks.forget_leaf(self)
        if self._immediate is not None and type(local.trace) is Trace:
            replay(local.trace, self)  # which could not be done later: it would make the call's own result of this
        if self._gen == local.trace.gen and self._gen != -1:
            storage_of(self)
            self._gen = -2  # known to the trace only through its storage from now on
            listed = local.trace.tensors
            if not any(t is self for t in listed):
                listed.append(self)
        self._history = None
        self._meta = m
        self._input_key = None

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or None."""
        if self._grad is None and self._meta.requires_grad and not self._retains_grad and not self.is_leaf:
            warn_here(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be populated during "
                "autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. "
                "If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead.",
            )  # fmt: skip
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                refuse((value,), "Tensor.grad")
                raise TypeError(f"assigned grad expected to be a Tensor or None but got {type(value).__name__}")
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad: assign a copy (clone()) or another tensor")
            if tuple(value._meta.shape) != tuple(self._meta.shape):
                raise RuntimeError(f"assigned grad has data of a different size: the tensor has shape {tuple(self.shape)}, the gradient {tuple(value.shape)}")
            if value._meta.device is not self._meta.device:
                raise RuntimeError(
                    f"attempting to assign a gradient with device type '{value.device}' to a tensor with device type '{self.device}'. Please ensure that "
                    "the gradient and the tensor are on the same device"
                )
            expected = self._meta.dtype if self._grad_dtype is ... else self._grad_dtype
            if expected is not None and value._meta.dtype is not expected:
                raise RuntimeError(
                    f"attempting to assign a gradient with dtype {value._meta.dtype} to a tensor with grad_dtype {expected}: the gradient must have "
                    "the tensor's grad_dtype (by default the tensor's dtype; None allows any dtype)"
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def grad_dtype(self) -> Any:
        """The dtype in which a leaf's gradient is accumulated: its own unless it is set; None allows any. RuntimeError if it is no leaf."""
        if not self.is_leaf:
            raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
        return self._meta.dtype if self._grad_dtype is ... else self._grad_dtype

    @grad_dtype.setter
    def grad_dtype(self, value: Any) -> None:
        if not self.is_leaf:
            raise RuntimeError("grad_dtype can only be set on leaf tensors.")
        if value is not None and self._grad is not None and self._grad._meta.dtype is not value:
            raise RuntimeError(
                f"Cannot set grad_dtype to {value}: there is already a gradient with dtype {self._grad._meta.dtype}; clear it (.grad = None) first"
            )
        self._grad_dtype = value

    @property
    def grad_fn(self) -> Any:
        """A handle on the history (None for a leaf)."""
        if self.is_leaf:
            return None
        return asks.node_of(self)

    @property
    def output_nr(self) -> int:
        """Which result of its operation this is."""
        if self.is_leaf:
            return 0
        return asks.edge_of(self)[1]

    @property
    def _version(self) -> int:
        storage = self._storage
        if storage is None:
            return 0
        return storage.version + RESHAPED.get(storage, 0) if RESHAPED else storage.version

    @property
    def _base(self) -> Tensor | None:
        """The tensor whose memory this view shares; None of what is no view."""
        from flambeau.trace.bases import base_of

        return base_of(self)

    def _is_view(self) -> bool:
        return is_view(self)

    def _lift(self, made: Tensor) -> Tensor:
        """A tensor that was made in the likeness of this one: under a vmap it gets memory for each sample (func/batch.py)."""
        return made

    # -- values -------------------------------------------------------------------------------------------------
    def const_data_ptr(self) -> int:
        """The address of the first element, for reading."""
        return self.data_ptr()

    def data_ptr(self) -> int:
        """The address of the first element; runs what is pending."""
        return 0 if self._meta.device is not CPU else self._place()

    def _address(self) -> int:
        """The same, for who is going to read there: NotImplementedError where no elements are."""
        if self._meta.bits:
            raise AssertionError("the elements of a conjugate or negative view are read from its memory")
        return self._place()

    def _plain(self) -> Tensor:
        """This tensor, or a copy if its memory has the conjugates or negatives of its elements."""
        return self.clone() if self._meta.bits else self  # type: ignore[attr-defined, no-any-return]

    def _read_as(self, bits: int) -> Tensor:
        """The same memory with these bits (Meta): a view, if they are others."""
        other = self._meta.bits ^ bits
        view = asks.conj(self) if other & CONJ else self
        return asks.neg_view(view) if other & NEG else view

    def _place(self) -> int:
        """The address of the first element, whatever its memory has of it."""
        m, storage, tr = self._meta, self._storage, local.trace
        there = storage is not None and storage.gen < 0 and storage.buffer is not None and self._immediate is None and m.device is CPU
        if there and not OPEN and tr.__class__ is Trace:
            tr.looks += 1  # as `observe` does
        else:
            storage = observe(self)
        assert storage is not None and storage.buffer is not None
        if m.numel == 0:
            return 0
        return storage.buffer.address + (self._offset if m.dynamic else m.offset) * m.dtype.itemsize

    def item(self) -> int | float | bool:
        """The value of a one-element tensor as a Python number."""
        try:
            m = self._meta
            if not m.one_number:
                if m.device is not CPU:
                    raise RuntimeError("Tensor.item() cannot be called on meta tensors")
                if m.numel == 1:
                    return self._plain().item()
                raise RuntimeError(f"item(): a Tensor with {m.numel} elements cannot be converted to Scalar (shape {tuple(m.shape)})")
            call = self._immediate
            if call is not None:  # `observed`, without a call of it where nothing is pending
                tr = local.main
                if call[1] == tr.gen:
                    if tr.state is tr.root and not tr.held:
                        tr.gen += TRACE_SLOTS
                    else:
                        observed(self)
            storage = self._storage
            if storage is None or storage.gen >= 0 or storage.buffer is None or OPEN:
                storage = observe(self)
            else:
                local.main.looks += 1  # as `observe` does
            return _READERS[m.dtype](
                storage.buffer.address + (self._offset if m.dynamic else m.offset) * m.dtype.itemsize  # type: ignore[union-attr]
            )
        except BaseException as error:
            shorten_bare(error)
            raise

    def tolist(self) -> Any:
        """The values as nested Python lists (a number for a 0-d tensor)."""
        try:
            if self._meta.ndim == 0:
                refuse_read(self)
                return self.item()
            return reading.to_list(self)
        except BaseException as error:
            shorten_bare(error)
            raise

    def numpy(self, *, force: bool = False) -> Any:
        """A NumPy array that shares this tensor's memory."""
        try:
            if force is not False:
                _must_be("numpy", "force bool", force)
            if self.requires_grad:
                if not force and local.trace.grad_enabled:
                    raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
                return self.detach().numpy(force=force)
            if self._meta.bits:
                if force:
                    return self._plain().numpy()
                bit, name = ("conjugate", "conj") if self._meta.bits & CONJ else ("negative", "neg")
                raise RuntimeError(f"Can't call numpy() on Tensor that has {bit} bit set. Use tensor.resolve_{name}().numpy() instead.")
            if self._meta.device is not CPU:
                raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
            return reading.to_numpy(self)
        except BaseException as error:
            shorten_bare(error)
            raise

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of the array API standard."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"the array API of version {api_version} is not supported; 2024.12 and older ones are")
        return asks.array_namespace()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
        """What NumPy makes of a tensor (`np.sin(t)`, `t - array`) is a tensor, over the array's memory."""
        return asks.from_numpy(array if array.dtype != bool else array.astype("uint8"))

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        if stream is not None and type(stream) is not int:
            raise TypeError(f"stream must be ``int`` or ``none``, got {type(stream).__name__}")
        if stream not in (None, -1):
            raise AssertionError(f"stream should be None on cpu, got {stream}")
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self._meta.bits:
            raise BufferError(f"Can't export tensors with the {'conjugate' if self._meta.bits & CONJ else 'negative'} bit set")
        if self._meta.device is not CPU:
            raise BufferError(f"Cannot pack tensors on {self.device}")
        if self.dtype is dtypes.bfloat16:
            return asks.as_bfloat16(reading.to_numpy(self.view(dtypes.int16)).__dlpack__())  # type: ignore[attr-defined]
        return reading.to_numpy(self).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def untyped_storage(self) -> Any:
        """The bytes that this tensor and its views share."""
        return asks.untyped_storage(self)

    def storage(self) -> Any:
        """The elements that this tensor and its views share, as a TypedStorage (deprecated)."""
        return asks.typed_storage(self)

    def _typed_storage(self) -> Any:
        """`storage()` without its warning, as packages ask for it."""
        return asks.typed_storage(self, warns=False)

    def storage_type(self) -> Any:
        """The class of its legacy storage (FloatStorage, ...)."""
        return asks.legacy_storage_class(self.dtype)

    def __bool__(self) -> bool:
        try:
            m = self._meta
            if m.numel != 1:
                if m.numel == 0:
                    raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
                raise RuntimeError(f"Boolean value of Tensor with more than one value is ambiguous (shape {tuple(m.shape)}); use .any() or .all()")
            return bool(self.item())
        except BaseException as error:
            shorten(error)
            raise

    def __int__(self) -> int:
        try:
            try:
                return int(_real(self.item(), "int64_t"))
            except RuntimeError:
                _one_number(self)
                raise
        except BaseException as error:
            shorten(error)
            raise

    def __float__(self) -> float:
        try:
            try:
                return float(_real(self.item(), "double"))
            except RuntimeError:
                _one_number(self)
                raise
        except BaseException as error:
            shorten(error)
            raise

    def __complex__(self) -> complex:
        try:
            try:
                return complex(self.item())
            except RuntimeError:
                _one_number(self)
                raise
        except BaseException as error:
            shorten(error)
            raise

    def __index__(self) -> int:
        d = self._meta.dtype
        if self._meta.numel != 1 or d.category > 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        shape = self._meta.shape
        if not shape:
            raise TypeError("len() of a 0-d tensor")
        return shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._meta.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))  # type: ignore[attr-defined]

    def __reversed__(self) -> Tensor:
        """The tensor turned around along its first dim; one without dims is itself."""
        return self.flip(0) if self._meta.shape else self

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, (str, bytes, list, tuple, set, dict)) or element is None:
            raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
        return bool((self == element).any())  # type: ignore[attr-defined]

    __hash__ = object.__hash__  # by identity, in C: optimizers and backward passes find what belongs to a tensor by it

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        try:
            if in_a_trace_function():
                return self._repr_beside()
            return asks.tensor_repr(self)
        except BaseException as error:
            shorten(error)
            raise

    def _repr_beside(self) -> str:
        """The text for a debugger that has stopped in the middle of a call."""
        from flambeau.trace.finalizers import beside

        try:
            return beside(asks.tensor_repr, self)  # type: ignore[no-any-return]
        except Exception:  # it has no value yet, or no shape
            m = getattr(self, "_meta", None)
            return "<a tensor that is being made>" if m is None else f"<a tensor of shape {tuple(m.shape)}, {m.dtype}, that is being computed>"

    def __format__(self, spec: str) -> str:
        if self._meta.ndim == 0 and type(self) is Tensor and not self.is_meta:
            return format(self.item(), spec)
        return format(repr(self), spec) if not spec else object.__format__(self, spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return asks.reduce_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment")
        from copy import deepcopy

        copied: Tensor = bare(type(self))
        memo[id(self)] = copied
        copied._take(self._copied_layout(memo))
        inner_dict(copied).update({k: deepcopy(v, memo) for k, v in inner_dict(self).items() if k not in _INTERNAL})
        if self.requires_grad:
            copied.requires_grad_()
        if self._grad is not None:
            copied._grad = self._grad.__deepcopy__(memo)
        return copied

    def _copied_layout(self, memo: dict[Any, Any]) -> Tensor:
        """A tensor like this one over a copy of its storage: the same copy for all tensors of one deepcopy that share it."""
        copied = self.untyped_storage().__deepcopy__(memo)
        m = self._meta
        made: Tensor = from_storage(copied._storage, meta(tuple(m.shape), m.strides, m.dtype, self.storage_offset(), device=m.device, bits=m.bits))
        return made._plain()

    # -- storage ------------------------------------------------------------------------------------------------
    def _take(self, source: Tensor) -> None:
        """Become an alias of `source`, whatever this tensor was."""
        storage = source._storage or storage_of(source)
        self._storage = storage
        self._meta = source._meta
        self._offset = source._offset
        self._history = None
        self._input_key = None
        self._slot = -1
        self._immediate = None  # what made the value that it had
        if local.trace.gen >= 0 and local.trace.gen in (storage.gen, source._gen):
            self._gen, self._slot = source._gen, source._slot
            listed = local.trace.tensors
            if not any(t is self for t in listed):
                listed.append(self)
        else:
            self._gen = -1

    def _replace(self, source: Tensor) -> None:
        """Take over another tensor's values, shape and memory; keeps the leaf and gradient flags."""
        before = self._meta
        self._take(source.detach())
        if before.requires_grad:
            Tensor.requires_grad_(self)  # whatever a subclass says of it

    @property
    def data(self) -> Tensor:
        """The same memory without history; a backward pass does not notice writes to it, and uses what is there then."""
        made = self.detach()
        made._detached -= made._detached % 2
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            refuse((value,), "Tensor.data")
            raise TypeError(f"data must be a Tensor, not {type(value).__name__}")
        if value._meta.device is not self._meta.device:
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type: they are on "
                f"{self.device} and on {value.device}"
            )
        from flambeau.trace.mutation import replace_data

        replace_data(self, value)

    def set_(self, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
        """Share the memory of a tensor (with its shape and strides, unless a size is given) or of a storage; empty without a source."""
        return asks.set_source(self, source, storage_offset, size, stride)

    # -- gradients ----------------------------------------------------------------------------------------------
    def detach(self) -> Tensor:
        """The same memory without history."""
        return asks.detach(self)  # type: ignore[no-any-return]

    def detach_(self) -> Tensor:
        """Forget this tensor's history, in place."""
        m = self._fresh_meta()
        if is_view(self):
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        if not m.requires_grad or m.leaf:
            self._become_leaf(m.variant(requires_grad=False, leaf=True))
            return self
        self._take(asks.detach(twin(self)))  # which stands for this tensor as it was, in what has been recorded of it
        self._detached = next(FAMILIES)
        return self

    def backward(
        self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
        inputs: Sequence[Tensor] | Tensor | None = None,
    ) -> None:  # fmt: skip
        """Accumulate gradients of this tensor into the leaves that it depends on; `gradient` has this tensor's shape."""
        try:
            if isinstance(inputs, Tensor):
                inputs = (inputs,)
            asks.backward((self,), (gradient,), bool(retain_graph), create_graph, inputs)
        except BaseException as error:
            shorten(error)
            raise

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Any:
        """Call `hook(gradient)` whenever the gradient of this tensor is computed; what it returns replaces it."""
        return asks.register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Any:
        """Call `hook(tensor)` after a gradient has been accumulated into this leaf."""
        return asks.register_post_accumulate_grad_hook(self, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `.grad`."""
        asks.retain_grad(self)

    @property
    def retains_grad(self) -> bool:
        """Whether this is a non-leaf tensor that keeps its gradient."""
        return self._retains_grad and not self.is_leaf

    # -- devices ------------------------------------------------------------------------------------------------
    def cpu(self, memory_format: Any = None) -> Tensor:
        """This tensor if it is on the CPU, or a copy where it has not the memory format; NotImplementedError if it has no elements (`meta`)."""
        if self.is_meta:
            refuse_read(self)
        return self if memory_format is None else self.to(memory_format=memory_format)  # type: ignore[attr-defined, no-any-return]

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> NoReturn:
        """There is no CUDA device yet: raises AssertionError, as PyTorch's CPU build does."""
        raise AssertionError("flambeau is not compiled with CUDA enabled: it runs on the CPU; leave the tensor where it is")

    def pin_memory(self, device: Any = None) -> Tensor:
        """This tensor: all memory is the CPU's. RuntimeError if it has none."""
        if self._meta.device is not CPU:
            raise RuntimeError(f"cannot pin {self.type()!r} only dense CPU tensors can be pinned")
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False: there is no accelerator to pin memory for."""
        return False

    def share_memory_(self) -> Tensor:
        """Move the elements, in place, to memory that processes share: what one writes, the others see. Returns this tensor."""
        self.untyped_storage().share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether the elements lie in memory that processes share."""
        return bool(self.untyped_storage().is_shared())

    def get_device(self) -> int:
        """-1: the CPU."""
        return -1


def _must_be(function: str, parameter: str, v: Any) -> None:
    """PyTorch's TypeError unless an argument is of its kind."""
    asks.must_be(function, parameter, v)


def require(name: str, dim: Any, tensor: Tensor) -> None:
    """PyTorch's TypeError if `dim` is not a number for this method."""
    wrong = asks.problem(name, ("self", "dim"), (tensor, dim), (None, None))
    if wrong is not None:
        raise wrong


def _real(number: Any, name: str) -> Any:
    """A number that is to be a real one: RuntimeError of a complex one whose imaginary part is not 0."""
    if not isinstance(number, complex):
        return number
    if number.imag:
        raise RuntimeError(f"value cannot be converted to type {name} without overflow: {number} has an imaginary part")
    return number.real


def _one_number(t: Tensor) -> None:
    """PyTorch's ValueError if a tensor that is to be a number of Python's is not one: `item()` of the same tensor is a RuntimeError there."""
    if t.numel() != 1:
        raise ValueError(f"only one element tensors can be converted to Python scalars, not one of shape {tuple(t.shape)}: use item() or tolist()") from None


def normalize_dim(dim: int, ndim: int) -> int:
    """`dim` counted from 0; PyTorch's IndexError if it is out of range."""
    bound = max(ndim, 1)
    if dim.__class__ is not int:
        if isinstance(dim, bool) or not hasattr(type(dim), "__index__"):
            raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
        dim = dim.__index__()
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim + bound if dim < 0 else dim


_INTERNAL = frozenset(name for name in Tensor.__annotations__ if name.startswith("_"))  # what an instance has besides the user's attributes


def kept_name(name: str) -> str:
    """Under which name an attribute of the user's is in `inner_dict`: names of our own are not taken (ops/subclass_names.py)."""
    return f"user's {name}" if name in _INTERNAL else name


class Attributes(dict[str, Any]):
    """`__dict__` of a Parameter or of a tensor of a subclass, as in PyTorch: what the user has set. What is changed here is changed there."""

    __slots__ = ("_whole",)

    def __init__(self, t: Tensor) -> None:
        self._whole = inner_dict(t)
        super().__init__({name.removeprefix("user's "): value for name, value in self._whole.items() if name not in _INTERNAL})

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._whole[kept_name(name)] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        del self._whole[kept_name(name)]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            self._whole.pop(kept_name(name))
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def _replace(self, attributes: dict[str, Any]) -> None:
        self.clear()
        self.update(attributes)


users_dict = property(Attributes, lambda t, attributes: Attributes(t)._replace(attributes))
_TENSOR[0] = Tensor


def prepare(cls: type) -> None:
    """Let CPython know at the first instance of a class what attributes its tensors may have. Names that come after some thirty instances
    cost each that has them a dictionary of its own (90 ns, and its attributes are found more slowly; CPython 3.11, shared keys)."""
    first = _new(cls)
    for name in _INTERNAL - set(Tensor.__slots__):
        setattr(first, name, None)


prepare(Tensor)
