"""A model file as an nn.Module: initializers as parameters and buffers, the graph as its forward."""

from __future__ import annotations

import importlib
import os
import re
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.onnx.importing import values
from flambeau.onnx.importing.graph import Context, Graph
from flambeau.onnx.package import onnx
from flambeau.tensor import Tensor

_OPERATORS: Final = (
    "pointwise", "shapes", "indexing", "reductions", "products", "convolution", "pooling", "normalization", "recurrent", "attention", "quantized", "coded",
    "images", "sequences", "strings", "control", "signals", "random", "detection", "losses", "casts", "ml",
)  # fmt: skip


class Model(Module):
    """A model that was read from an ONNX file. Called with tensors, by place or by the names of the graph's inputs; returns its output, or a tuple of them.

    Float initializers are parameters; running statistics, single numbers and others are buffers. They have their names, with "_" in place of characters
    other than letters, digits and "_".
    """

    def __init__(self, proto: Any) -> None:
        super().__init__()
        for name in _OPERATORS:
            importlib.import_module(f"flambeau.onnx.importing.{name}")
        if proto.graph.sparse_initializer:
            raise NotImplementedError("flambeau.onnx: sparse initializers are not there")
        opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
        functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
        self.opset = opsets.get("", 1)
        self._held: dict[str, str] = {}  # names of initializers -> of attributes
        context = Context(opsets, functions, lambda name, t: self._hold(name, t, False))
        # Running statistics are no parameters: they have no gradients.
        self._statistics = {i for n in proto.graph.node if n.op_type == "BatchNormalization" for i in n.input[3:5]}
        held = {t.name: self._hold(t.name, t, True) for t in proto.graph.initializer}
        self.input_names = [v.name for v in proto.graph.input if v.name not in held]
        self.output_names = [v.name for v in proto.graph.output]
        self._types = {v.name: v.type for v in proto.graph.input}
        graph = Graph(context, proto.graph.node, self.input_names + [n for n, v in held.items() if v is None], self.output_names,
                      {n: v for n, v in held.items() if v is not None})  # fmt: skip
        if context.missing:
            raise NotImplementedError(f"flambeau.onnx: the model uses operators that are not there: {', '.join(sorted(set(context.missing)))}")
        if graph.outer:
            raise ValueError(f"flambeau.onnx: no node, input or initializer of the model gives {graph.outer[0]!r}")
        self._graph = graph
        self._parts = [n for n, v in held.items() if v is None]
        graph.settle(self._parts, [getattr(self, self._held[n]) for n in self._parts])
        self._declared = {v.name: _declared(v.type) for v in proto.graph.input}

    def _hold(self, name: str, t: Any, own: bool) -> Any:
        """Register an initializer. Small ones of integers are constants of the graph, too; others are looked up when it runs (None)."""
        value = values.from_proto(t, host=True)
        if not isinstance(value, np.ndarray) or value.dtype == object:
            if not isinstance(value, Tensor):
                return value
            made: Any = value
        elif (value.dtype.kind in "iub" and value.size <= 4096) or not value.ndim:
            made = None
        else:
            made = values.tensor(value)
        if not own:
            return value if made is None else made
        place = re.sub(r"\W", "_", name) or "_"
        if place[0].isdigit() or hasattr(self, place):
            place = f"w_{place}"
        while hasattr(self, place):
            place += "_"
        self._held[name] = place
        if made is None:
            self.register_buffer(place, values.from_array(value))
            return value
        if (made.is_floating_point() or made.is_complex()) and name not in self._statistics:
            self.register_parameter(place, Parameter(made, requires_grad=made.element_size() > 1))
        else:
            self.register_buffer(place, made)
        return None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        made = self.run_list(self._arguments(args, kwargs))
        return made[0] if len(made) == 1 else tuple(made)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = self.input_names
        if len(args) > len(names):
            raise TypeError(f"the ONNX model takes {len(names)} inputs ({', '.join(names)}), got {len(args)}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                raise TypeError(f"the ONNX model has {'two values for' if name in given else 'no'} input {name!r}; its inputs: {', '.join(names)}")
            given[name] = value
        missing = [n for n in names if n not in given and self._types[n].WhichOneof("value") != "optional_type"]
        if missing:
            raise TypeError(f"the ONNX model's input {missing[0]!r} is missing; its inputs: {', '.join(names)}")
        return [self._checked(n, given.get(n)) for n in names]

    def _checked(self, name: str, x: Any) -> Any:
        """An argument of the dtype and rank that the graph declares."""
        declared = self._declared[name]
        if declared is None or not isinstance(x, Tensor):
            return x
        kind, sizes = declared
        if kind and values.number_of(x) != kind:
            wanted = values.TYPES.get(kind, "string" if kind == values.STRING else f"number {kind}")
            raise TypeError(f"the ONNX model's input {name!r} is of dtype {wanted}, got a tensor of {x.dtype}")
        if sizes is not None and (len(sizes) != x.ndim or any(type(s) is int and s != n for s, n in zip(sizes, x.shape, strict=True))):
            raise ValueError(f"the ONNX model's input {name!r} has the shape {sizes}, got one of {list(x.shape)}")
        return x

    def run_list(self, inputs: list[Any]) -> list[Any]:
        """The outputs of the graph, as tensors; strings as arrays."""
        held = [getattr(self, self._held[n]) for n in self._parts]
        return [values.tensor(v) for v in self._graph.run([*inputs, *held])]


def _declared(t: Any) -> tuple[int, list[Any] | None] | None:
    """(dtype, sizes by numbers and names, or None) of a tensor; None of what is none."""
    if t.WhichOneof("value") != "tensor_type":
        return None
    tensor = t.tensor_type
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim] if tensor.HasField("shape") else None
    return tensor.elem_type, sizes


def load(f: Any) -> Model:
    """The model of a file, a binary file object or a ModelProto as an nn.Module of flambeau's operations. Nothing in a file is executed.

    NotImplementedError names the operators that are not there.
    """
    package = onnx("flambeau.onnx.load")
    if isinstance(f, package.ModelProto):
        return Model(f)
    try:
        proto = package.load(f if hasattr(f, "read") else os.fspath(f))
    except Exception as error:
        if type(error).__name__ == "DecodeError":
            raise ValueError(f"flambeau.onnx.load: this is no ONNX model: {error}") from None
        raise
    if not proto.graph.node and not proto.graph.output:
        raise ValueError("flambeau.onnx.load: this is no ONNX model: it has no graph")
    return Model(proto)


def run(model: Any, inputs: Any, output_names: list[str] | None = None) -> list[Any]:
    """The outputs of a model (a file or what `load` gave) as NumPy arrays, as ONNX Runtime's `session.run` gives them. `inputs`: arrays or tensors by name,
    or a list of them."""
    loaded = model if isinstance(model, Model) else load(model)
    if isinstance(inputs, dict):
        args, kwargs = (), {k: _given(v) for k, v in inputs.items()}
    else:
        args, kwargs = tuple([_given(v) for v in inputs]), {}
    with flambeau.no_grad():
        made = loaded.run_list(loaded._arguments(args, kwargs))
        found = [values.to_array(v) for v in made]
    if output_names is None:
        return found
    unknown = [n for n in output_names if n not in loaded.output_names]
    if unknown:
        raise ValueError(f"the ONNX model has no output {unknown[0]!r}; its outputs: {', '.join(loaded.output_names)}")
    return [found[loaded.output_names.index(n)] for n in output_names]


def _given(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_given(v) for v in x]
    return x if x is None or isinstance(x, (Tensor, values.Narrow)) else values.from_array(x)
