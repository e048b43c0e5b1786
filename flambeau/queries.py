"""Small public functions about tensors, dtypes and settings that record nothing."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.dtypes import dtype
from flambeau.foreign import refuse
from flambeau.module_names import is_ours, under_flambeau, under_torch
from flambeau.named_objects import NamedObject
from flambeau.symbols import whole
from flambeau.upward import upward

# dtype name -> (bits, eps, largest, smallest normal, smallest subnormal, decimal digits); IEEE 754 and the bfloat16 format
_FLOATS = {
    "float16": (16, 2.0**-10, 65504.0, 2.0**-14, 2.0**-24, 1e-3),
    "bfloat16": (16, 2.0**-7, 3.3895313892515355e38, 2.0**-126, 2.0**-133, 1e-2),
    "float32": (32, 2.0**-23, 3.4028234663852886e38, 2.0**-126, 2.0**-149, 1e-6),
    "float64": (64, 2.0**-52, 1.7976931348623157e308, 2.0**-1022, 5e-324, 1e-15),
    "float8_e4m3fn": (8, 0.125, 448.0, 2.0**-6, 2.0**-9, 1.0),
    "float8_e5m2": (8, 0.25, 57344.0, 2.0**-14, 2.0**-16, 1.0),
    "float8_e4m3fnuz": (8, 0.125, 240.0, 2.0**-7, 2.0**-10, 1.0),
    "float8_e5m2fnuz": (8, 0.125, 57344.0, 2.0**-15, 2.0**-17, 1.0),
    "float8_e8m0fnu": (8, 1.0, 2.0**127, 2.0**-127, 2.0**-127, 1.0),
}


class finfo:
    """Limits of a floating dtype: bits, eps, max, min, tiny (smallest_normal), resolution."""

    def __init__(self, type: dtype | None = None) -> None:
        refuse((type,), "finfo()")
        d = (type or dtypes.get_default_dtype()).to_real()
        if not d.is_floating_point:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{d}'")
        self.bits, self.eps, self.max, self.tiny, self.smallest_subnormal, self.resolution = _FLOATS[d.name]
        self.min = -self.max if d.is_signed else self.tiny
        self.smallest_normal = self.tiny
        self.dtype = d.name

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer dtype: bits, max, min."""

    def __init__(self, type: dtype) -> None:
        if type.category != 1:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        is_signed = dtypes.INTEGER_OF.get(type, type).is_signed
        self.bits = 8 * type.itemsize
        self.max = (1 << (self.bits - int(is_signed))) - 1
        self.min = -(1 << (self.bits - 1)) if is_signed else 0
        self.dtype = type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


class memory_format(NamedObject):
    """A named order of dimensions in memory."""

    __slots__ = ()


contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
preserve_format = memory_format("preserve_format")
legacy_contiguous_format = contiguous_format


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor."""
    from flambeau.tensor import Tensor

    return isinstance(obj, Tensor)


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return under_flambeau(type(obj).__module__) == "flambeau.storage" and type(obj).__name__ in ("TypedStorage", "UntypedStorage")


def is_floating_point(input: Any) -> bool:
    """Whether the dtype is a floating one."""
    return bool(input.dtype.is_floating_point)


def is_complex(input: Any) -> bool:
    """Whether the dtype is complex."""
    return bool(input.dtype.is_complex)


def is_nonzero(input: Any) -> bool:
    """Whether a one-element tensor is not zero."""
    return bool(input)


def numel(input: Any) -> int:
    """The number of elements."""
    if not hasattr(type(input), "numel"):
        raise TypeError(f"numel(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return int(input.numel())


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether PyTorch's casting rules allow a result of one dtype to be written to the other."""
    from flambeau.trace.mutation import can_cast as rule

    return rule(from_, to) or (from_.category <= to.category)


def broadcast_shapes(*shapes: Any) -> Any:
    """The common shape of several shapes."""
    from flambeau.trace.meta import Size

    given: list[tuple[int, ...]] = []
    for s in shapes:
        if s is None:
            continue
        sizes = (s,) if isinstance(s, int) else s
        if not isinstance(sizes, (tuple, list)):
            raise RuntimeError(f"broadcast_shapes: Input shapes should be of type ints, a tuple of ints, or a list of ints, got {s!r}")
        for n in sizes:
            if not hasattr(type(n), "__index__"):
                raise TypeError(f"broadcast_shapes(): a shape is made of ints, not of {type(n).__name__}: {s!r}")
            if n < 0:
                raise ValueError(f"broadcast_shapes: Attempting to broadcast a dimension with negative length! Got {s!r}")
        given.append(tuple([whole(n) for n in sizes]))
    common: list[int] = []
    for k, shape in enumerate(given):
        common = [1] * (len(shape) - len(common)) + common
        for d in range(-1, -len(shape) - 1, -1):
            if shape[d] != 1 and common[d] not in (1, shape[d]):
                raise RuntimeError(
                    f"broadcast_shapes: Attempting to broadcast a dimension of length {shape[d]} at {d}! Mismatching argument at index {k} had {shape}; "
                    f"but expected shape should be broadcastable to {common}"
                )
            common[d] = common[d] if shape[d] == 1 else shape[d]
    return Size(common)


def typename(obj: Any) -> str:
    """The qualified name of an object's type."""
    if is_tensor(obj):
        return str(obj.type())
    kind = obj if getattr(obj, "__qualname__", None) and getattr(obj, "__module__", None) else type(obj)
    module = kind.__module__
    if is_ours(module):  # by PyTorch's names
        import flambeau

        public = next((name for name, value in vars(flambeau).items() if value is kind), None)
        return f"{under_torch(module)}.{kind.__qualname__}" if public is None else f"torch.{public}"
    return kind.__qualname__ if module in ("builtins", "__builtin__") else f"{module}.{kind.__qualname__}"


def set_num_threads(n: int) -> None:
    """Use n threads from now on. Results never depend on it.

    TypeError unless n is an int, RuntimeError unless it is positive. Without a call there are as many threads as
    FLAMBEAU_NUM_THREADS or OMP_NUM_THREADS says, else as the process may use (affinity and control groups).
    """
    from flambeau.runtime import threads

    before = threads.count()
    threads.set_num_threads(n)
    if threads.count() > before:
        from flambeau.trace.replan import forget_plans

        forget_plans(threads.count())


def get_num_threads() -> int:
    """The number of threads in use."""
    from flambeau.runtime import threads

    return threads.get_num_threads()


def set_default_dtype(d: dtype) -> None:
    """Make d (a floating dtype) the dtype of new floating tensors."""
    from flambeau.trace.evaluate import synchronize

    refuse((d,), "set_default_dtype()")
    try:
        synchronize()  # whatever an earlier call's error says here, the dtype is set
    finally:
        dtypes.set_default_dtype(d)
    synchronize()


def get_num_interop_threads() -> int:
    """1: independent operations share the threads of one team."""
    return 1


def set_num_interop_threads(n: int) -> None:
    """Accepted: independent operations of a plan run side by side whatever it says. RuntimeError unless n is positive."""
    if n < 1:
        raise RuntimeError(f"set_num_interop_threads expects a positive integer, got {n}")


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted: products of float32 matrices are always computed in float32."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', 'medium'")


def get_float32_matmul_precision() -> str:
    """Always "highest"."""
    return "highest"


def set_flush_denormal(mode: bool) -> bool:
    """False: subnormal numbers are never flushed to zero."""
    return False


@upward
def has_torch_function(relevant_args: Any) -> bool:
    """Whether an argument or a mode answers for itself (overrides.py)."""
    raise NotImplementedError


@upward
def handle_torch_function(public_api: Any, relevant_args: Any, *args: Any, **kwargs: Any) -> Any:
    """Ask the arguments that answer for themselves (overrides.py)."""
    raise NotImplementedError


def _assert(condition: Any, message: str) -> None:
    """AssertionError unless the condition holds; a function, so that tracers (torch.fx) can record it."""
    if type(condition) is not bool and hasattr(condition, "__torch_function__") and has_torch_function((condition,)):
        handle_torch_function(_assert, (condition,), condition, message)
        return
    if not condition:
        raise AssertionError(message)
