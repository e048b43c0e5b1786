"""Functions of an archive: their parameters, their statements as closures over a frame of values, and calls of them."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.fx import Proxy
from flambeau.jit.torchscript import expressions, type_annotations
from flambeau.jit.torchscript.errors import refuse
from flambeau.jit.torchscript.objects import method, set_attribute

if TYPE_CHECKING:
    from flambeau.jit.torchscript.code import Unit

Step = Callable[[dict[str, Any]], Any]
_NONE: Any = object()


class Frame(dict[str, Any]):
    """The values of a call by name."""

    noted = False  # whether an error that goes through has been told the place

    def __missing__(self, name: str) -> Any:
        raise RuntimeError(f"TorchScript: the program uses {name!r} before it has a value")


class Parameter(NamedTuple):
    """A parameter, its type, and its default (`_NONE`: there is none)."""

    name: str
    annotation: ast.expr
    default: Any


class Function:
    """A function or a method: `parameters` with self."""

    def __init__(self, unit: Unit, node: ast.FunctionDef, file: str, source: str, name: str, outer: frozenset[str] = frozenset()) -> None:
        self.unit, self.node, self.file, self.source, self.name, self.outer = unit, node, file, source, name, outer
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or node.decorator_list:
            refuse(f"{file}, line {node.lineno}: {node.name} has parameters or decorators that TorchScript has not")
        defaults = [_NONE] * (len(a.args) - len(a.defaults)) + [expressions.constant(d, unit, file) for d in a.defaults]
        self.parameters = [Parameter(p.arg, p.annotation or ast.Name("Tensor"), d) for p, d in zip(a.args, defaults, strict=True)]
        self.names = [p.name for p in self.parameters]
        self._steps: list[tuple[int, Step]] | None = None
        self._result: Step | None = None

    @property
    def code(self) -> str:
        """Its source, as PyTorch shows it."""
        lines = self.source.splitlines()[self.node.lineno - 1 : self.node.end_lineno]
        return textwrap.dedent("\n".join(lines)) + "\n"

    def compile(self) -> None:
        """Turn the statements into closures, once."""
        if self._steps is not None:
            return
        compiler = _Statements(self)
        body = list(self.node.body)
        if body and isinstance(body[-1], ast.Return):
            value = body.pop().value  # type: ignore[attr-defined]
            self._result = None if value is None else compiler.value(value)
        self._steps = compiler.block(body)

    def call(self, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """The result for arguments as a program gives them."""
        if not kwargs and len(args) == len(self.names):
            return self._run(Frame(zip(self.names, args, strict=True)))
        return self._run(self._bound(args, kwargs or {}))

    def call_checked(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result for arguments from Python: RuntimeError where their types are not the program's."""
        frame = self._bound(args, kwargs)
        for i, p in enumerate(self.parameters):
            if i == 0:  # self: what Python calls is a method
                continue
            v = frame[p.name] = type_annotations.given(p.annotation, frame[p.name])
            if not isinstance(v, Proxy) and p.default is not v and not type_annotations.check(p.annotation)(v):
                raise RuntimeError(
                    f"{self.node.name}() Expected a value of type '{ast.unparse(p.annotation)}' for argument '{p.name}' but instead found type "
                    f"'{type(v).__name__}'.\nPosition: {i}\nDeclaration: {self.declaration()}"
                )
        return self._run(frame)

    def declaration(self) -> str:
        """Its first line."""
        shown = [f"{ast.unparse(p.annotation)} {p.name}" + ("" if p.default is _NONE else f"={p.default!r}") for p in self.parameters]
        return f"{self.node.name}({', '.join(shown)}) -> {ast.unparse(self.node.returns) if self.node.returns else 'Tensor'}"

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Frame:
        own = self.node.name
        if len(args) > len(self.names):
            raise RuntimeError(
                f"{own}() expected at most {len(self.names)} argument(s) but received {len(args) + len(kwargs)} argument(s). Declaration: {self.declaration()}"
            )
        frame = Frame(zip(self.names, args, strict=False))
        for name, v in kwargs.items():
            if name in frame or name not in self.names:
                what = "specified twice" if name in frame else "unknown"
                raise RuntimeError(f"{own}() the keyword argument '{name}' is {what}. Declaration: {self.declaration()}")
            frame[name] = v
        for p in self.parameters:
            if p.name not in frame:
                if p.default is _NONE:
                    raise RuntimeError(f"{own}() is missing value for argument '{p.name}'. Declaration: {self.declaration()}")
                frame[p.name] = list(p.default) if isinstance(p.default, list) else p.default
        return frame

    def _run(self, frame: Frame) -> Any:
        if self._steps is None:
            self.compile()
        assert self._steps is not None
        run_block(self._steps, frame, self)
        if self._result is None:
            return None
        line = self.node.end_lineno or 0
        return run_block([(line, self._result)], frame, self)

    def inside(self, node: ast.FunctionDef, known: frozenset[str]) -> Function:
        """A function that is defined in this one, and sees its values."""
        return Function(self.unit, node, self.file, self.source, f"{self.name}.{node.name}", known)

    def call_inside(self, frame: dict[str, Any]) -> Any:
        """The result of a function without parameters over the values of the function that defines it."""
        return self._run(Frame(frame))


def run_block(steps: Sequence[tuple[int, Step]], frame: dict[str, Any], function: Function) -> Any:
    """Run statements in order; the value of the last. An error that goes through is told the line, once a call."""
    line, made = 0, None
    try:
        for line, step in steps:  # noqa: B007
            made = step(frame)
    except Exception as error:
        if isinstance(frame, Frame) and not frame.noted:
            frame.noted = True
            text = function.source.splitlines()[line - 1].strip() if 0 < line <= function.source.count("\n") + 1 else ""
            error.add_note(f'TorchScript, File "{function.file}", line {line}, in {function.node.name}: {text[:160]}')
        raise
    return made


class _Statements:
    """Statements to closures."""

    def __init__(self, function: Function) -> None:
        self.function = function
        names = {n.id for n in ast.walk(function.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        names |= {n.name for n in ast.walk(function.node) if isinstance(n, ast.FunctionDef) and n is not function.node}
        self.known = frozenset(names) | set(function.names) | function.outer
        self.expressions = expressions.Expressions(function.unit, function.file, self.known)

    def value(self, node: ast.expr) -> Step:
        return self.expressions.value(node)

    def block(self, body: Sequence[ast.stmt]) -> list[tuple[int, Step]]:
        return [(s.lineno, step) for s in body if (step := self.statement(s)) is not None]

    def statement(self, s: ast.stmt) -> Step | None:
        if isinstance(s, ast.Pass):
            return None
        if isinstance(s, ast.Expr):
            return self.value(s.value)
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            return self._assign(s.targets[0], s.value)
        if isinstance(s, ast.AnnAssign) and s.value is not None:
            return self._assign(s.target, s.value)
        if isinstance(s, ast.If):
            return self._if(s)
        if isinstance(s, ast.While) and not s.orelse:
            return self._while(s)
        if isinstance(s, ast.For) and not s.orelse:
            return self._for(s)
        if isinstance(s, ast.With):
            return self._with(s)
        if isinstance(s, ast.FunctionDef):
            return self._function(s)
        return refuse(f"{self.function.file}, line {s.lineno}: {ast.unparse(s)[:80]!r} is no statement of TorchScript that is read")

    def _assign(self, target: ast.expr, node: ast.expr) -> Step:
        value = self.value(node)
        if isinstance(target, ast.Name):
            name = target.id

            def one(f: dict[str, Any]) -> None:
                f[name] = value(f)

            return one
        if isinstance(target, ast.Attribute):
            owner, attribute = self.value(target.value), target.attr
            return lambda f: set_attribute(owner(f), attribute, value(f))
        if isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(t, ast.Name) for t in target.elts):
            names = [t.id for t in target.elts if isinstance(t, ast.Name)]

            def several(f: dict[str, Any]) -> None:
                made = value(f)
                if len(made) != len(names):
                    raise RuntimeError(f"Provided {len(made)} values, where {len(names)} are unpacked")
                f.update(zip(names, made, strict=True))

            return several
        return refuse(f"{self.function.file}, line {target.lineno}: {ast.unparse(target)!r} is assigned to, which is not read")

    def _if(self, s: ast.If) -> Step:
        test, then, other, function = self.value(s.test), self.block(s.body), self.block(s.orelse), self.function
        return lambda f: run_block(then if test(f) else other, f, function)

    def _while(self, s: ast.While) -> Step:
        test, body, function = self.value(s.test), self.block(s.body), self.function

        def loop(f: dict[str, Any]) -> None:
            while test(f):
                run_block(body, f, function)

        return loop

    def _for(self, s: ast.For) -> Step:
        call = s.iter
        if not (isinstance(s.target, ast.Name) and isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and not call.keywords):
            refuse(f"{self.function.file}, line {s.lineno}: a loop over {ast.unparse(call)[:60]!r}, where range(...) is read")
        name = s.target.id
        limits, body, function = [self.value(a) for a in call.args], self.block(s.body), self.function

        def loop(f: dict[str, Any]) -> None:
            for f[name] in range(*[limit(f) for limit in limits]):
                run_block(body, f, function)

        return loop

    def _with(self, s: ast.With) -> Step:
        if len(s.items) != 1:
            refuse(f"{self.function.file}, line {s.lineno}: a `with` of several contexts is not read")
        context, target, body, function = self.value(s.items[0].context_expr), s.items[0].optional_vars, self.block(s.body), self.function
        name = target.id if isinstance(target, ast.Name) else None

        def block(f: dict[str, Any]) -> None:
            owner = context(f)
            leave = method(owner, "__exit__")
            entered = method(owner, "__enter__").call((owner,))
            if name is not None:
                f[name] = entered
            try:
                run_block(body, f, function)
            finally:
                leave.call((owner, None, None, None))

        return block

    def _function(self, s: ast.FunctionDef) -> Step:
        made = self.function.inside(s, self.known)
        made.compile()
        name = s.name

        def define(f: dict[str, Any]) -> None:
            f[name] = lambda *args: made.call_inside(f) if not args else made.call(args)

        return define
