"""`__torch_dispatch__`: calls of public functions as PyTorch's dispatcher sees them below autograd, under aten names and overloads.

There is no dispatcher here. Where a call has an argument whose class defines `__torch_dispatch__`, or a TorchDispatchMode is active, the public
function is not run: what PyTorch would dispatch for it is called instead (`x[1:]` is aten.slice.Tensor, `x.long()` aten._to_copy.default). Other calls
cost nothing more: such arguments answer for themselves (ops/dispatch.py). A function that has no operator of its own in aten runs as it is, and
the calls that it makes are seen.
"""

from __future__ import annotations

import builtins
import math
import threading
from collections.abc import Callable, Sequence
from inspect import Parameter as Argument
from inspect import signature
from typing import Any, Final

import flambeau
from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.module_names import under_flambeau
from flambeau.ops import dispatch
from flambeau.ops.dispatch import Dispatched
from flambeau.tensor import Tensor
from flambeau.trace.existing import blank_tensor
from flambeau.trace.objects import bare

_END: Final = 9223372036854775807  # how the end of a slice to the end looks there
_TENSOR_OR_SCALAR: Final = frozenset("eq ne lt le gt ge remainder fmod masked_fill fill bitwise_and bitwise_or bitwise_xor lerp".split())
_ALWAYS_TENSOR: Final = frozenset("add sub mul div true_divide".split())
_OVERLOADS: Final = {
    "transpose": "int", "select": "int", "unbind": "int", "split": "Tensor", "squeeze_dim": "dim", "where": "self", "sum_dim": "dim_IntList",
    "mean_dim": "dim", "max_dim": "dim", "min_dim": "dim", "std": "correction", "var": "correction", "repeat_interleave": "Tensor", "any_dim": "dim",
    "all_dim": "dim", "prod_dim": "dim_int", "scatter_reduce": "two", "frexp": "Tensor", "ldexp": "Tensor",
}  # fmt: skip
_RENAMED: Final = {"subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs", "concat": "cat",
                   "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose", "clip": "clamp", "eq_": "eq_",
                   "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne"}  # fmt: skip
_REFLECTED: Final = {"radd": "add", "rmul": "mul", "rsub": "rsub", "rtruediv": "rtruediv", "rpow": "rpow", "rmatmul": "rmatmul"}
_LISTS: Final = frozenset(  # functions whose sizes or dims are one list there, and from which argument on
    "view permute expand repeat flip reshape new_zeros new_ones new_empty new_full tile".split()
)
_DIMS: Final = frozenset("sum mean amax amin logsumexp std var flip roll".split())  # whose dims are a list
_FACTORIES: Final = frozenset("zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full".split())
# Methods that ask what every tensor knows of itself, or that are none of aten's: they run as they are.
_QUESTIONS: Final = frozenset(
    """dim ndimension size stride numel nelement is_contiguous storage_offset element_size is_floating_point is_complex is_signed get_device data_ptr
    requires_grad_ is_shared retain_grad register_hook backward new_tensor is_same_size has_names len reversed is_set_to is_inference is_conj is_neg
    untyped_storage storage""".split()
)
_DTYPES: Final = {"double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32", "short": "int16",
                  "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128"}  # fmt: skip


def make_wrapper_subclass(
    cls: Any, size: Sequence[int], strides: Sequence[int] | None = None, storage_offset: int | None = None, memory_format: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False, dispatch_sizes_strides_policy: Any = None,
    dispatch_device: bool = False, dispatch_layout: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """A tensor of a class with `__torch_dispatch__`: a shape, strides, a dtype and a device, and no elements of its own. TypeError for other classes."""
    if not (isinstance(cls, type) and issubclass(cls, Dispatched)):
        raise TypeError(f"cls must be a subclass of Tensor with a __torch_dispatch__, got {cls!r}")
    kind = dtype or flambeau.get_default_dtype()
    made: Any = bare(cls)
    made._take(blank_tensor(tuple(size), kind, None if strides is None else tuple(strides)))
    made._where = Device("cpu" if device is None else device)
    if requires_grad:
        made.requires_grad_()
    return made


def run(name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
    """Call an operator of aten: asked are the innermost mode, then the classes of its tensors, then nobody."""
    return offer(getattr(getattr(flambeau.ops.aten, name), overload), args, kwargs or {})


def offer(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an operator, of aten or of one's own: asked are the innermost mode, then the classes of its tensors, then nobody."""
    found = [type(a) for a in dispatched((*args, *kwargs.values()))]
    types = tuple(dict.fromkeys(found))
    if modes.stack:
        mode = modes.stack.pop()
        try:
            result = mode.__torch_dispatch__(op, types, tuple(args), kwargs)
        finally:
            modes.stack.append(mode)
        if result is not NotImplemented:
            return result
    for cls in types:
        result = cls.__torch_dispatch__(op, types, tuple(args), kwargs)
        if result is not NotImplemented:
            return result
    if types:
        raise TypeError(f"Multiple dispatch failed for '{op}'; all __torch_dispatch__ handlers returned NotImplemented: {list(types)}")
    return op(*args, **kwargs)


def dispatched(arguments: Sequence[Any]) -> list[Any]:
    """The tensors among arguments, and in lists of them, whose classes have `__torch_dispatch__`."""
    found: list[Any] = []
    for a in arguments:
        for b in a if type(a) in (list, tuple) else (a,):
            if isinstance(b, Dispatched):
                found.append(b)
    return found


class _Modes(threading.local):
    """Per thread: the active TorchDispatchModes, innermost last."""

    def __init__(self) -> None:
        self.stack: list[Any] = []


modes = _Modes()


def redispatch(function: Any, args: Sequence[Any], kwargs: dict[str, Any], plain: Callable[..., Any] | None = None) -> Any:
    """What is dispatched for a call of a public function; `plain`: the function itself, where it is composed of others."""
    prop = isinstance(function, dispatch._Getter)
    name = next((n for n in _PROPERTIES if vars(Tensor).get(n) is function.plain), "") if prop else getattr(function, "__name__", "")
    operation = getattr(function, "operation", None)
    if operation is not None and operation.name in ("index", "index_put_value"):  # a plain tensor at places that a subclass says
        rest = iter(args[1])
        places = [next(rest) if present else None for present in args[2 if operation.name == "index" else 3]]
        if operation.name == "index":
            return run("index", "Tensor", (args[0], places))
        return run("index_put", "default", (args[0], places, args[2], args[4] == "add"))
    name = _in_aten(operation.name) if operation is not None else name
    name = name.strip("_") if name.startswith("__") else name
    if (prop and not name) or name in _QUESTIONS:
        return (plain or _original(function))(*args, **kwargs)
    if name in ("radd", "rsub", "rmul") and isinstance(args[1], Tensor):  # Python asks the subclass first
        name, args = name[1:], (args[1], args[0])
    inplace = name.endswith("_") and not name.startswith("_")
    if name in ("iadd", "isub", "imul", "itruediv"):
        name, inplace = {"itruediv": "div"}.get(name, name[1:]), True
    name = name.removesuffix("_")
    name = _RENAMED.get(_REFLECTED.get(name, name), _REFLECTED.get(name, name))
    name = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "invert": "bitwise_not", "and": "bitwise_and", "or": "bitwise_or",
            "xor": "bitwise_xor"}.get(name, name)  # fmt: skip
    if under_flambeau(getattr(function, "__module__", None) or "") == "flambeau.nn.init":
        return _composed(function, plain, args, kwargs)
    special = _COMPOSED.get(name)
    if special is not None and not inplace:
        return special(*args, **kwargs)
    if not hasattr(flambeau.ops.aten, name + "_" * inplace):
        return _composed(function, plain, args, kwargs)
    given, named = _arguments(function, operation, name, list(args), dict(kwargs))
    result = run(name + "_" * inplace, _overload(name, given, named), given, named)
    return args[0] if inplace else result


def with_out(operation: Any, out: Any, args: Sequence[Any]) -> Any:
    """A call of an operation with `out=`, all arguments by position; NotImplemented if none of them has `__torch_dispatch__`."""
    if not dispatched((*args, out)):
        return NotImplemented
    name = _in_aten(operation.name)
    given, named = _arguments(operation.function, operation, name, list(args[: len(args) - operation.keywords]), {})
    run(name, "out", given, named | {"out": out})
    return out


def _composed(function: Any, plain: Callable[..., Any] | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function that aten has not: it runs, and what it calls is dispatched."""
    if hasattr(function, "operation") and dispatched((*args, *kwargs.values())):
        raise NotImplementedError(f"{function.__name__}: it is no operator of aten here, so no __torch_dispatch__ can answer for it")
    plain = plain or _original(function)
    if not modes.stack:
        return plain(*args, **kwargs)
    dispatch.state.modes.append(_SEEN)
    try:
        return plain(*args, **kwargs)
    finally:
        dispatch.state.modes.pop()


class _Seen:
    """The mode of functions by which a TorchDispatchMode sees them."""

    sees_operators_itself = True

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return redispatch(function, args, kwargs or {})


_SEEN: Final = _Seen()


def _in_aten(name: str) -> str:
    """The name of one of our operations there: "linalg.solve" is linalg_solve, "nn.functional.relu" is relu."""
    space, _, last = name.rpartition(".")
    return f"{space}_{last}" if space in ("linalg", "fft", "special") else last


def _original(function: Any) -> Any:
    from flambeau.ops import instrument

    return function if isinstance(function, dispatch._Getter) else instrument.original(function)


def _overload(name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
    if name in _ALWAYS_TENSOR:
        return "Tensor_mode" if "rounding_mode" in kwargs else "Tensor"
    if name in _TENSOR_OR_SCALAR:
        return "Tensor" if isinstance(args[-1], Tensor) else "Scalar"
    if name == "rsub":
        return "Tensor" if isinstance(args[1], Tensor) else "Scalar"
    if name == "index_fill":
        return "int_Tensor" if isinstance(args[-1], Tensor) else "int_Scalar"
    if name == "scatter":
        value = "src" if isinstance(args[-1], Tensor) or "src" in kwargs else "value"
        return value if "reduce" not in kwargs else "reduce" if value == "src" else "value_reduce"
    if name == "xlogy":
        return "Scalar_Self" if not isinstance(args[0], Tensor) else "Tensor" if isinstance(args[1], Tensor) else "Scalar_Other"
    if name == "isin":
        return "_".join("Tensor" if isinstance(a, Tensor) else "Scalar" for a in args[:2])
    if name == "pow":
        return "Scalar" if not isinstance(args[0], Tensor) else "Tensor_Tensor" if isinstance(args[1], Tensor) else "Tensor_Scalar"
    if name == "sort":
        return "stable" if "stable" in kwargs else "default"
    if name == "squeeze" and len(args) > 1:
        return "dims" if isinstance(args[1], (tuple, list)) else "dim"
    if name in ("max", "min") and len(args) > 1 and isinstance(args[1], Tensor):
        return "other"
    if name == "split":
        return "Tensor"
    dims = len(args) > 1 or "dim" in kwargs
    return _OVERLOADS.get(f"{name}_dim" if dims else name, _OVERLOADS.get(name, "default"))


def _arguments(function: Any, operation: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position as far as they may be, without defaults at their end; lists where the operator has lists."""
    if name in _LISTS and len(args) > 1 and isinstance(args[1], int):
        fixed = 2 if name == "new_full" else None
        args = [args[0], args[1:fixed], *(args[fixed:] if fixed else ())]
    if operation is not None:
        names, defaults, keywords = operation.names, operation.defaults, operation.names[len(operation.names) - operation.keywords :]
    else:
        try:
            parameters = [p for p in signature(function).parameters.values() if p.kind in (Argument.POSITIONAL_OR_KEYWORD, Argument.KEYWORD_ONLY)]
        except (TypeError, ValueError):
            parameters = []
        names, defaults = tuple([p.name for p in parameters]), tuple([p.default for p in parameters])
        keywords = tuple([p.name for p in parameters if p.kind is Argument.KEYWORD_ONLY])
    by_place = [n for n in names if n not in keywords]
    while len(args) < len(by_place) and by_place[len(args)] in kwargs:
        args.append(kwargs.pop(by_place[len(args)]))
    usual = dict(zip(names, defaults, strict=True))
    kept = 1 if name in _ALWAYS_TENSOR or name in _TENSOR_OR_SCALAR else 0
    while len(args) > 1 + kept and len(args) <= len(by_place) and _same(args[-1], usual[by_place[len(args) - 1]]):
        args.pop()
    named = {n: v for n, v in kwargs.items() if not _same(v, usual.get(n, Argument.empty))}
    if name in _DIMS and len(args) > 1 and isinstance(args[1], int):
        args[1] = [args[1]]
        if name == "roll" and len(args) > 2 and isinstance(args[2], int):
            args[2] = [args[2]]
    args = [list(a) if isinstance(a, tuple) else a for a in args]
    if name in _FACTORIES:
        named.setdefault("pin_memory", False)
    if name in ("std", "var"):
        named = {k: v for k, v in named.items() if k != "unbiased"} | ({"correction": 1} if len(args) > 1 else {})
    return args, named


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, str, dtype)) and a == b)


# -- public functions that are other operators there -------------------------------------------------------------------
def _getitem(x: Any, index: Any) -> Any:
    items = list(index) if type(index) is tuple else [index]
    used = sum(1 if not _is_mask(i) else i.ndim for i in items if i is not None and i is not Ellipsis)
    if Ellipsis in [i for i in items if not isinstance(i, Tensor)]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at : at + 1] = [builtins.slice(None)] * (x.dim() - used)
    dim, tensors, seen = 0, {}, False
    for i in items:
        if i is None:
            x, dim = run("unsqueeze", "default", (x, dim)), dim + 1
        elif isinstance(i, (bool, Tensor, list)) or hasattr(i, "__array_interface__"):
            t = i if isinstance(i, Tensor) else flambeau.as_tensor(i)
            tensors[dim] = t
            dim += t.ndim if _is_mask(t) else 1
        elif isinstance(i, builtins.slice):
            start, stop, step = i.start, i.stop, i.step
            if (start, stop, step) != (None, None, None) or (len(items) == 1 and not seen):
                place = (x, dim, 0 if start is None else start, _END if stop is None else stop, *(() if step in (None, 1) else (step,)))
                x = run("slice", "Tensor", place)
            dim += 1
        else:
            x = run("select", "int", (x, dim, i.__index__()))
        seen = True
    return x if not tensors else run("index", "Tensor", (x, [tensors.get(d) for d in range(max(tensors) + 1)]))


def _is_mask(i: Any) -> bool:
    return isinstance(i, Tensor) and i.dtype in (flambeau.bool, flambeau.uint8)


def _setitem(x: Any, index: Any, value: Any) -> None:
    items = index if type(index) is tuple else (index,)
    if any(isinstance(i, (Tensor, list)) for i in items):
        value = value if isinstance(value, Tensor) else flambeau.tensor(value, dtype=x.dtype)
        places = [None if isinstance(i, builtins.slice) else flambeau.as_tensor(i) for i in items]
        run("index_put_", "default", (x, places, value))
        return
    part = _getitem(x, index)
    if isinstance(value, Tensor):
        run("copy_", "default", (part, value))
    else:
        run("fill_", "Scalar", (part, value))


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    wanted: dict[str, Any] = {}
    for a in (*args, kwargs.get("dtype"), kwargs.get("device"), kwargs.get("other")):
        if isinstance(a, dtype):
            wanted["dtype"] = a
        elif isinstance(a, (str, Device)):
            wanted["device"] = Device(a)
        elif isinstance(a, Tensor):
            wanted |= {"dtype": a.dtype, "device": a.device}
    changed = {k: v for k, v in wanted.items() if v != getattr(x, k)}
    copy = kwargs.get("copy", False) or any(a is True for a in args[2:])
    if not changed and not copy:
        return x
    return run("_to_copy", "default", (x,), changed)


def _view(x: Any, *sizes: Any, shape: Any = None) -> Any:
    given = sizes if shape is None else (shape,)
    if len(given) == 1 and isinstance(given[0], dtype):
        return run("view", "dtype", (x, given[0]))
    return run("view", "default", (x, list(given[0]) if isinstance(given[0], (tuple, list)) else list(given)))


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    shape = list(x.shape)
    start, end = start_dim % max(len(shape), 1), end_dim % max(len(shape), 1)
    return _view(x, [*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]])


def _split(x: Any, split_size: Any = None, dim: int = 0, **named: Any) -> Any:
    size = split_size if split_size is not None else named.get("split_size_or_sections")
    tail = (dim,) if dim else ()
    if isinstance(size, (tuple, list)):
        return run("split_with_sizes", "default", (x, list(size), *tail))
    return run("split", "Tensor", (x, size, *tail))


def _matmul(x: Any, y: Any) -> Any:
    dims = x.dim(), y.dim()
    if dims[0] > 2 and dims[1] == 2:  # rows of a matrix
        shape = list(x.shape)
        return _view(run("mm", "default", (_view(x, [math.prod(shape[:-1]), shape[-1]]), y)), [*shape[:-1], y.shape[-1]])
    name = {(2, 2): "mm", (2, 1): "mv", (1, 1): "dot", (3, 3): "bmm"}.get(dims, "matmul")
    return run(name, "default", (x, y))


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Rows of a matrix: all dims but the last are one while it is multiplied."""
    turned, shape = run("t", "default", (weight,)), list(x.shape)
    if len(shape) < 2 or weight.dim() < 2:
        return _matmul(x, turned) if bias is None else run("add", "Tensor", (_matmul(x, turned), bias))
    rows = x if len(shape) == 2 else _view(x, [math.prod(shape[:-1]), shape[-1]])
    made = run("mm", "default", (rows, turned)) if bias is None else run("addmm", "default", (bias, rows, turned))
    return made if len(shape) == 2 else _view(made, [*shape[:-1], made.shape[-1]])


def _softmax(name: str) -> Callable[..., Any]:
    def call(x: Any, dim: int, *args: Any, dtype: Any = None, **_: Any) -> Any:
        return run(name, "default", (x if dtype is None else _to(x, dtype), dim, False))

    return call


def _embedding(input: Any, weight: Any, padding_idx: Any = None, *args: Any, **kwargs: Any) -> Any:
    if input.is_floating_point():  # torch.embedding has the weight first
        input, weight = weight, input
    return run("embedding", "default", (weight, input, *(() if padding_idx is None or padding_idx < 0 else (padding_idx,))))


def _tensor(*args: Any, **kwargs: Any) -> Any:
    return run("lift_fresh", "default", (_original(flambeau.tensor)(*args, **kwargs),))


def _dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool | None = None) -> Any:
    if not (training if train is None else train) or p == 0.0:
        return x
    kept = run("empty_like", "default", (x,))
    return run("mul", "Tensor", (x, kept.bernoulli_(1 - p).div_(1 - p)))


def _permuted(x: Any) -> Any:
    return run("permute", "default", (x, list(range(x.dim()))[::-1]))


_PROPERTIES: Final = ("T", "mT", "data")
_COMPOSED: Final[dict[str, Callable[..., Any]]] = {
    "getitem": _getitem, "setitem": _setitem, "to": _to, "view": _view, "reshape": _view, "flatten": _flatten, "split": _split, "matmul": _matmul,
    "linear": _linear, "softmax": _softmax("_softmax"), "log_softmax": _softmax("_log_softmax"), "T": _permuted,
    "mT": lambda x: run("transpose", "int", (x, -2, -1)), "data": lambda x: run("detach", "default", (x,)),
    "rmatmul": lambda x, y: _matmul(y, x), "rpow": lambda x, y: run("pow", "Scalar", (y, x)),
    "rtruediv": lambda x, y: run("mul", "Tensor", (run("reciprocal", "default", (x,)), y)),
    "tensor": _tensor, "embedding": _embedding, "dropout": _dropout,
    "narrow": lambda x, dim, start, length: run("slice", "Tensor", (x, dim, start, start + length)),
    "chunk": lambda x, chunks, dim=0: run("split", "Tensor", (x, -(-x.shape[dim] // chunks), *((dim,) if dim else ()))),
    "view_as": lambda x, other: _view(x, list(other.shape)), "expand_as": lambda x, other: run("expand", "default", (x, list(other.shape))),
    "reshape_as": lambda x, other: _view(x, list(other.shape)), "type_as": lambda x, other: _to(x, other.dtype),
    "contiguous": lambda x, memory_format=None: x if x.is_contiguous() else run("clone", "default", (x,), {"memory_format": flambeau.contiguous_format}),
    "cpu": lambda x, **_: _to(x, "cpu"), "type": lambda x, kind=None, **_: _to(x, getattr(kind, "dtype", kind)),
    "argsort": lambda x, *args, **kwargs: run("sort", "default", (x, *args), kwargs)[1],
    "movedim": lambda x, a, b: run("permute", "default", (x, _moved(x.dim(), a, b))),
    "item": lambda x: run("_local_scalar_dense", "default", (x,)), "bool": lambda x, **_: _as_dtype(x, "bool"),
    "unique": lambda x, sorted=True, return_inverse=False, return_counts=False, dim=None: _unique(x, sorted, return_inverse, return_counts, dim),
    **{name: (lambda x, kind=kind, **_: _as_dtype(x, kind)) for name, kind in _DTYPES.items() if name not in ("bool", "int", "float")},
    "int": lambda x, **_: _as_dtype(x, "int32"), "float": lambda x, **_: _as_dtype(x, "float32"),
}  # fmt: skip


def _as_dtype(x: Any, name: str) -> Any:
    return _to(x, getattr(flambeau, name))


def _moved(ndim: int, source: int, destination: int) -> list[int]:
    dims = [d for d in range(ndim) if d != source % ndim]
    dims.insert(destination % ndim, source % ndim)
    return dims


def _unique(x: Any, sorted: bool, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    asked = () if (sorted, return_inverse, return_counts) == (True, False, False) else (sorted, return_inverse, return_counts)
    found = run("_unique2", "default", (x, *asked)) if dim is None else run("unique_dim", "default", (x, dim, *asked))
    results = [found[0], *([found[1]] if return_inverse else []), *([found[2]] if return_counts else [])]
    return results[0] if len(results) == 1 else tuple(results)
