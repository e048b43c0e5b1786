"""torch._functorch.aot_autograd: functions and modules whose forward and backward pass are traced ahead of time, for compilers of graphs."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau._functorch.partitioners import default_partition
from flambeau.autograd.function import Function
from flambeau.export.make_fx import make_fx
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.utils import _pytree as pytree

_numbers = itertools.count()
_compiling: list[str] = []


def get_graph_being_compiled() -> str:
    """The name of the graph that is being given to a compiler: "model__0_forward"."""
    return _compiling[-1] if _compiling else "model__0_inference"


def get_aot_graph_name() -> str:
    """As `get_graph_being_compiled`."""
    return get_graph_being_compiled()


def get_aot_compilation_context() -> tuple[list[str], str, int]:
    """([the names of the graphs that are being compiled], the model's name, its number)."""
    name = get_graph_being_compiled()
    return list(_compiling), "model", int(name.split("_")[-2]) if name.split("_")[-2].isdigit() else 0


@contextmanager
def _compiles(number: int, what: str) -> Iterator[None]:
    _compiling.append(f"model__{number}_{what}")
    try:
        yield
    finally:
        _compiling.pop()


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A function of a list of arguments."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose functions take a list."""

    def compile_boxed(graph: GraphModule, inputs: Sequence[Any]) -> Any:
        made = compiler(graph, inputs)
        return made if getattr(made, "_boxed_call", False) else make_boxed_func(made)

    return compile_boxed


def _call(compiled: Any, args: Sequence[Any]) -> list[Any]:
    """Call what a compiler made; its results as a list."""
    found = compiled(list(args)) if getattr(compiled, "_boxed_call", False) else compiled(*args)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _named(graph: GraphModule, primals: int) -> GraphModule:
    """A graph whose inputs have PyTorch's names: primals_1, tangents_1."""
    for i, node in enumerate([n for n in graph.graph.nodes if n.op == "placeholder"]):
        node.target = f"primals_{i + 1}" if i < primals else f"tangents_{i - primals + 1}"
        node.name = node.target
    graph.recompile()
    return graph


class _Compiled:
    """What is compiled for arguments of one kind: of `flat`, which takes and gives lists of tensors."""

    def __init__(self, flat: Callable[..., list[Any]], args: Sequence[Any], options: dict[str, Any]) -> None:
        number = next(_numbers)
        self.differentiated = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad] if torch.is_grad_enabled() else []
        table, forward_compiler = options["decompositions"], options["fw_compiler"]
        self.backward_compiler = options["bw_compiler"] or forward_compiler
        self.backward: Any = None
        examples = [a.detach().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
        if not self.differentiated:
            with torch.no_grad():
                graph = _named(make_fx(lambda *given: flat(*given), table)(*examples), len(args))
            with _compiles(number, "inference"):
                self.forward = (options["inference_compiler"] or forward_compiler)(graph, list(args))
            return
        with torch.no_grad():  # the results' layouts, without a run, which would write to buffers
            shapes = make_fx(lambda *given: flat(*given), table)(*examples)
        results = [r.meta["val"] if isinstance(r, Node) else r for r in next(n for n in shapes.graph.nodes if n.op == "output").args[0]]
        self.count = len(results)
        smooth = [i for i, r in enumerate(results) if isinstance(r, torch.Tensor) and (r.dtype.is_floating_point or r.dtype.is_complex)]
        self.smooth = smooth
        tangents = [torch.ones(tuple(results[i].shape), dtype=results[i].dtype) for i in smooth]

        def joint(*given: Any) -> list[Any]:
            primals, gradients = given[: len(args)], given[len(args) :]
            outputs = flat(*primals)
            pairs = [(outputs[i], g) for i, g in zip(smooth, gradients, strict=True) if outputs[i].requires_grad]
            wanted = [primals[i] for i in self.differentiated]
            found = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True) if pairs else [None] * len(wanted)
            return [*outputs, *found]

        graph = _named(make_fx(joint, table)(*examples, *tangents), len(args))
        forward, backward = options["partition_fn"](graph, (args, tangents), num_fwd_outputs=self.count)
        with _compiles(number, "forward"):
            self.forward = forward_compiler(forward, list(args))
        self.pending, self.number = backward, number

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        if not self.differentiated:
            return _call(self.forward, args)
        return list(_Function.apply(self, *args))

    def pull(self, saved: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the arguments; the backward graph is compiled when it is first asked for."""
        given = [*saved, *gradients]
        if self.backward is None:
            with _compiles(self.number, "backward"):
                self.backward = self.backward_compiler(self.pending, given)
        return _call(self.backward, given)


class _Function(Function):
    @staticmethod
    def forward(ctx: Any, compiled: _Compiled, *args: Any) -> Any:
        """The compiled forward pass."""
        results = _call(compiled.forward, args)
        outputs, kept = results[: compiled.count], results[compiled.count :]
        ctx.compiled, ctx.given = compiled, len(args)
        ctx.save_for_backward(*[t for t in kept if isinstance(t, torch.Tensor)])
        ctx.kept = [None if isinstance(t, torch.Tensor) else t for t in kept]
        ctx.mark_non_differentiable(*[o for i, o in enumerate(outputs) if i not in compiled.smooth and isinstance(o, torch.Tensor)])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The compiled backward pass."""
        tensors = iter(ctx.saved_tensors)
        saved = [next(tensors) if t is None else t for t in ctx.kept]
        compiled = ctx.compiled
        with torch.no_grad():
            found = compiled.pull(saved, [gradients[i] for i in compiled.smooth])
        made = [None] * ctx.given
        for i, g in zip(compiled.differentiated, found, strict=True):
            made[i] = g
        return (None, *made)


def _kind(a: Any) -> Any:
    if isinstance(a, torch.Tensor):
        return tuple(a.shape), a.dtype, a.stride(), a.requires_grad, str(a.device)
    return type(a), a


def aot_function(
    fn: Callable[..., Any], fw_compiler: Callable[..., Any], bw_compiler: Callable[..., Any] | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None, num_params_buffers: int = 0, keep_inference_input_mutations: bool = False,
    inference_compiler: Callable[..., Any] | None = None, *, static_argnums: Any = None, dynamic: bool = False, enable_log: bool = True,
) -> Callable[..., Any]:  # fmt: skip
    """`fn` with its forward and backward pass traced to graphs of aten's operators, which `fw_compiler` and `bw_compiler` make callables of.

    A compiler is called with a GraphModule and example inputs. `partition_fn` cuts the graph of both passes in two. One pair of graphs is made for every
    kind of arguments: their structure, shapes, dtypes, and which of them have gradients.
    """
    for name, given in (("fn", fn), ("fw_compiler", fw_compiler)):
        if not callable(given):
            raise TypeError(f"aot_function: {name} is a callable, got {type(given).__name__}")
    options = {"fw_compiler": fw_compiler, "bw_compiler": bw_compiler, "partition_fn": partition_fn, "decompositions": decompositions,
               "inference_compiler": inference_compiler}  # fmt: skip
    known: dict[Any, tuple[_Compiled, list[Any]]] = {}

    def returned(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        tensors = [i for i, a in enumerate(leaves) if isinstance(a, torch.Tensor)]
        key = (repr(structure), tuple([_kind(a) for a in leaves]), torch.is_grad_enabled())
        if key not in known:
            shape: list[Any] = []

            def flat(*values: Any) -> list[Any]:
                given = list(leaves)
                for i, v in zip(tensors, values, strict=True):
                    given[i] = v
                inner, named = pytree.tree_unflatten(given, structure)
                results, made = pytree.tree_flatten(fn(*inner, **named))
                shape[:] = [made]
                return results

            known[key] = _Compiled(flat, [leaves[i] for i in tensors], options), shape
        compiled, shape = known[key]
        return pytree.tree_unflatten(compiled([leaves[i] for i in tensors]), shape[0])

    return returned


def aot_module(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """A module as `mod`, whose forward and backward pass are traced and compiled: see `aot_function`."""

    def functional(parameters: Mapping[str, Any], buffers: Mapping[str, Any], args: Any, kwargs: Any) -> Any:
        return torch.func.functional_call(mod, {**parameters, **buffers}, args, kwargs)

    compiled = aot_function(functional, *args, **kwargs)

    class AOTModule(torch.nn.Module):
        """The module, and what was compiled of it."""

        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """The compiled pass."""
            return compiled(dict(mod.named_parameters()), dict(mod.named_buffers()), args, kwargs)

    return AOTModule()


def aot_module_simplified(
    mod: Any, args: Sequence[Any], fw_compiler: Callable[..., Any], bw_compiler: Callable[..., Any] | None = None,
    partition_fn: Callable[..., Any] = default_partition, decompositions: Mapping[Any, Callable[..., Any]] | None = None, **options: Any,
) -> Callable[..., Any]:  # fmt: skip
    """A function of tensors that calls a module, compiled as by `aot_module` for arguments like `args`: what backends of torch.compile call."""
    accepted = {k: v for k, v in options.items() if k in inspect.signature(aot_function).parameters}
    compiled = aot_module(mod, fw_compiler, bw_compiler, partition_fn, decompositions, **accepted)
    with torch.no_grad() if not torch.is_grad_enabled() else torch.enable_grad():
        return lambda *given: compiled(*given)


compiled_function = aot_function
compiled_module = aot_module
