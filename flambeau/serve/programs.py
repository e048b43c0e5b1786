"""Model files as programs over arrays: `.pt2` and `.onnx`, in which nothing is executed, and `model.py`, which is Python."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.runtime.buffers import allocate
from flambeau.runtime.memory import view_as_numpy
from flambeau.serve.datatypes import TensorSpec, datatype_of
from flambeau.serve.errors import BadRequest, ServeError
from flambeau.serve.prepared import PreparedCall, prepare
from flambeau.symbols import Sym
from flambeau.tensor import Tensor

_PREPARED: Final = 64  # shapes whose plans a program keeps
_PREPARE_AT: Final = 3  # requests of one shape before it gets a plan of its own
Arrays = list[Any]


class Program:
    """What a model does: arrays in the order of `inputs` to arrays in the order of `outputs`.

    `batched`: whether dim 0 of all of them is a batch whose rows may come from several requests. `largest`: the largest batch.
    """

    platform = ""
    description = ""

    def __init__(self, inputs: list[TensorSpec], outputs: list[TensorSpec], batched: bool, largest: int | None) -> None:
        names = [s.name for s in inputs]
        if len(set(names)) != len(names):
            raise ValueError(f"the model has two inputs of one name: {names}")
        self.inputs, self.outputs, self.batched, self.largest = inputs, outputs, batched, largest

    def run(self, arrays: Arrays) -> Arrays:
        """The outputs."""
        raise NotImplementedError

    def run_many(self, requests: Sequence[Arrays]) -> list[Arrays]:
        """The outputs of several requests, whose shapes differ in dim 0 only, in one run."""
        if len(requests) == 1:
            return [self.run(requests[0])]
        made = self.run([np.concatenate(parts) for parts in zip(*requests, strict=True)])
        return split(made, requests)

    def warm_up(self, sizes: Sequence[int]) -> float:
        """Run once at each batch size; the median seconds of a run at the last of them."""
        seconds = 0.0
        for n in sizes if self.batched else [1]:
            arrays = self.sample(n)
            if arrays is None:
                return math.inf
            for _ in range(_PREPARE_AT + 1):
                self.run_many([arrays])
            times = []
            for _ in range(5):
                begun = time.perf_counter()
                self.run_many([arrays])
                times.append(time.perf_counter() - begun)
            seconds = sorted(times)[2]
        return seconds

    def sample(self, rows: int, seed: int = 0) -> Arrays | None:
        """Arrays that the model takes: random where elements are floats, else zeros; sizes that are free are `rows` for the batch and 8 elsewhere."""
        random = np.random.default_rng(seed)
        made: Arrays = []
        for spec in self.inputs:
            shape = [(rows if self.batched and d == 0 else 8) if n < 0 else n for d, n in enumerate(spec.shape)]
            if spec.datatype == "BYTES":
                a = np.empty(shape, object)
                a[...] = b""
            elif spec.dtype.kind == "f":
                a = random.standard_normal(shape).astype(spec.dtype)
            else:
                a = np.zeros(shape, spec.dtype)
            made.append(a)
        return made

    def close(self) -> None:
        """Called when the last request has been answered."""


def split(made: Arrays, requests: Sequence[Arrays]) -> list[Arrays]:
    """The rows of each request. ServeError if an output has another number of rows than the inputs: the model must not be batched."""
    sizes = [r[0].shape[0] for r in requests]
    total = sum(sizes)
    for a in made:
        if a.shape[:1] != (total,):
            raise ServeError(f"an output has shape {list(a.shape)} for {total} rows: set batching = false in the model's config.toml")
    found, at = [], 0
    for n in sizes:
        found.append([a[at : at + n] for a in made])
        at += n
    return found


class _Prepared:
    """One plan with memory for its inputs, which rows are copied to."""

    __slots__ = ("buffers", "call", "rows", "shapes", "views")

    def __init__(self, call: PreparedCall, arrays: Arrays) -> None:
        self.call = call
        self.rows = arrays[0].shape[0] if arrays and arrays[0].ndim else 1
        self.buffers = [allocate(a.nbytes) for a in arrays]
        self.views = [view_as_numpy(b.address, b.nbytes, b)[: a.nbytes].view(a.dtype).reshape(a.shape) for a, b in zip(arrays, self.buffers, strict=True)]
        self.shapes = [(r._meta.shape, np.dtype(r._meta.dtype.numpy_name)) for r in call.results]
        call.results = []

    def run(self, requests: Sequence[Arrays]) -> Arrays:
        """The outputs; rows beyond those of the requests are what was there before, and nobody reads them."""
        for i, view in enumerate(self.views):
            if len(requests) == 1 and requests[0][i].shape == view.shape:
                view[...] = requests[0][i]
                continue
            at = 0
            for r in requests:
                a = r[i]
                view[at : at + a.shape[0]] = a
                at += a.shape[0]
        made = []
        for buffer, (shape, dtype) in zip(self.call.run(self.buffers), self.shapes, strict=True):
            nbytes = math.prod(shape) * dtype.itemsize
            made.append(view_as_numpy(buffer.address, buffer.nbytes, buffer)[:nbytes].view(dtype).reshape(shape))
        return made


class TensorProgram(Program):
    """A function of flambeau's tensors. Shapes that come again get plans of their own (serve/prepared.py)."""

    def __init__(
        self, function: Callable[[list[Tensor]], Sequence[Tensor]], inputs: list[TensorSpec], outputs: list[TensorSpec], batched: bool, largest: int | None,
        platform: str,
    ) -> None:  # fmt: skip
        super().__init__(inputs, outputs, batched, largest)
        self.function, self.platform = function, platform
        self._prepared: dict[Any, _Prepared | None] = {}
        self._seen: dict[Any, int] = {}
        self._steps: list[int] = []

    def run(self, arrays: Arrays) -> Arrays:
        """The outputs, without a plan of their own."""
        with flambeau.no_grad():
            made = self.function([flambeau.from_numpy(a if a.flags.writeable and a.flags.c_contiguous else a.copy()) for a in arrays])
            return [t.numpy() if isinstance(t, Tensor) else np.asarray(t) for t in made]

    def run_many(self, requests: Sequence[Arrays]) -> list[Arrays]:
        """The outputs of several requests."""
        first = requests[0]
        rows = sum([r[0].shape[0] for r in requests]) if self.batched else 0
        size = rows
        for step in self._steps:
            if step >= rows:
                size = step
                break
        key = (size, *[a.shape[1:] if self.batched else a.shape for a in first])
        found = self._prepared.get(key)
        if found is None:
            found = self._learn(key, size, first)
        if found is not None:
            made = found.run(requests)
            if not self.batched:
                return [made]
            if found.rows != rows:
                made = [a[:rows] for a in made]
            return [made] if len(requests) == 1 else split(made, requests)
        if len(requests) == 1:
            return [self.run(first)]
        return split(self.run([np.concatenate(parts) for parts in zip(*requests, strict=True)]), requests)

    def _learn(self, key: Any, rows: int, first: Arrays) -> _Prepared | None:
        """A plan for these shapes, if they have come often enough."""
        if key in self._prepared or len(self._prepared) >= _PREPARED or not first:
            return None
        if len(self._seen) > 4096:
            self._seen.clear()
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen < _PREPARE_AT:
            return None
        arrays = [np.zeros((rows, *a.shape[1:]) if self.batched else a.shape, a.dtype) for a in first]
        call = prepare(lambda *xs: self.function(list(xs)), [flambeau.from_numpy(a).clone() for a in arrays])
        self._prepared[key] = made = None if call is None else _Prepared(call, arrays)
        self._seen.pop(key, None)
        return made

    def warm_up(self, sizes: Sequence[int]) -> float:
        """Run once at each batch size, and pad to these from then on."""
        seconds = super().warm_up(sizes)
        if self.batched:
            self.pad_to({key[0] for key, made in self._prepared.items() if made is not None})
        return seconds

    def pad_to(self, sizes: Iterable[int]) -> None:
        """The batch sizes that get plans; what is between two is padded to the next."""
        self._steps = sorted(sizes)


def _shape(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple([-1 if isinstance(n, Sym) else int(n) for n in sizes])


def load_pt2(path: Path, mapped: bool = False) -> Program:
    """A program of torch.export. Reading it executes nothing. NotImplementedError for inputs that are no tensors. `mapped`: share its weights."""
    from flambeau.export.archive import load, load_mapped
    from flambeau.export.graph_signature import InputKind, OutputKind
    from flambeau.export.shapes import layout_of

    program = load_mapped(path) if mapped else load(path)
    module = program.module(check_guards=False)
    nodes = {n.name: n for n in program.graph.nodes}
    signature = program.graph_signature
    written = [s.kind.name for s in signature.output_specs if s.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)]
    if written:
        raise NotImplementedError(f"{path.name}: the program writes to its buffers or inputs ({written[0]}); requests must not depend on earlier ones: "
                                  "export it in eval mode")  # fmt: skip
    inputs: list[TensorSpec] = []
    leaves: list[Any] = []
    first_dims: list[Any] = []
    for s in signature.input_specs:
        if s.kind is not InputKind.USER_INPUT:
            continue
        value = nodes[s.arg.name].meta.get("val") if s.arg.name in nodes else None
        if not isinstance(value, Tensor):
            constant = getattr(s.arg, "value", value)
            if isinstance(constant, Sym) or not (constant is None or isinstance(constant, (int, float, bool, str))):
                raise NotImplementedError(f"{path.name}: the input {s.arg.name!r} is a {type(constant).__name__}: only tensors and constants are served")
            leaves.append(constant)
            continue
        layout = layout_of(value)
        inputs.append(TensorSpec(s.arg.name, _datatype(layout.dtype), _shape(layout.shape)))
        first_dims.append(layout.shape[0] if layout.shape else None)
        leaves.append(_Hole)
    made = next(n for n in program.graph.nodes if n.op == "output").args[0]
    users = [v for v, s in zip(made, signature.output_specs, strict=True) if s.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)]
    call = program.module_call_graph[0].signature
    assert call is not None
    names = _output_names(call.out_spec, len(users))
    outputs: list[TensorSpec] = []
    kept: list[int] = []
    for i, (v, name) in enumerate(zip(users, names, strict=True)):
        value = getattr(v, "meta", {}).get("val")
        if not isinstance(value, Tensor):
            continue
        layout = layout_of(value)
        outputs.append(TensorSpec(name, _datatype(layout.dtype), _shape(layout.shape)))
        first_dims.append(layout.shape[0] if layout.shape else None)
        kept.append(i)
    if not inputs or not outputs:
        raise NotImplementedError(f"{path.name}: a program without {'inputs' if not inputs else 'outputs'} that are tensors is not served")
    symbols = {str(n.expr) if isinstance(n, Sym) else None for n in first_dims}
    batched = len(symbols) == 1 and None not in symbols
    limit = program.range_constraints.get(next(iter(symbols)) or "") if batched else None
    in_spec = call.in_spec
    flatten = _tensor_leaves

    def run(tensors: list[Tensor]) -> list[Tensor]:
        given = iter(tensors)
        args, kwargs = in_spec.unflatten([next(given) if leaf is _Hole else leaf for leaf in leaves])
        flat = flatten(module(*args, **kwargs))
        return [flat[i] for i in kept]

    ranges = {n: (r.lower, r.upper) for n, r in program.range_constraints.items()}
    made_program = _Ranged(run, inputs, outputs, batched, limit.upper if limit is not None else None, "flambeau_pt2")
    made_program.module = module
    made_program.ranges = [
        (i, d, str(n.expr), *ranges.get(str(n.expr), (0, None)))
        for i, s in enumerate([x for x in signature.input_specs if x.kind is InputKind.USER_INPUT and isinstance(nodes[x.arg.name].meta.get("val"), Tensor)])
        for d, n in enumerate(layout_of(nodes[s.arg.name].meta["val"]).shape) if isinstance(n, Sym)
    ]  # fmt: skip
    return made_program


class _Ranged(TensorProgram):
    """A program that holds for some sizes: (input, dim, name of the size, least, most)."""

    ranges: list[tuple[int, int, str, int, int | None]] = []
    module: Any = None  # its graph

    def check(self, arrays: Arrays) -> None:
        """BadRequest for sizes for which the program does not hold."""
        known: dict[str, int] = {}
        for i, d, name, least, most in self.ranges:
            n = arrays[i].shape[d]
            if n < least or (most is not None and n > most):
                limit = f"at least {least}" if n < least else f"at most {most}"
                raise BadRequest(f"input {self.inputs[i].name!r}: size {n} of dim {d} must be {limit}")
            if known.setdefault(name, n) != n:
                raise BadRequest(f"input {self.inputs[i].name!r}: size {n} of dim {d} must be {known[name]}, which another input has there")


class _Hole:
    """Stands for a tensor among the constants of a program's inputs."""


def _tensor_leaves(made: Any) -> list[Any]:
    from flambeau.utils._pytree import tree_leaves

    return tree_leaves(made)


def _datatype(dtype: Any) -> str:
    if dtype.numpy_name is None:
        raise NotImplementedError(f"tensors of {dtype} are not served: NumPy has no such dtype; convert them in the model")
    return datatype_of(np.dtype(dtype.numpy_name))


def _output_names(spec: Any, count: int) -> list[str]:
    """The keys of a dict of tensors; else "output", or "output_0", "output_1"."""
    keys = list(getattr(spec, "context", None) or []) if getattr(spec, "type", None) is dict else []
    if len(keys) == count and all(isinstance(k, str) for k in keys):
        return keys
    return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]


def load_onnx(path: Path) -> Program:
    """A model of ONNX. Reading it executes nothing."""
    from flambeau.onnx import load
    from flambeau.onnx.package import onnx, part

    model = load(str(path)).eval()
    helper = part("helper", "flambeau.serve")
    proto = onnx("flambeau.serve").load(str(path), load_external_data=False)
    inputs = [v for v in proto.graph.input if v.name in model.input_names]
    dims: list[str] = []

    def spec(v: Any) -> TensorSpec:
        if v.type.WhichOneof("value") != "tensor_type" or not v.type.tensor_type.HasField("shape"):
            raise NotImplementedError(f"{path.name}: {v.name!r} is no tensor of a known rank: it is not served")
        t = v.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(t.elem_type)
        shape = [d.dim_value if d.HasField("dim_value") else -1 for d in t.shape.dim]
        dims.append(t.shape.dim[0].dim_param if shape and shape[0] == -1 else "")
        return TensorSpec(v.name, datatype_of(dtype), tuple(shape))

    ins, outs = [spec(v) for v in inputs], [spec(v) for v in proto.graph.output]
    batched = bool(ins) and bool(dims[0]) and len(set(dims)) == 1

    def run(tensors: list[Tensor]) -> list[Tensor]:
        return model.run_list(list(tensors))

    return TensorProgram(run, ins, outs, batched, None, "onnx")


class CodeProgram(Program):
    """The class `Model` of a `model.py`: `predict(inputs)` gets arrays by name and returns arrays by name."""

    platform = "python"

    def __init__(self, model: Any, path: Path) -> None:
        def specs(name: str) -> list[TensorSpec]:
            listed = getattr(model, name, None)
            if listed is None:
                raise TypeError(f"{path}: Model has no attribute {name!r}: a list of (name, datatype, shape)")
            return [s if isinstance(s, TensorSpec) else TensorSpec(str(s[0]), str(s[1]), tuple(s[2])) for s in listed]

        largest = getattr(model, "max_batch_size", 0)
        super().__init__(specs("inputs"), specs("outputs"), bool(largest), largest or None)
        self.model = model

    def run(self, arrays: Arrays) -> Arrays:
        """The outputs; ServeError if the class returns something else than it says."""
        made = self.model.predict({s.name: a for s, a in zip(self.inputs, arrays, strict=True)})
        if not isinstance(made, dict) or set(made) != {s.name for s in self.outputs}:
            found = sorted(made) if isinstance(made, dict) else type(made).__name__
            raise ServeError(f"predict returned {found}, the model's outputs are {[s.name for s in self.outputs]}")
        found = [np.asarray(made[s.name].numpy() if isinstance(made[s.name], Tensor) else made[s.name]) for s in self.outputs]
        return [a if a.dtype == s.dtype or s.dtype.kind == "O" else a.astype(s.dtype) for a, s in zip(found, self.outputs, strict=True)]

    def close(self) -> None:
        """The class's own `close`, if it has one."""
        close = getattr(self.model, "close", None)
        if callable(close):
            close()


def load_code(path: Path) -> Any:
    """An instance of the class `Model` of a Python file, which is executed: a CodeProgram, or a LanguageModel as it is."""
    from flambeau.serve.language import LanguageModel

    scope: dict[str, Any] = {"__name__": f"flambeau_served_{path.parent.name}", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    made = scope.get("Model")
    if not isinstance(made, type):
        raise TypeError(f"{path}: has no class Model")
    try:
        model = made(str(path.parent))
    except TypeError as error:
        raise TypeError(f"{path}: Model(folder) failed: {error}; its __init__ takes the folder of the version") from error
    return model if isinstance(model, LanguageModel) else CodeProgram(model, path)
