"""Calls of operators as TorchScript writes them: `torch.name(...)` is an operator of aten whose overload the values choose, `ops.space.name(...)` another.

Types are the values' own: the archive's code was checked by PyTorch when it was written. dtypes, layouts and memory formats are numbers in TorchScript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import flambeau
from flambeau import dtypes
from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.export.schemas import Parameter, Schema, overloads
from flambeau.fx import Proxy
from flambeau.jit.script import Error
from flambeau.jit.torchscript import fused, values
from flambeau.jit.torchscript.errors import refuse
from flambeau.quantized import recurrent
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size

# c10::ScalarType, c10::MemoryFormat and c10::Layout by number.
_DTYPES: Final = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 "
    "bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64"
).split()
_NUMBERS: Final = {name: number for number, name in enumerate(_DTYPES)}
_FORMATS: Final = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def dtype_number(d: dtype) -> int:
    """The number that TorchScript has for a dtype."""
    return _NUMBERS[d.name]


def dtype_of(number: Any) -> dtype:
    """The dtype of a number; RuntimeError for one that flambeau has not."""
    if isinstance(number, dtype):
        return number
    name = _DTYPES[number] if 0 <= number < len(_DTYPES) else None
    found = getattr(dtypes, name, None) if name is not None else None
    if not isinstance(found, dtype):
        raise RuntimeError(f"TorchScript: dtype number {number} ({name or 'not known'}) is not one that flambeau has")
    return found


def _memory_format(number: Any) -> Any:
    if type(number) is not int:
        return number
    if not 0 <= number < len(_FORMATS):
        raise RuntimeError(f"TorchScript: memory format number {number} is not known")
    return getattr(flambeau, _FORMATS[number])


def _layout(number: Any) -> Any:
    if number == 0:
        return flambeau.strided
    raise RuntimeError(f"TorchScript: layout number {number}: only strided tensors (0) are read")


_CONVERT: Final[dict[str, Callable[[Any], Any]]] = {
    "ScalarType": dtype_of, "MemoryFormat": _memory_format, "Layout": _layout, "Device": lambda d: Device(d) if isinstance(d, str) else d,
}  # fmt: skip


# -- which overload ------------------------------------------------------------------------------------------------------
def _fits_one(kind: str, v: Any) -> int:
    """How well a value is an argument of a kind: 2 as it is, 1 converted, 0 not at all."""
    if kind == "Tensor":
        return 2 * isinstance(v, Tensor)
    whole = isinstance(v, int) and not isinstance(v, bool)
    if kind in ("int", "ScalarType", "Layout", "MemoryFormat"):
        return 2 * whole if kind == "int" or not isinstance(v, dtype) else 2
    if kind == "float":
        return 2 if isinstance(v, float) else int(whole)
    if kind in ("Scalar", "number", "complex"):
        return int(isinstance(v, (int, float, complex)) and not (kind == "complex" and not isinstance(v, complex)))
    if kind == "bool":
        return 2 * isinstance(v, bool)
    if kind == "str":
        return 2 * isinstance(v, str)
    if kind == "Device":
        return 2 * isinstance(v, (Device, str))
    if kind == "Generator":
        return 2 * (type(v).__name__ == "Generator")
    return 0


def _fits(p: Parameter, v: Any) -> int:
    if v is None:
        return 2 * p.none
    if not p.several:
        return _fits_one(p.kind, v)
    if isinstance(v, (list, tuple)):
        return min([2 * p.none_inside if x is None else _fits_one(p.kind, x) for x in v], default=2)
    return int(bool(p.copies) and _fits_one(p.kind, v) > 0)


def _kind(v: Any) -> Any:
    return (list, *dict.fromkeys(map(type, v))) if type(v) in (list, tuple) else type(v)


class Operator:
    """An operator of aten. `known`: PyTorch or flambeau has one of the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.overloads = [s for s in overloads(name) if not any(p.kind == "Dimname" or (p.written and p.keyword) for p in s.parameters)]
        self._chosen: dict[Any, tuple[Schema, Callable[..., Any]]] = {}

    @property
    def known(self) -> bool:
        """Whether there is an operator of this name at all."""
        return bool(self.overloads) or self.name in values.KNOWN or self.name in SPECIAL or self._function(None) is not None

    def _function(self, overload: str | None) -> Callable[..., Any] | None:
        packet = getattr(flambeau.ops.aten, self.name, None)
        return packet if packet is None or overload is None else getattr(packet, overload)

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        plain = values.find(self.name, args)
        if plain is not None:
            return plain(*args, **kwargs)
        special = SPECIAL.get(self.name)
        if special is not None:
            return special(*args, **kwargs)
        if any(isinstance(a, Proxy) for a in args):  # symbolic tracing: the values have no types
            return self._found(None)(*args, **kwargs)
        key = (*map(_kind, args), *[(name, _kind(v)) for name, v in kwargs.items()])
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = self._choose(args, kwargs)
        s, function = chosen
        positional, named = _arguments(s, args, kwargs)
        return _result(s, function(*positional, **named))

    def _found(self, overload: str | None) -> Callable[..., Any]:
        function = self._function(overload)
        if function is None:
            raise NotImplementedError(f"TorchScript: the program calls torch.{self.name}, which flambeau has not")
        return function

    def _choose(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Schema, Callable[..., Any]]:
        best, score = None, 0
        for s in self.overloads:
            own = _score(s, args, kwargs)
            if own > score:
                best, score = s, own
        if best is None:
            given = ", ".join([_shown(a) for a in args] + [f"{name}={_shown(v)}" for name, v in kwargs.items()])
            raise RuntimeError(f"TorchScript: no overload of torch.{self.name} takes ({given})")
        return best, self._found(best.overload)


def _shown(v: Any) -> str:
    return f"List[{_shown(v[0]) if v else ''}]" if isinstance(v, list) else "Tensor" if isinstance(v, Tensor) else type(v).__name__


def _score(s: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """How well a call fits an overload: 0 if it does not."""
    places = [p for p in s.parameters if not p.keyword]
    if len(args) > len(places):
        return 0
    by_name = {p.name: p for p in s.parameters}
    given = {p.name for p in places[: len(args)]}
    pairs = [*zip(places, args, strict=False)]
    for name, v in kwargs.items():
        if name not in by_name or name in given:
            return 0
        pairs.append((by_name[name], v))
        given.add(name)
    if any(p.name not in given and not p.optional for p in s.parameters):
        return 0
    scores = [_fits(p, v) for p, v in pairs]
    return 0 if 0 in scores else 1 + min(scores, default=2)


def _arguments(s: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as flambeau's function takes them: dtypes for numbers, no defaults at the end."""
    places = [p for p in s.parameters if not p.keyword]
    positional = [_converted(p, v) for p, v in zip(places, args, strict=False)]
    while positional and _is_default(places[len(positional) - 1], positional[-1]):
        positional.pop()
    named = {}
    if kwargs:
        by_name = {p.name: p for p in s.parameters}
        for name, v in kwargs.items():
            p = by_name[name]
            if not (v is None and p.optional) and not (p.kind == "bool" and v is False and p.default in (None, False)):
                named[name] = _converted(p, v)
    return positional, named


def _converted(p: Parameter, v: Any) -> Any:
    convert = _CONVERT.get(p.kind)
    if convert is None or v is None or p.several:
        return float(v) if p.kind == "float" and type(v) is int else v
    return convert(v)


def _is_default(p: Parameter, v: Any) -> bool:
    return p.optional and (v is p.default or (type(v) is type(p.default) and type(v) in (int, float, str) and v == p.default))


def _result(s: Schema, made: Any) -> Any:
    """A result as TorchScript has it: sizes and several tensors as lists, dtypes as numbers."""
    kind = type(made)
    if kind is Tensor:
        return made
    if kind is Size or (kind is tuple and len(s.returns) == 1 and s.returns[0].endswith("]")):
        return list(made)
    return dtype_number(made) if isinstance(made, dtype) else made


# -- what only TorchScript calls, or calls otherwise ----------------------------------------------------------------------
def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int], transposed: bool,
    output_padding: list[int], groups: int, *settings: bool,
) -> Tensor:  # fmt: skip
    """aten::_convolution of traces; `settings` choose among PyTorch's kernels."""
    return flambeau.ops.aten.convolution.default(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)  # type: ignore[no-any-return]


def _raise(message: Any, kind: str | None = None) -> NoReturn:
    raise Error(f"The following operation failed in the TorchScript interpreter.\n{kind or 'RuntimeError'}: {message}")


def _of_list(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: reduce(*given)


def _size(x: Any, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


def _tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    return flambeau.tensor(data, dtype=None if dtype is None else dtype_of(dtype), device=device, requires_grad=requires_grad)


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return flambeau.as_tensor(data, dtype=None if dtype is None else dtype_of(dtype), device=device)


def _set_grad_enabled(enabled: bool) -> None:
    flambeau.set_grad_enabled(enabled)


def _stride(x: Tensor, dim: int | None = None) -> Any:
    return list(x.stride()) if dim is None else x.stride(dim)


SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "_convolution": _convolution, "size": _size, "sym_size": _size, "dim": lambda x: x.dim(), "numel": lambda x: x.numel(),
    "device": lambda name: Device(name), "set_grad_enabled": _set_grad_enabled, "is_grad_enabled": flambeau.is_grad_enabled,
    "is_autocast_enabled": flambeau.is_autocast_enabled, "is_scripting": lambda: True, "tensor": _tensor, "as_tensor": _as_tensor,
    "get_device": lambda x: x.get_device(),
    "is_contiguous": lambda x, memory_format=0: x.is_contiguous(memory_format=_memory_format(memory_format)), "stride": _stride,
    "manual_seed": flambeau.manual_seed, "save": lambda *given: refuse("the program writes files by torch.save, which is not run"),
    "IntImplicit": lambda x: int(x), "FloatImplicit": lambda x: float(x), "ScalarImplicit": lambda x: x.item(), "item": lambda x: x.item(),
    "quantized_lstm": recurrent.quantized_lstm, "quantized_gru": recurrent.quantized_gru, **fused.OPERATORS,
}  # fmt: skip


_PRIM: Final[dict[str, Callable[..., Any]]] = {
    "RaiseException": _raise, "NumToTensor": flambeau.tensor, "dtype": lambda x: dtype_number(x.dtype), "device": lambda x: x.device,
    "type": lambda d: d.type, "index": lambda d: d.index, "layout": lambda x: 0 if x.layout is flambeau.strided else 1, "data": lambda x: x.data,
    "requires_grad": lambda x: x.requires_grad, "grad": lambda x: x.grad, "is_nested": lambda x: x.is_nested, "is_cuda": lambda x: x.is_cuda,
    "is_cpu": lambda x: x.device.type == "cpu", "is_meta": lambda x: x.is_meta, "is_sparse": lambda x: x.is_sparse, "is_mkldnn": lambda x: False,
    "is_quantized": lambda x: x.is_quantized, "is_leaf": lambda x: x.is_leaf, "is_xla": lambda x: False, "is_xpu": lambda x: False,
    "is_mps": lambda x: False, "is_vulkan": lambda x: False, "is_ipu": lambda x: False, "is_hpu": lambda x: False, "is_maia": lambda x: False,
    "shape": _size, "itemsize": lambda x: x.itemsize, "nbytes": lambda x: x.nbytes, "ndim": lambda x: x.ndim, "T": lambda x: x.T, "mT": lambda x: x.mT,
    "H": lambda x: x.H, "mH": lambda x: x.mH, "name": lambda x: None, "max": _of_list(max), "min": _of_list(min), "abs": abs,
    "rangelist": lambda n: [*range(n)],
    "unchecked_unwrap_optional": lambda x: x, "EnumName": lambda e: e.name, "EnumValue": lambda e: e.value, "TupleIndex": lambda t, i: t[i],
    "is_tracing": lambda: False, "is_scripting": lambda: True, "IgnoredPythonOp": lambda *given: refuse("the program calls back into Python"),
}  # fmt: skip

_operators: dict[str, Operator] = {}


def aten(name: str) -> Operator:
    """The operator `torch.name`; RuntimeError if there is none of that name."""
    found = _operators.get(name)
    if found is None:
        found = Operator(name)
        if not found.known:
            refuse(f"the program calls torch.{name}, which is no operator that is known")
        _operators[name] = found
    return found


def of_space(space: str, name: str) -> Callable[[Sequence[Any], dict[str, Any]], Any]:
    """The operator `ops.space.name`; RuntimeError, which names it, if there is none."""
    if space == "aten":
        return aten(name)
    if space == "prim":
        found = _PRIM.get(name)
        if found is None:
            made_for = " (optimize_for_inference made it for oneDNN: save the module before that, or after torch.jit.freeze)"
            refuse(f"the program calls ops.prim.{name}, which is not read{made_for if 'mkldnn' in name.lower() else ''}")
    else:
        found = getattr(getattr(flambeau.ops, space), name, None)
        if found is None:
            refuse(f"the program calls ops.{space}.{name}, an operator that is not registered here (torch.library registers operators)")
    called = found
    return lambda args, kwargs: called(*args, **kwargs)
