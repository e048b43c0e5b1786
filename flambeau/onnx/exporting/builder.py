"""What the forms of operators write with: values with dtype and shape, nodes, constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.export.shapes import layout_of
from flambeau.onnx.importing.values import NUMBERS, to_array
from flambeau.onnx.package import part
from flambeau.symbols import Sym
from flambeau.tensor import Tensor

FORMS: Final[dict[str, Callable[..., Any]]] = {}  # by "name" or "name.overload" of aten's operators


def form(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function writes the operators of these names. Its parameters have the schema's names."""

    def enter(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FORMS[name] = f
        return f

    return enter


class Val:
    """A value of the ONNX graph: its name, and what flambeau's export knows of it."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, dtype: Any, shape: Sequence[Any] | None) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape

    @property
    def ndim(self) -> int:
        """The count of dims."""
        assert self.shape is not None
        return len(self.shape)

    @property
    def floating(self) -> bool:
        """Whether the elements are floats."""
        return bool(self.dtype.is_floating_point)


class SizeVal:
    """A size that follows from the inputs' sizes: an int64 vector of one element, or a float one."""

    __slots__ = ("is_float", "name")

    def __init__(self, name: str, is_float: bool = False) -> None:
        self.name, self.is_float = name, is_float


class Builder:
    """The nodes and initializers of a graph."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.helper, self.numpy_helper = part("helper", "torch.onnx.export"), part("numpy_helper", "torch.onnx.export")
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.constants: dict[Any, str] = {}
        self.names: set[str] = set()
        self.out: Any = None  # what export knows of the node's result
        self.where = ""  # the operator that is being written

    # -- names and nodes ------------------------------------------------------------------------------------------------
    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        name, i = stem, 0
        while name in self.names:
            i += 1
            name = f"{stem}_{i}"
        self.names.add(name)
        return name

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """A node with one result; its name. Inputs are names, values, sizes, or None."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: Any, **attributes: Any) -> list[str]:
        """A node with several results."""
        given = ["" if x is None else x if isinstance(x, str) else x.name for x in inputs]
        while given and not given[-1]:
            given.pop()
        outputs = [self.fresh(kind.lower()) for _ in range(count)]
        self.nodes.append(self.helper.make_node(kind, given, outputs, name=outputs[0], **{k: v for k, v in attributes.items() if v is not None}))
        return outputs

    # -- constants ----------------------------------------------------------------------------------------------------
    def array(self, a: Any, stem: str = "constant") -> str:
        """An initializer of an array; equal ones are one."""
        a = np.asarray(a)
        key = (a.dtype.name, a.shape, a.tobytes())
        if key not in self.constants:
            name = self.constants[key] = self.fresh(stem)
            self.initializers[name] = self.numpy_helper.from_array(a, name)
        return self.constants[key]

    def number(self, x: Any, dtype: Any) -> str:
        """A number as a constant without dims; a size as a value of the dtype."""
        if isinstance(x, SizeVal):
            scalar = self.op("Squeeze", x.name, self.array(np.array([0], np.int64)))
            return self.op("Cast", scalar, to=NUMBERS[dtype.name])
        return self.array(to_array(flambeau.tensor(x, dtype=dtype)))

    def ints(self, xs: Sequence[Any]) -> str:
        """A vector of ints, some of which may be sizes."""
        if not any(isinstance(x, SizeVal) for x in xs):
            return self.array(np.array([int(x) for x in xs], np.int64))
        parts = [x.name if isinstance(x, SizeVal) else self.array(np.array([int(x)], np.int64)) for x in xs]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    # -- values -------------------------------------------------------------------------------------------------------
    def cast(self, x: Any, dtype: Any) -> Any:
        """A value in another dtype."""
        if x.dtype is dtype:
            return x
        return Val(self.op("Cast", x, to=NUMBERS[dtype.name]), dtype, x.shape)

    def operand(self, x: Any, dtype: Any) -> Any:
        """A tensor or a number as an operand of a dtype."""
        return self.cast(x, dtype) if isinstance(x, Val) else self.number(x, dtype)

    def size(self, x: Val, d: int) -> Any:
        """A size of a value: an int, or a SizeVal."""
        assert x.shape is not None
        n = x.shape[d]
        d = d % len(x.shape)
        return SizeVal(self.op("Shape", x, start=d, end=d + 1)) if isinstance(n, Sym) else int(n)

    def dtype(self, i: int | None = None) -> Any:
        """The dtype of the node's result."""
        return described(self.out if i is None else self.out[i])[0]

    def rank(self) -> int:
        """How many dims the node's result has."""
        return len(described(self.out)[1])

    def refuse(self, what: str) -> NotImplementedError:
        """An error that names the operator."""
        from flambeau.onnx.errors import UnsupportedOperatorError

        return UnsupportedOperatorError(f"torch.onnx.export: {self.where}: {what}")


def described(v: Any) -> tuple[Any, tuple[Any, ...]]:
    """(dtype, shape) of what export knows of a tensor."""
    m = layout_of(v) if isinstance(v, Tensor) else v
    return m.dtype, tuple(m.shape)
