"""What flows between the nodes of an ONNX model, and how it comes from the protobuf and from NumPy and goes back.

A value is a Tensor; a NumPy array on the host (small constants, sizes and what follows from them, strings); a list (a sequence); None (an optional that is
empty); or a Narrow: elements of 4 bits and fewer, which no tensor has.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

import flambeau
from flambeau import dtypes
from flambeau.onnx.package import ml_dtypes, part
from flambeau.tensor import Tensor

# Numbers of the format's dtypes -> flambeau's.
TYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64", 12: "uint32",
    13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
    24: "float8_e8m0fnu",
}  # fmt: skip
STRING: Final = 8
NUMBERS: Final = {name: number for number, name in TYPES.items()}


class Few(NamedTuple):
    """A dtype of 4 bits or fewer: ml_dtypes' name, the dtype that holds it, its least and largest value."""

    name: str
    holder: str
    low: float
    high: float


FEW: Final = {
    21: Few("uint4", "uint8", 0, 15), 22: Few("int4", "int8", -8, 7), 23: Few("float4_e2m1fn", "float32", -6, 6), 25: Few("uint2", "uint8", 0, 3),
    26: Few("int2", "int8", -2, 1),
}  # fmt: skip
_FEW_BY_NAME: Final = {f.name: number for number, f in FEW.items()}
FLOAT4: Final = 23


class Narrow:
    """Elements of 4 bits or fewer, one in each element of a tensor of the dtype that holds them."""

    def __init__(self, tensor: Any, kind: int) -> None:
        self.tensor, self.kind = tensor, kind

    @property
    def shape(self) -> Any:
        """The shape."""
        return self.tensor.shape


def dtype_of(number: int) -> Any:
    """The dtype of a number of the format; NotImplementedError for those that no tensor has."""
    name = TYPES.get(number)
    if name is None:
        known = "string" if number == STRING else FEW[number].name if number in FEW else f"of number {number}"
        raise NotImplementedError(f"flambeau.onnx: a tensor of dtype {known} is not one that this operator makes")
    return dtypes.BY_NAME[name]


def number_of(x: Any) -> int:
    """The format's number of a value's dtype."""
    if isinstance(x, Narrow):
        return x.kind
    if isinstance(x, np.ndarray):
        return STRING if x.dtype == object else NUMBERS[x.dtype.name]
    return NUMBERS[x.dtype.name]


def from_array(a: Any, host: bool = False) -> Any:
    """A NumPy array as a value. With `host`, small ones and those of integers stay arrays."""
    a = np.asarray(a)
    if a.dtype.kind in "OUS":
        return np.vectorize(lambda s: s.decode() if isinstance(s, bytes) else str(s), otypes=[object])(a) if a.size else a.astype(object)
    name = a.dtype.name
    if name in _FEW_BY_NAME:
        kind = _FEW_BY_NAME[name]
        return Narrow(own(a.astype(FEW[kind].holder)), kind)
    if name not in NUMBERS:
        raise TypeError(f"flambeau.onnx: no tensor has the dtype {name} of this array")
    plain = a.dtype.kind in "biufc" and hasattr(np, name)
    if host and plain:
        return a
    if plain:
        return own(a)
    bits = np.array(a).view(np.uint16 if a.itemsize == 2 else np.uint8)
    if a.itemsize == 2:
        return own(bits.view(np.int16)).view(dtypes.BY_NAME[name])
    return own(bits).view(dtypes.BY_NAME[name])


def own(a: Any) -> Tensor:
    """A tensor of an array's elements in memory of its own: calls on memory that NumPy sees run one by one."""
    with flambeau.no_grad():
        return flambeau.from_numpy(a if a.flags.writeable and a.flags.c_contiguous else np.array(a)).clone()


def from_proto(t: Any, host: bool = False) -> Any:
    """A TensorProto as a value."""
    if t.HasField("segment"):
        raise NotImplementedError(f"flambeau.onnx: the tensor {t.name!r} is in segments")
    return from_array(part("numpy_helper", "flambeau.onnx").to_array(t), host)


def to_array(x: Any) -> Any:
    """A value as NumPy has it: lists of arrays for sequences."""
    if isinstance(x, list):
        return [to_array(v) for v in x]
    if x is None or isinstance(x, np.ndarray):
        return x
    if isinstance(x, Narrow):
        return x.tensor.detach().numpy().astype(getattr(ml_dtypes("flambeau.onnx"), FEW[x.kind].name))
    x = x.detach()
    name = x.dtype.name
    if hasattr(np, name):
        return x.numpy()
    made = getattr(ml_dtypes("flambeau.onnx"), name)
    return x.contiguous().view(flambeau.int16 if x.element_size() == 2 else flambeau.uint8).numpy().view(made)


def tensor(x: Any) -> Any:
    """A value as an operator takes it: a host array becomes a tensor."""
    if isinstance(x, np.ndarray) and x.dtype != object:
        return from_array(x)
    return x


def ints(x: Any) -> list[int]:
    """The elements of a small value of integers. Those of a tensor are observed."""
    return [int(v) for v in numbers(x)]


def numbers(x: Any) -> list[Any]:
    """The elements of a small value, in order."""
    if isinstance(x, (list, tuple)):
        return list(x)
    return x.reshape(-1).tolist()


def number(x: Any) -> Any:
    """The only element of a value."""
    return x.item() if isinstance(x, (Tensor, np.ndarray)) else x


def to_holder(x: Any) -> Any:
    """The tensor that holds a value: of a Narrow its elements in 8 or 32 bits."""
    return x.tensor if isinstance(x, Narrow) else tensor(x)
