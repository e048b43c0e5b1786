"""torch.fx.experimental.proxy_tensor.make_fx: a function as a graph of aten's operators, for the layouts of the arguments that it is given.

The function runs once over tensors that have no elements, as a module does in torch.export; but its inputs keep their places, tensors that it holds become
attributes of the graph, and operators that PyTorch composes of others above its dispatcher are taken apart.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import flambeau
from flambeau._ops import OpOverload
from flambeau.export import batching, decompositions, rules
from flambeau.export.differentiating import Pass
from flambeau.export.errors import GuardOnDataDependentSymNode
from flambeau.export.exporting import _strides
from flambeau.export.gradient_rules import CONSTANT
from flambeau.export.schemas import Schema
from flambeau.export.shapes import layout_of
from flambeau.export.tracing import _VALUES, Traced, Tracer, _unseen, _wrapped, active, traced
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


class Custom(NamedTuple):
    """A torch.autograd.Function that was called: its arguments and results as nodes."""

    function: Any
    ctx: Any
    inputs: list[Any]
    outputs: list[Node]


class FunctionTracer(Tracer):
    """Records a function. `table`: what its caller wants operators to be made of; composed ones are taken apart unless `whole`.

    What is recorded can be differentiated (differentiating.py) and mapped (batching.py).
    """

    transforms = True

    def __init__(self, recording: Recording, table: Mapping[Any, Callable[..., Any]], tracing_mode: str, whole: bool) -> None:
        super().__init__(recording)
        self.table, self.whole = table, whole
        self.proxy_mode = ProxyTorchDispatchMode(self, tracing_mode, whole)
        self.attributes: dict[str, Tensor] = {}
        self.lift = self._attribute
        self.names: list[Node] = []  # aliases that only tell tensors apart while the function runs
        self.custom: dict[Node, Custom] = {}
        self.leaves: list[Traced] = []  # the inputs that backward() gives gradients
        self.levels: list[batching.Level] = []
        self.draws = False  # whether random numbers of all samples are being drawn

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
        name = getattr(function, "__name__", "")
        if name in _VALUES and not any(isinstance(x, Traced) for x in tree_leaves((args, kwargs))):
            with _unseen(self):
                return function(*args, **kwargs)
        if name == "requires_grad_" and isinstance(args[0], Traced):
            return self._marked(args[0], (*args[1:], *kwargs.values(), True)[0])
        if name == "grad" and not hasattr(function, "operation"):
            return self.composed(function, args, kwargs)  # torch.autograd's
        if name == "backward":
            return self._backward(*args, **kwargs)
        return super().call(function, args, kwargs)

    def record(self, s: Schema, args: Sequence[Any], kwargs: dict[str, Any], function: Any, call: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """A call: as what the caller's table makes of it, taken apart if it is composed, over all samples under vmap, or as it is."""
        of_aten = not isinstance(function, OpOverload) or function.namespace == "aten"
        op = getattr(getattr(aten, s.name), s.overload) if of_aten else function
        wanted: Callable[..., Any] | None = self.table.get(op)
        if wanted is None and of_aten and not self.whole:
            wanted = _TABLE.get(s.full) or _TABLE.get(s.name)
        if wanted is not None:
            result = wanted(*args, **kwargs)
            if result is not NotImplemented:
                return result
        level = batching.newest(args, kwargs)
        if level is not None:
            return batching.Batcher(self, level).call(s, args, kwargs, function, call)
        if not self.draws and s.name.removesuffix("_") in batching.RANDOM and any(level.randomness != "same" for level in self.levels):
            raise RuntimeError(
                f"vmap: called random operation ({s.name}) while a function is traced with a tensor that is the same for all samples. Use the 'same' "
                "randomness flag on vmap, or perform the randomness operation out of vmap"
            )
        result = super().record(s, args, kwargs, function, call)
        if flambeau.is_grad_enabled() and s.name not in CONSTANT and any(t.requires_grad for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)):
            for t in tree_leaves(result):
                self._marked(t)
        return result

    def _marked(self, t: Any, requires_grad: bool = True) -> Any:
        """A tensor that says it has a gradient, if it can have one."""
        if isinstance(t, Traced) and (layout_of(t).dtype.is_floating_point or layout_of(t).dtype.is_complex):
            m = layout_of(t)
            t._meta = meta(m.shape, m.strides, m.dtype, m.offset, requires_grad, True, False, False, m.device, m.bits)
        return t

    # -- transforms -------------------------------------------------------------------------------------------------
    def again(self, node: Node) -> Traced:
        """The tensor of a node, as an object of its own."""
        val = node.meta["val"]
        m = layout_of(val)
        made = traced(meta(m.shape, m.strides, m.dtype, m.offset, val.requires_grad, True, False, False, m.device, m.bits))
        made.node = node
        return made

    def like(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], function: Any, call: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """What a call gives, without a node."""
        rule = rules.RULES.get(op.overloadpacket.__name__) if op.namespace == "aten" else None
        if op.namespace != "aten":
            return self.without_values(op, *call)
        return _wrapped(rule(*args, **kwargs)) if rule is not None else self.ask(function, *call)

    def opaque(self, target: Any, args: tuple[Any, ...], likes: list[Traced], single: bool = False) -> list[Traced]:
        """The results of a call that is no operator; `likes` say what they are like."""
        level = batching.newest(args, {})
        if level is not None:
            return batching.Batcher(self, level).opaque(target, args, likes, single)
        node = self.graph.call_function(target, self.nodes(args), name=target.__name__)
        follows = flambeau.is_grad_enabled() and any(t.requires_grad for t in tree_leaves(args) if isinstance(t, Tensor))
        node.meta["val"] = likes[0] if single else likes
        for i, t in enumerate(likes):
            self.name(t, node if single else self.graph.call_function(operator.getitem, (node, i)))
            if follows:
                self._marked(t)
        return likes

    def variable(self, t: Any) -> Any:
        """A new name for a tensor, by which it is differentiated; under vmap one for each sample."""
        return self._variable(t, len(self.levels))

    def _variable(self, t: Any, depth: int) -> Any:
        if depth:
            level = self.levels[depth - 1]
            return batching.mapped(level, self._variable(batching.all_samples(level, t), depth - 1))
        made = self.again(self.node_of(t))
        made.node = self.graph.call_function(aten.alias.default, (self.node_of(t),))
        made.node.meta["val"] = self._marked(made)
        self.names.append(made.node)
        return made

    def pull(self, outputs: Sequence[Any], inputs: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """The gradients of `inputs`, None where no output depends on one; `gradients` are the outputs', None for that of a number."""
        level = batching.newest(list(outputs), {})
        if level is not None:
            for t in inputs:
                if not (isinstance(t, batching.Mapped) and t.level is level):
                    raise RuntimeError(
                        f"vmap: a gradient inside of vmap with respect to a tensor (of shape {tuple(t.shape)}) from outside of it would be one sum "
                        "over all samples. Use torch.func.grad or torch.func.vjp inside of vmap: they give one gradient for each sample."
                    )
            given = [self._seed(t) if g is None else g for t, g in zip(outputs, gradients, strict=True)]
            found = self.pull([batching.all_samples(level, t) for t in outputs], [t.batch for t in inputs], [batching.all_samples(level, g) for g in given])
            return [None if g is None else batching.mapped(level, g, t.along) for t, g in zip(inputs, found, strict=True)]
        plain = [t.batch if isinstance(t, batching.Mapped) else t for t in inputs]
        pairs = [(t, self._seed(t) if g is None else g) for t, g in zip(outputs, gradients, strict=True) if t.requires_grad]
        return Pass(self).run([t for t, _ in pairs], plain, [g for _, g in pairs])

    def _seed(self, t: Any) -> Any:
        if layout_of(t).ndim:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        return aten.ones_like.default(t)

    def _backward(self, tensors: Any, gradients: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None, **kwargs: Any) -> None:
        """Tensor.backward and torch.autograd.backward."""
        tensors, given, inputs = (
            [x] if isinstance(x, Tensor) else None if x is None else list(x) for x in (tensors, kwargs.get("gradient", gradients), inputs)
        )
        self.backward(tensors, [None] * len(tensors) if given is None else given, inputs)

    def backward(self, tensors: Sequence[Any], gradients: Sequence[Any], inputs: Sequence[Any] | None) -> None:
        """Accumulate gradients into `.grad` of the function's inputs."""
        held = [t for t, _ in self.real.values() if t.requires_grad]
        if inputs is None and held:
            raise NotImplementedError(
                f"make_fx: backward() would accumulate into a tensor that the function holds, of shape {tuple(held[0].shape)}; give it as an argument "
                "(torch.func.functional_call), or use torch.autograd.grad"
            )
        leaves = [t for t in self.leaves if t.requires_grad] if inputs is None else list(inputs)
        for t, g in zip(leaves, self.pull(tensors, leaves, gradients), strict=True):
            if g is not None:
                t.grad = g if t.grad is None else aten.add.Tensor(t.grad, g)

    def custom_function(self, function: Any, ctx: Any, args: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """The results of a torch.autograd.Function, whose backward gives their gradients."""
        if ctx._dirty:
            raise NotImplementedError(f"make_fx: {function.__name__} writes to its arguments (mark_dirty)")
        results = [self.variable(t) if isinstance(t, Traced) and id(t) not in ctx._non_differentiable else t for t in outputs]
        nodes = [t.node for t in results if isinstance(t, Traced) and t.node is not None]
        if any(isinstance(t, batching.Mapped) for t in (*args, *outputs)):
            raise NotImplementedError(f"make_fx: {function.__name__}, a torch.autograd.Function, under vmap")
        known = [self.node_of(a) if isinstance(a, Tensor) else None for a in args]
        for node in nodes:
            self.custom[node] = Custom(function, ctx, known, nodes)
        return results

    @contextmanager
    def mapping(self, size: Any, randomness: str) -> Iterator[batching.Level]:
        """A block that sees samples."""
        level = batching.Level(len(self.levels), size, randomness)
        self.levels.append(level)
        try:
            yield level
        finally:
            self.levels.pop()

    def finish(self) -> None:
        """Take away the names that only told tensors apart."""
        for node in reversed(self.names):
            node.replace_all_uses_with(node.args[0])
            self.graph.erase_node(node)


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
    traced in its place. `pre_dispatch`: composed operators (aten.linear) stay whole. What `f` differentiates and maps (torch.autograd.grad, torch.func)
    becomes nodes, too.
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
        tracer.leaves = [v for v in values if isinstance(v, Traced)]
        try:
            result = tracer.run(f, tree_unflatten(values, structure), {})
        except GuardOnDataDependentSymNode as e:
            raise RuntimeError(
                "It appears that you're trying to get value out of a tracing tensor - erroring out! It's likely that this is caused by data-dependent "
                f"control flow or similar. {e}"
            ) from e
        tracer.graph.output(tracer.nodes(_plain(result)))
        tracer.finish()
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
