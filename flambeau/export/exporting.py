"""torch.export.export: a module is traced once, and what was asked of its sizes is held against what the caller has declared."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from flambeau.export.dims import _DerivedDim, _DimHint, arguments, leaves
from flambeau.export.errors import UserError, UserErrorType
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from flambeau.export.program import ExportedProgram, ModuleCallEntry, ModuleCallSignature, ValueRange
from flambeau.export.shapes import layout_of
from flambeau.export.tracing import Traced, Tracer, traced
from flambeau.fx.node import Node
from flambeau.nn.modules.module import Module
from flambeau.symbols import Expr, Recording, Sym, symbols_in
from flambeau.tensor import Tensor
from flambeau.trace.meta import meta
from flambeau.utils._pytree import tree_flatten, tree_unflatten

MOST_ATTEMPTS = 32  # each makes one more AUTO dim static, or two the same


def export(
    mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
    preserve_module_call_signature: Sequence[str] = (), prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:  # fmt: skip
    """The program of a module as a graph of aten's operators, for all sizes that `dynamic_shapes` declares.

    `strict` is accepted: programs run as Python either way. UserError where the program holds for fewer sizes than declared; it names input and dim.
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(UserErrorType.INVALID_INPUT, f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature:
        raise NotImplementedError("torch.export: preserve_module_call_signature is not there: the graph has no borders of submodules")
    kwargs = dict(kwargs or {})
    given = arguments(mod, args, kwargs)
    given = {k: v for k, v in given.items() if k in given}
    declared = leaves(given, dynamic_shapes)
    attempt = _Attempt(mod, args, kwargs, given, declared)
    for _ in range(MOST_ATTEMPTS):
        program = attempt.run()
        if program is not None:
            return program
    raise RuntimeError("torch.export: the sizes that the program asks for do not settle")


draft_export = export


class _Symbol:
    """A symbol: where it is first, what was declared, and the sizes for which the program is known to hold."""

    def __init__(self, name: str, hint: int, where: str, low: int, high: int | None, kind: str) -> None:
        self.name, self.hint, self.where, self.low, self.high, self.kind = name, hint, where, low, high, kind


class _Attempt:
    """Traces of one program, until all that AUTO dims are is found out."""

    def __init__(self, mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any], declared: list[Any]) -> None:
        self.mod, self.args, self.kwargs, self.given, self.declared = mod, args, kwargs, given, declared
        self.static: set[tuple[int, int]] = set()  # AUTO dims that have one size
        self.same: dict[tuple[int, int], tuple[int, int]] = {}  # AUTO dims that are the same as others
        self.narrowed: dict[tuple[int, int], tuple[int, int | None]] = {}

    # -- inputs -----------------------------------------------------------------------------------------------------
    def _symbols(self) -> tuple[list[_Symbol], dict[tuple[int, int], tuple[int, int, int]]]:
        """The symbols, and for each dynamic dim (leaf, dim): (symbol, factor, offset)."""
        found: list[_Symbol] = []
        by_dim: dict[int, int] = {}
        places: dict[tuple[int, int], tuple[int, int, int]] = {}
        for i, (label, leaf, spec) in enumerate(self.declared):
            for d, what in spec.items():
                hint, where = int(leaf.shape[d]), f"{label}.size()[{d}]"
                if isinstance(what, _DimHint):
                    if (i, d) in self.static or (hint in (0, 1) and what.type == "AUTO"):
                        continue
                    if (i, d) in self.same:
                        places[i, d] = places[self.same[i, d]]
                        continue
                    low, high = self.narrowed.get((i, d), (what.min or 0, what.max))
                    found.append(_Symbol(where, hint, where, low, high, what.type))
                    places[i, d] = (len(found) - 1, 1, 0)
                else:
                    root, factor, offset = (what.root, what.factor, what.offset) if isinstance(what, _DerivedDim) else (what, 1, 0)
                    value, rest = divmod(hint - offset, factor)
                    if rest:
                        raise UserError(UserErrorType.CONSTRAINT_VIOLATION, f"Constraints violated ({what.__name__})! {where} is {hint}, which is not "
                                                                             f"{what.__name__} for any {root.__name__}")  # fmt: skip
                    if id(root) not in by_dim:
                        by_dim[id(root)] = len(found)
                        found.append(_Symbol(root.__name__, value, where, root.min, root.max, "Dim"))
                    s = found[by_dim[id(root)]]
                    if s.hint != value:
                        raise UserError(UserErrorType.CONSTRAINT_VIOLATION, f"Constraints violated ({s.name})! {where} = {hint} and {s.where} = "
                                                                             f"{s.hint} have the same dim {s.name}, but not the same size")  # fmt: skip
                    if value < s.low or (s.high is not None and value > s.high):
                        raise UserError(UserErrorType.CONSTRAINT_VIOLATION, f"Constraints violated ({s.name})! {where} is {hint}, which is not in the "
                                                                             f"range [{s.low}, {'oo' if s.high is None else s.high}] of {s.name}")  # fmt: skip
                    places[i, d] = (by_dim[id(root)], factor, offset)
        for s in found:
            if s.hint in (0, 1) and s.kind != "AUTO":
                raise UserError(UserErrorType.CONSTRAINT_VIOLATION, _specialised(s, s.hint) + ": give an example with a size of 2 or more")
        return found, places

    def run(self) -> ExportedProgram | None:
        """The program, or None if another attempt has to be made."""
        symbols, places = self._symbols()
        rec = Recording([s.hint for s in symbols])
        tracer = Tracer(rec)
        specs: list[InputSpec] = []
        state, constants = self._hold(tracer, specs)
        lifted: list[InputSpec] = []
        first: list[Node] = []
        flat: dict[int, Any] = {}
        names = _input_names([label for label, _, _ in self.declared], {n.name for n in tracer.graph.nodes})
        user: list[InputSpec] = []
        for i, (label, leaf, _) in enumerate(self.declared):
            node = tracer.graph.placeholder(names[i])
            first.append(node)
            tracer.last_input = node
            if isinstance(leaf, Tensor):
                m = layout_of(leaf)
                shape: list[Any] = list(m.shape)
                for d in range(m.ndim):
                    if (i, d) in places:
                        number, factor, offset = places[i, d]
                        shape[d] = rec.size(number) * factor + offset
                        if factor == 1 and offset == 0:
                            tracer.sources.setdefault(number, (node, d))
                value: Any = traced(meta(tuple(shape), _strides(m, shape), m.dtype, 0, device=m.device))
                tracer.name(value, node)
                user.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name)))
            elif leaf is None or isinstance(leaf, (bool, int, float, str)):
                value = node.meta["val"] = leaf
                user.append(InputSpec(InputKind.USER_INPUT, ConstantArgument(node.name, leaf)))
            else:
                raise UserError(UserErrorType.INVALID_INPUT, f"Unsupported input type {type(leaf)} of {label}. Export only supports pytree containers of "
                                                             "basic types (Tensor, int, float, ...) as input.")  # fmt: skip
            flat[id(leaf)] = flat.get(id(leaf), value)
        values = [tracer_value.meta["val"] for tracer_value in first]
        call_args, call_kwargs = self._replaced(values)

        def lift(t: Tensor, stem: str) -> Node:
            if t.device.type == "meta":
                raise RuntimeError("torch.export: the program uses a tensor of the device meta that it does not hold; it has no elements to be saved")
            name = f"{stem}_{sum([k.startswith(stem) for k in constants])}" if stem else self._attribute(t) or f"lifted_tensor_{len(constants)}"
            constants[name] = t.detach()
            with tracer.graph.inserting_before(first[0]) if first else tracer.graph.inserting_before(None):
                node = tracer.graph.placeholder(re.sub(r"\W", "_", f"c_{name}"))
            node.meta["val"] = _static(t)
            lifted.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name))
            return node

        tracer.lift = lift
        buffers = dict(self.mod.named_buffers(remove_duplicate=False))
        result = tracer.run(self.mod, call_args, call_kwargs)
        for n, b in self.mod.named_buffers(remove_duplicate=False):
            if b is not buffers.get(n):
                raise RuntimeError(f"torch.export: forward assigns another tensor to the buffer {n!r}; write into it instead (self.{n}.copy_(...))")
        outputs, out_spec = tree_flatten(result)
        output_specs: list[OutputSpec] = []
        returned: list[Any] = []
        for i, x in enumerate(outputs):
            node = tracer.nodes(x)
            returned.append(node)
            if isinstance(node, Node):
                kind = SymIntArgument if isinstance(x, Sym) else TensorArgument
                output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, kind(node.name)))
            elif node is None or isinstance(node, (bool, int, float, str)):
                output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument(f"output_{i}", node)))
            else:
                raise UserError(UserErrorType.INVALID_OUTPUT, f"torch.export: forward returns an object of {type(x)}: a graph returns tensors, numbers, "
                                                              "strings and None, in lists, tuples and dicts")  # fmt: skip
        tracer.graph.output(tuple(returned))
        if not self._agreed(tracer, symbols, places):
            return None
        entry_args = _trees(self.args, self.kwargs)
        call = ModuleCallSignature([], [], entry_args, out_spec, self._argument_names())
        modules = [ModuleCallEntry("", call)] + [ModuleCallEntry(n) for n, _ in self.mod.named_modules() if n]
        ranges = {f"s{i}": ValueRange(s.low, s.high) for i, s in enumerate(symbols)}
        for i, (_, _, spec) in enumerate(self.declared):
            for d, what in spec.items():
                if isinstance(what, _DerivedDim) and (i, d) in places:
                    number, factor, offset = places[i, d]
                    s = symbols[number]
                    derived: Any = rec.size(number) * factor + offset
                    ranges[str(derived.expr)] = ValueRange(s.low * factor + offset, None if s.high is None else s.high * factor + offset)
        signature = ExportGraphSignature([*specs, *lifted, *user], output_specs)
        program = ExportedProgram(self.mod, tracer.graph, signature, state, ranges, modules, (self.args, self.kwargs), constants)
        program.validate()
        return program

    def _replaced(self, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call's arguments with traced tensors in place of their leaves, which are in the order of forward's parameters."""
        flat_given, spec = tree_flatten(self.given)
        by_name = tree_unflatten(values, spec)
        parameters = inspect.signature(self.mod.forward).parameters
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in by_name.items():
            kind = parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif kind is inspect.Parameter.KEYWORD_ONLY or name in self.kwargs:
                kwargs[name] = value
            else:
                args.append(value)
        return tuple(args), kwargs

    def _argument_names(self) -> list[str]:
        """The names of the call's arguments; those of `*rest` are numbered, and those of `**more` have their own."""
        parameters = inspect.signature(self.mod.forward).parameters
        names: list[str] = []
        for name, value in self.given.items():
            kind = parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                names += [f"{name}_{i}" for i in range(len(value))]
            else:
                names += list(value) if kind is inspect.Parameter.VAR_KEYWORD else [name]
        return names

    def _hold(self, tracer: Tracer, specs: list[InputSpec]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Placeholders for what the module holds; returns (state, constants)."""
        state: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        saved = self.mod.state_dict(keep_vars=True)

        def hold(prefix: str, name: str, t: Tensor, kind: InputKind, persistent: bool | None) -> None:
            node = tracer.graph.placeholder(re.sub(r"\W", "_", f"{prefix}_{name}"))
            tracer.last_input = node
            node.meta["val"] = _static(t)
            tracer.real.setdefault(id(t), (t, node))
            specs.append(InputSpec(kind, TensorArgument(node.name), name, persistent))
            (constants if persistent is False else state)[name] = t

        for name, p in self.mod.named_parameters(remove_duplicate=False):
            hold("p", name, p, InputKind.PARAMETER, None)
        for name, b in self.mod.named_buffers(remove_duplicate=False):
            hold("b", name, b, InputKind.BUFFER, name in saved)
        return state, constants

    def _attribute(self, t: Tensor) -> str | None:
        """The name under which a module has a tensor that is no parameter and no buffer."""
        for path, m in self.mod.named_modules():
            for name, value in vars(m).items():
                if value is t:
                    return f"{path}.{name}" if path else name
        return None

    # -- what was asked ---------------------------------------------------------------------------------------------
    def _agreed(self, tracer: Tracer, symbols: list[_Symbol], places: dict[tuple[int, int], tuple[int, int, int]]) -> bool:
        """Whether the program holds for all declared sizes. False: AUTO dims were changed, and it has to be traced again."""
        where = {number: place for place, (number, _, _) in reversed(list(places.items()))}
        again = False
        problems: list[str] = []
        fixes: list[str] = []
        asked = [(*g, False) for g in tracer.recording.guards.values()] + [(*g, True) for g in tracer.internal.values()]
        for op, a, b, answer, internal in asked:
            involved = sorted({*symbols_in(a), *symbols_in(b)})
            if not involved:
                continue
            if op == "==" and answer:
                simple = _equal_symbols(a, b)
                if simple is not None:
                    i, j = sorted(simple)
                    if symbols[j].kind == "AUTO":
                        self.same[where[j]] = where[i]
                        again = True
                        continue
                    one, two = symbols[j], symbols[i]
                    problems.append(f"  - The values of {one.name} = {one.where} and {two.name} = {two.where} must always be equal.")
                    fixes.append(f"  {one.name} = {two.name}")
                    continue
                for n in involved:
                    if symbols[n].kind == "AUTO":
                        self.static.add(where[n])
                        again = True
                    else:
                        problems.append("  - " + _specialised(symbols[n], symbols[n].hint))
                        fixes.append(f"  {symbols[n].name} = {symbols[n].hint}")
                continue
            if internal:
                continue  # how broadcasting and layouts go: sizes of 2 and more are taken to be no others
            limits = _limits(op, a, b, answer)
            if limits is None:
                if op == "==" and _never(a, b, symbols):
                    continue
                for n in involved:
                    if symbols[n].kind == "AUTO":
                        self.static.add(where[n])
                        again = True
                    else:
                        problems.append(f"  - Not all values of {symbols[n].name} = {symbols[n].where} in the specified range satisfy the generated guard "
                                        f"{'' if answer else 'not '}{_text(a, symbols)} {op} {_text(b, symbols)}")  # fmt: skip
                continue
            n, low, high = limits
            s = symbols[n]
            below = low is not None and low > max(s.low, 2)
            above = high is not None and (s.high is None or s.high > high)
            if not below and not above:
                continue
            new_low, new_high = (low if below and low is not None else s.low), (high if above else s.high)
            if s.kind == "AUTO":
                s.low, s.high = new_low, new_high
                self.narrowed[where[n]] = (new_low, new_high)
                continue
            guard = f"{low} <= {s.where}" if below else f"{s.where} <= {high}"
            problems.append(f"  - Not all values of {s.name} = {s.where} in the specified range satisfy the generated guard {guard}")
            bounds = ", ".join([f"min={new_low}"] * below + ([f"max={new_high}"] if new_high is not None else []))
            fixes.append(f"  {s.name} = Dim('{s.name}', {bounds})")
        if problems:
            names = ", ".join(dict.fromkeys([p.split(" = ")[0].split()[-1] for p in problems]))
            text = "\n".join([f"Constraints violated ({names})!", *dict.fromkeys(problems)])
            raise UserError(UserErrorType.CONSTRAINT_VIOLATION, text + ("\nSuggested fixes:\n" + "\n".join(dict.fromkeys(fixes)) if fixes else ""))
        return not again


def _static(t: Tensor) -> Traced:
    m = layout_of(t)
    return traced(meta(m.shape, m.strides, m.dtype, m.offset, t.requires_grad, True, False, False, m.device))


def _strides(m: Any, shape: list[Any]) -> Any:
    """Strides for a shape with symbols: in the order of the example's, without gaps."""
    order = sorted(range(m.ndim), key=lambda d: (int(m.strides[d]), m.shape[d] != 1, -d))
    out: list[Any] = [0] * m.ndim
    step: Any = 1
    for d in order:
        out[d] = step
        step = step * shape[d]
    return tuple(out)


def _specialised(s: _Symbol, value: int) -> str:
    return (
        f"You marked {s.name} = {s.where} as dynamic but your code specialized it to be a constant ({value})"
        if s.kind == "Dim"
        else (f"You marked {s.where} as dynamic but your code specialized it to be a constant ({value}). Replace Dim.DYNAMIC with Dim.STATIC or Dim.AUTO")
    )


def _linear(e: Any) -> dict[Any, int] | None:
    """{symbol: factor, None: constant} of a linear expression."""
    if e.__class__ is int:
        return {None: e}
    if e.__class__ is not Expr:
        return None
    if e.op == "size":
        return {e.a: 1}
    if e.op != "sum":
        return None
    out: dict[Any, int] = {}
    for factors, count in (e.terms or {}).items():
        if len(factors) > 1 or (factors and factors[0].op != "size"):
            return None
        out[factors[0].a if factors else None] = count
    return out


def _difference(a: Any, b: Any) -> dict[Any, int] | None:
    left, right = _linear(a), _linear(b)
    if left is None or right is None:
        return None
    out = dict(left)
    for k, v in right.items():
        out[k] = out.get(k, 0) - v
    return {k: v for k, v in out.items() if v or k is None}


def _equal_symbols(a: Any, b: Any) -> set[int] | None:
    """Two symbols that are equal if a == b."""
    d = _difference(a, b)
    if d is None or d.get(None, 0):
        return None
    pair = [k for k in d if k is not None]
    return set(pair) if len(pair) == 2 and d[pair[0]] == -d[pair[1]] else None


def _limits(op: str, a: Any, b: Any, answer: bool) -> tuple[int, int | None, int | None] | None:
    """(symbol, least, greatest) where a comparison has this answer, if it is about one symbol."""
    d = _difference(a, b)
    if d is None or op == "==":
        return None
    pair = [k for k in d if k is not None]
    if len(pair) != 1:
        return None
    n, c, k = pair[0], d[pair[0]], d.get(None, 0)
    # c * s + k  < 0, <= 0, or the contrary >= 0, > 0
    if not answer:
        c, k = -c, -k
        op = "<=" if op == "<" else "<"
    if op == "<":
        k += 1  # c * s + k + 1 <= 0
    if c > 0:
        return n, None, (-k) // c
    return n, -(-k // -c), None


def _never(a: Any, b: Any, symbols: list[_Symbol]) -> bool:
    """Whether two numbers are different at all declared sizes: one of a single symbol, outside of its range."""
    d = _difference(a, b)
    if d is None:
        return False
    pair = [k for k in d if k is not None]
    if len(pair) != 1:
        return False
    value, rest = divmod(-d.get(None, 0), d[pair[0]])
    s = symbols[pair[0]]
    return bool(rest) or value < max(s.low, 2) or (s.high is not None and value > s.high)


def _text(e: Any, symbols: list[_Symbol]) -> str:
    return re.sub(r"\bs(\d+)\b", lambda m: symbols[int(m[1])].where, str(e))


def _input_names(labels: list[str], taken: set[str]) -> list[str]:
    """Names of placeholders: "y['a'][0]" is y_a_0."""
    return [re.sub(r"_+", "_", re.sub(r"[^0-9a-zA-Z_]+", "_", label)).strip("_") if "[" in label or "." in label else label for label in labels]


def _trees(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return tree_flatten((args, kwargs))[1]
