"""torch.fx.experimental.proxy_tensor.make_fx: a function as a graph of aten's operators, for the layouts of the arguments that it is given.

The function runs once over tensors that have no elements, as a module does in torch.export; but its inputs keep their places, tensors that it holds become
attributes of the graph, and operators that PyTorch composes of others above its dispatcher are taken apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import flambeau
from flambeau._ops import OpOverload
from flambeau.export import decompositions
from flambeau.export.errors import GuardOnDataDependentSymNode
from flambeau.export.exporting import _strides
from flambeau.export.schemas import Schema
from flambeau.export.shapes import layout_of
from flambeau.export.tracing import _VALUES, Traced, Tracer, _unseen, active, traced
from flambeau.fx.graph import CodeGen
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.nn.parameter import Parameter
from flambeau.symbols import Recording
from flambeau.tensor import Tensor
from flambeau.trace.meta import meta
from flambeau.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

MODES: Final = ("real", "fake", "symbolic")
aten: Final = flambeau.ops.aten

# Operators that PyTorch composes of others before anything below autograd sees them.
_COMPOSED: Final = """reshape flatten expand_as chunk narrow movedim tile contiguous to one_hot linear matmul einsum scaled_dot_product_attention batch_norm
    layer_norm group_norm rms_norm pad cross_entropy_loss softmax.int log_softmax.int unflatten.int nll_loss_nd numpy_T mT view_as type_as broadcast_to
    argsort square relu6 selu true_divide conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool2d max_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d""".split()


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    shape = list(layout_of(x).shape)
    if len(shape) != 2 or layout_of(weight).ndim != 2:
        return decompositions.linear(x, weight, bias)
    turned = aten.t.default(weight)
    return aten.mm.default(x, turned) if bias is None else aten.addmm.default(bias, x, turned)


def _dropout(x: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x
    mask = aten.bernoulli_.float(aten.empty_like.default(x), 1 - p)
    return aten.mul.Tensor(x, aten.div_.Scalar(mask, 1 - p))


def _corrected(name: str) -> Callable[..., Any]:
    def call(x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return getattr(aten, name).correction(x, dim, correction=int(unbiased), keepdim=keepdim)

    return call


_TABLE: Final[dict[Any, Callable[..., Any]]] = {
    **{name: decompositions.TABLE[name] for name in _COMPOSED}, "linear": _linear, "dropout": _dropout,
    **{f"{name}.{kind}": _corrected(name) for name in ("std", "var") for kind in ("default", "dim")},
    "where.ScalarOther": decompositions.where, "where.ScalarSelf": decompositions.where, "where.Scalar": decompositions.where,
}  # fmt: skip


class ProxyTorchDispatchMode:
    """What `get_proxy_mode` answers while a function is traced: its tracer, and how it traces."""

    def __init__(self, tracer: Tracer, tracing_mode: str, pre_dispatch: bool) -> None:
        self.tracer, self.tracing_mode, self.pre_dispatch = tracer, tracing_mode, pre_dispatch


class FunctionTracer(Tracer):
    """Records a function. `table`: what its caller wants operators to be made of; composed ones are taken apart unless `whole`."""

    def __init__(self, recording: Recording, table: Mapping[Any, Callable[..., Any]], tracing_mode: str, whole: bool) -> None:
        super().__init__(recording)
        self.table, self.whole = table, whole
        self.proxy_mode = ProxyTorchDispatchMode(self, tracing_mode, whole)
        self.attributes: dict[str, Tensor] = {}
        self.lift = self._attribute

    def _attribute(self, t: Tensor, stem: str) -> Node:
        """The node of a tensor that the function holds."""
        stem = "_param_constant" if isinstance(t, Parameter) else "_tensor_constant"
        name = f"{stem}{sum([k.startswith(stem) for k in self.attributes])}"
        self.attributes[name] = t
        node = self.graph.get_attr(name)
        m = layout_of(t)
        node.meta["val"] = traced(meta(m.shape, m.strides, m.dtype, m.offset, t.requires_grad, True, False, False, m.device))
        return node

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A public function that the function calls; those that ask tensors of its own for their values get them."""
        if getattr(function, "__name__", "") in _VALUES and not any(isinstance(x, Traced) for x in tree_leaves((args, kwargs))):
            with _unseen(self):
                return function(*args, **kwargs)
        return super().call(function, args, kwargs)

    def record(self, s: Schema, args: Sequence[Any], kwargs: dict[str, Any], function: Any, call: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """A call: as what the caller's table makes of it, taken apart if it is composed, or as it is."""
        of_aten = not isinstance(function, OpOverload) or function.namespace == "aten"
        op = getattr(getattr(aten, s.name), s.overload) if of_aten else function
        wanted: Callable[..., Any] | None = self.table.get(op)
        if wanted is None and of_aten and not self.whole:
            wanted = _TABLE.get(s.full) or _TABLE.get(s.name)
        if wanted is not None:
            result = wanted(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return super().record(s, args, kwargs, function, call)


class _Flat(CodeGen):
    """forward(x, y) whose arguments are trees: their leaves are the graph's placeholders."""

    def __init__(self, names: list[str], structure: Any) -> None:
        super().__init__()
        self.names, self.structure = names, structure

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line `def forward(...)`, and the one that takes the arguments apart."""
        leaves = [v for v in free_vars if v != "self"]
        inside = f"\n    {', '.join(leaves)}, = _leaves([{', '.join(self.names)}])" if leaves else ""
        return f"def forward({', '.join(['self', *self.names])}){maybe_return_annotation}:{inside}"

    def process_inputs(self, *args: Any) -> Any:
        """The leaves of the arguments. ValueError if they are another tree than that which was traced."""
        return self._leaves(list(args))

    def _leaves(self, args: list[Any]) -> list[Any]:
        flat, structure = tree_flatten(args)
        if structure != self.structure:
            raise ValueError(f"the function was traced with arguments of the structure {self.structure}, got {structure}")
        return flat

    def additional_globals(self) -> list[tuple[str, Any]]:
        """The function that takes arguments apart."""
        return [("_leaves", self._leaves)]


def _names(function: Any, count: int) -> list[str]:
    """The names of so many arguments by position: those of the function where it says all of them."""
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return [f"arg{i}" for i in range(count)]
    names = list(code.co_varnames[: code.co_argcount])
    names = names[1:] if inspect.ismethod(plain) else names
    if count > len(names):
        raise TypeError(f"make_fx: {getattr(plain, '__name__', plain)} takes {len(names)} arguments by position, got {count}")
    return names[:count]


class _Inputs:
    """Placeholders for the leaves of the arguments, and their values while the function runs. Dims of 2 and more that are alike are one symbol."""

    def __init__(self, leaves: list[Any], symbolic: bool) -> None:
        self.symbolic, self.numbers = symbolic, dict[int, int]()
        self.given = [leaf for leaf in leaves if symbolic and type(leaf) is int]  # a number of one's own is a symbol of its own
        for leaf in leaves if symbolic else ():
            for n in leaf.shape if isinstance(leaf, Tensor) else ():
                if n not in (0, 1):
                    self.numbers.setdefault(int(n), len(self.numbers))
        self.recording = Recording([*self.numbers, *self.given])
        self.next = len(self.numbers)

    def value(self, leaf: Any, node: Node, tracer: Tracer) -> Any:
        """What stands for a leaf; the node is noted as that of its tensor, or of its symbols."""
        sizes = {n: self.recording.size(i) for n, i in self.numbers.items()}
        if isinstance(leaf, Tensor):
            m = layout_of(leaf)
            shape = [sizes.get(int(n), n) for n in m.shape]
            strides = _strides(m, shape) if self.symbolic else m.strides
            made = traced(meta(tuple(shape), strides, m.dtype, 0, leaf.requires_grad, device=m.device))
            tracer.name(made, node)
            for d, n in enumerate(m.shape):
                if int(n) in self.numbers:
                    tracer.sources.setdefault(self.numbers[int(n)], (node, d))
            return made
        value: Any = leaf
        if self.symbolic and type(leaf) is int:
            value = self.recording.size(self.next)
            tracer.sources[self.next] = node
            self.next += 1
        node.meta["val"] = value
        return value


def _plain(x: Any) -> Any:
    """A result with tuples in place of named ones, as a graph has them."""
    if isinstance(x, (tuple, list)):
        return (list if isinstance(x, list) else tuple)([_plain(y) for y in x])
    return {k: _plain(v) for k, v in x.items()} if isinstance(x, dict) else x


def make_fx(
    f: Callable[..., Any], decomposition_table: Mapping[Any, Callable[..., Any]] | None = None, tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False, *, pre_dispatch: bool = False, record_module_stack: bool = False, _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True, record_stack_traces: bool = False,
) -> Callable[..., GraphModule]:  # fmt: skip
    """A function that traces `f`: called with arguments, it gives a GraphModule of the operators of aten that `f` calls for them.

    `tracing_mode`: "real" and "fake" take all sizes as they are; with "symbolic" sizes of 2 and more may be others in later calls, sizes that are alike
    stay alike, and the answers to what `f` asks of sizes are kept. Nothing is computed in any mode. `decomposition_table`: overload -> a function that is
    traced in its place. `pre_dispatch`: composed operators (aten.linear) stay whole. Differentiating inside of `f` is refused.
    """
    if tracing_mode not in MODES:
        raise ValueError(f"make_fx: tracing_mode is one of {', '.join(map(repr, MODES))}, got {tracing_mode!r}")
    if not callable(f):
        raise TypeError(f"make_fx: f is a function, got {type(f).__name__}")

    def trace(*args: Any) -> GraphModule:
        names = _names(f, len(args))
        leaves, structure = tree_flatten(list(args))
        nested = len(leaves) != len(args) or any(leaf is not arg for leaf, arg in zip(leaves, args, strict=True))
        inputs = _Inputs(leaves, tracing_mode == "symbolic")
        tracer = FunctionTracer(inputs.recording, decomposition_table or {}, tracing_mode, pre_dispatch)
        labels = [f"arg{i}_1" for i in range(len(leaves))] if nested else [f"{name}_1" for name in names]
        values = []
        for leaf, label in zip(leaves, labels, strict=True):
            tracer.last_input = tracer.graph.placeholder(label)
            values.append(inputs.value(leaf, tracer.last_input, tracer))
        try:
            result = tracer.run(f, tree_unflatten(values, structure), {})
        except GuardOnDataDependentSymNode as e:
            raise RuntimeError(
                "It appears that you're trying to get value out of a tracing tensor - erroring out! It's likely that this is caused by data-dependent "
                f"control flow or similar. {e}"
            ) from e
        tracer.graph.output(tracer.nodes(_plain(result)))
        if nested:
            tracer.graph.set_codegen(_Flat(names, structure))
        return GraphModule(dict(tracer.attributes), tracer.graph, getattr(f, "__name__", type(f).__name__))

    return trace


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The mode of the innermost make_fx that is tracing, or None."""
    return active.tracer.proxy_mode if isinstance(active.tracer, FunctionTracer) else None


@contextmanager
def disable_proxy_modes_tracing() -> Iterator[None]:
    """A block whose calls are not recorded."""
    if active.tracer is None:
        yield
        return
    with _unseen(active.tracer):
        yield


def get_isolated_graphmodule(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tracing_mode: str = "real", decomposition_table: Any = None,
) -> GraphModule:  # fmt: skip
    """The graph of a call, traced apart from what is being traced: its placeholders are the leaves of `args` and `kwargs`."""
    leaves, structure = tree_flatten((args, kwargs))

    def flat(*values: Any) -> Any:
        given, named = tree_unflatten(list(values), structure)
        return func(*given, **named)

    with disable_proxy_modes_tracing():
        return make_fx(flat, decomposition_table, tracing_mode)(*leaves)
