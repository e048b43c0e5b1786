"""An exported program as a graph of primitives over symbols: what the compiler plans, for all sizes at once.

The program's operators run once over placeholders in one `Fragment`, as a body does when it is recorded. So the primitives are those that the same
calls are recorded as in Python, and their bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.deploy.errors import BuildError
from flambeau.export.coded import coded_linear, products
from flambeau.export.graph_signature import InputKind, OutputKind
from flambeau.export.program import ExportedProgram
from flambeau.export.shapes import Nowhere, layout_of
from flambeau.fx.node import Node as Call
from flambeau.fx.node import map_arg
from flambeau.ops import primitives as prim
from flambeau.symbols import Recording, Sym, at_sizes
from flambeau.tensor import Tensor
from flambeau.trace.fragment import Fragment
from flambeau.trace.meta import Meta, meta
from flambeau.trace.recorder import run_in


@dataclass
class Recorded:
    """`graph` over the symbols of `recording`. `inputs`: positions among the graph's inputs of what the caller gives; `outputs`: the metadata of the
    results, whose positions among the graph's outputs are their own; `held`: (position, name of the program's tensor)."""

    graph: Graph
    recording: Recording
    inputs: list[int]
    held: list[tuple[int, str]]
    input_metas: list[Meta]
    output_metas: list[Meta]


def record(program: ExportedProgram, sizes: Sequence[int]) -> Recorded:
    """The graph of a program, decided at these values of its symbols (by number). BuildError for what has no plan without Python."""
    rec = Recording(tuple(sizes))
    numbers = at_sizes([rec.size(i) for i in range(len(sizes))])
    fragment = Fragment(Nowhere(), False)  # type: ignore[arg-type]
    graph = Graph()
    entries: list[tuple[Any, Any]] = []  # (the call, its placeholder)
    inputs: list[int] = []
    held: list[tuple[int, str]] = []
    metas: list[Meta] = []
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    for call, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        value = call.meta.get("val") if spec.kind is InputKind.USER_INPUT else program.tensor(str(spec.target))
        if not isinstance(value, Tensor):
            if isinstance(value, Sym):
                raise BuildError(f"the input {call.name} is a number, not a tensor: it would be a parameter of the plan, which a library has not yet; make it "
                                 "a tensor, or a constant of the program")  # fmt: skip
            entries.append((call, value))
            continue
        m = layout_of(value)
        if spec.kind is InputKind.USER_INPUT:
            shape = numbers(tuple(m.shape))
            m = meta(shape, _contiguous(shape), m.dtype)
            inputs.append(len(graph.inputs))
            metas.append(m)
        else:
            m = meta(tuple(m.shape), _contiguous(tuple(m.shape)), m.dtype)  # as it is written to the file of weights
            held.append((len(graph.inputs), str(spec.target)))
        entries.append((call, _enter(fragment, graph, m)))
    known: dict[Call, Any] = dict(entries)
    results = run_in(fragment, _interpret, (program, known, fragment))
    outputs = run_in(fragment, _dense_outputs, (fragment, graph, results))
    graph.values, graph.nodes = fragment.values, [*graph.nodes, *fragment.nodes]
    graph.outputs = [o._slot for o in outputs]
    return Recorded(graph, rec, inputs, held, metas, [o._meta for o in outputs])


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, without a question of what sizes are: a dim of size 1 may have any."""
    strides: list[Any] = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def _enter(fragment: Fragment, graph: Graph, m: Meta) -> Any:
    """The placeholder of an external storage that is a contiguous tensor."""
    root = fragment.add_value(Value((m.numel,), m.dtype, (1,)))
    slot = fragment.add_value(Value(tuple(m.shape), m.dtype, m.strides, 0, root))
    graph.inputs.append(root)
    graph.nodes.append(Node("alias", (root,), (slot,), ()))
    fragment.roots.setdefault(root, fragment.given)
    fragment.entered.setdefault(slot, fragment.given)
    fragment.given += 1
    return fragment.placeholder(slot, m)


def _interpret(program: ExportedProgram, known: dict[Call, Any], fragment: Fragment) -> list[Any]:
    """Call the program's operators in order; the user's outputs."""
    coded, dead = products(program.graph)
    calls = [n for n in program.graph.nodes if n not in dead]
    for position, call in enumerate(calls):
        if call in coded:
            known[call] = coded_linear(*map_arg(tuple(coded[call]), lambda n: known[n]))
        elif call.op == "call_function":
            args, kwargs = map_arg(call.args, lambda n: known[n]), map_arg(call.kwargs, lambda n: known[n])
            try:
                if _writes(call):
                    known[call] = known[call.args[0]] = _written(program, call, args, kwargs, known, calls[position + 1 :], fragment)
                else:
                    known[call] = call.target(*args, **kwargs)
            except BuildError:
                raise
            except Exception as error:
                hint = "; it draws random numbers or has values of its own: export the model in eval mode" if "was not given to it" in str(error) else ""
                given = ", ".join([*map(str, call.args), *[f"{k}={v}" for k, v in call.kwargs.items()]])
                raise BuildError(f"{call.name} = {call.target}({given}) cannot be planned ahead of time: {type(error).__name__}: {error}{hint}") from error
        elif call.op == "get_attr":
            raise BuildError(f"the graph has a sub-module or constant {call.target} that is no input of it; export the model again")
    results = []
    for value, spec in zip(calls[-1].args[0], program.graph_signature.output_specs, strict=True):
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise BuildError(f"the program writes to {spec.target} ({spec.kind.name.lower()}): a library keeps no state between runs; return the value, or "
                             "export the model in eval mode")  # fmt: skip
        found = known[value] if isinstance(value, Call) else value
        if not isinstance(found, Tensor):
            raise BuildError(f"the result {spec.arg.name or found!r} is no tensor; return tensors only")
        results.append(found)
    return results


def _writes(call: Call) -> bool:
    """Whether an operator writes to its first argument."""
    name = getattr(getattr(call.target, "overloadpacket", None), "__name__", "")
    return name.endswith("_") and not name.startswith("__")


def _written(program: ExportedProgram, call: Call, args: Any, kwargs: Any, known: dict[Call, Any], later: Sequence[Call], fragment: Fragment) -> Any:
    """What a written tensor holds after a write: the same operator without the underscore gives it. Refused where a view or a caller would have to see it."""
    name = call.target.overloadpacket.__name__
    target, t = call.args[0], args[0]
    needed = {n for c in later for n in c.all_input_nodes}
    root = fragment.value(t._slot).base
    others = [n.name for n, x in known.items() if n is not target and n in needed and isinstance(x, Tensor) and _root(fragment, x) == _root(fragment, t)]
    plain = getattr(flambeau.ops.aten, name[:-1], None)
    held = {i.arg.name: str(i.target) for i in program.graph_signature.input_specs if i.kind is not InputKind.USER_INPUT}
    if target.name in held:
        raise BuildError(f"the program writes to {held[target.name]} ({call.name}): a library keeps no state between runs; export the model in eval mode")
    if root is not None or others or plain is None or target.op == "placeholder":
        why = f"{target.name} shares its memory with {', '.join(others)}" if others else f"{target.name} is an input or a view of another tensor"
        raise BuildError(f"{call.name} writes in place ({name}), and {why}; use the function without the underscore")
    made = plain(*args, **kwargs)
    if made._meta.dtype is not t._meta.dtype or made._meta.ndim != t._meta.ndim:
        raise BuildError(f"{call.name} writes {made._meta.dtype} into a tensor of {t._meta.dtype}; convert it before")
    return made


def _root(fragment: Fragment, t: Any) -> int:
    base = fragment.value(t._slot).base
    return t._slot if base is None else base  # type: ignore[no-any-return]


def _dense_outputs(fragment: Fragment, graph: Graph, results: list[Any]) -> list[Any]:
    """Each result in a buffer of its own, contiguous."""
    taken = set(graph.inputs)
    found = []
    for t in results:
        if t._meta.bits:
            t = fragment.resolved(t)
        v = fragment.value(t._slot)
        strides = _contiguous(v.shape)
        if v.base is not None or t._slot in taken or v.strides != strides:
            t = prim.copy(t, strides=strides)
        taken.add(t._slot)
        found.append(t)
    return found
