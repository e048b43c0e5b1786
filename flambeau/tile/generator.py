"""From the source of a function to the tile IR: an interpreter of Python's syntax tree, over values that are known now and blocks that are not.

What is known now (numbers, tuples, dtypes, functions) is computed by Python. An `if` or a loop over blocks becomes an operation with regions; what
names stand for after it is what the regions give. Calls of other functions under @jit are expanded in place.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from flambeau.compiler.tile.ir import Region, Type, Value, Where
from flambeau.dtypes import int32, int64
from flambeau.tile import language
from flambeau.tile.errors import CompilationError
from flambeau.tile.operations import binary, cast, logical, negated, number, promoted, truth, unary
from flambeau.tile.values import build, tensor, unwrap

if TYPE_CHECKING:
    from flambeau.tile.functions import JITFunction

_OPERATORS: Final[dict[type, str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.LShift: "lshift",
    ast.RShift: "rshift", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le",
    ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_PYTHON: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.Pow: operator.pow, ast.MatMult: operator.matmul, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class _Nothing:
    """The end of a block was reached without a `return`."""


NOTHING: Final = _Nothing()


class Unsupported(Exception):
    """Syntax that kernels do not have."""


def flatten(x: Any, found: list[tensor] | None = None) -> list[tensor]:
    """The blocks in a value: itself, or those of a tuple or an object that holds some."""
    found = [] if found is None else found
    if isinstance(x, tensor):
        found.append(x)
    elif isinstance(x, (tuple, list)):
        for y in x:
            flatten(y, found)
    elif hasattr(x, "_tile_parts"):
        flatten(x._tile_parts(), found)
    return found


def unflatten(like: Any, values: list[Value]) -> Any:
    """The same value with other blocks, taken from the front of a list."""
    if isinstance(like, tensor):
        return tensor(values.pop(0))
    if isinstance(like, (tuple, list)):
        parts = [unflatten(y, values) for y in like]
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
    if hasattr(like, "_tile_parts"):
        return like._tile_with(unflatten(like._tile_parts(), values))
    return like


def as_blocks(x: Any) -> Any:
    """Numbers as scalars, also in tuples: what a loop may change."""
    x = unwrap(x)
    if isinstance(x, (bool, int, float)):
        return tensor(number(x))
    if isinstance(x, (tuple, list)):
        parts = [as_blocks(y) for y in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


class Generator:
    """One expansion of a function."""

    def __init__(self, function: JITFunction, scope: dict[str, Any]) -> None:
        self.function, self.scope = function, scope
        self.line = function.first_line

    # -- places -----------------------------------------------------------------------------------------------------
    def run(self) -> Any:
        """Expand the body; what it returns."""
        b = build()
        before = b.where
        result = self.block(self.function.tree.body)
        b.where = before
        return None if result is NOTHING else result

    def _at(self, node: ast.AST) -> None:
        line = getattr(node, "lineno", None)
        if line is not None:
            self.line = self.function.first_line + line - 1
            build().where = Where(self.function.file, self.line)

    def fail(self, error: BaseException) -> CompilationError:
        """The error with the user's line."""
        if isinstance(error, CompilationError):
            return error
        at = getattr(error, "where", None)
        file, line = (at.file, at.line) if at is not None else (self.function.file, self.line)
        source = self.function.source_line(line) if file == self.function.file else ""
        text = str(error)
        if isinstance(error, language.StaticAssertion):
            from flambeau.tile.errors import CompileTimeAssertionFailure

            return CompileTimeAssertionFailure(file, line, source, text)
        return CompilationError(file, line, source, text if type(error).__name__ in ("TileError", "Unsupported") else f"{type(error).__name__}: {text}")

    # -- statements -------------------------------------------------------------------------------------------------
    def block(self, statements: Sequence[ast.stmt]) -> Any:
        """Statements in order; what they return, or NOTHING."""
        for i, s in enumerate(statements):
            self._at(s)
            try:
                if isinstance(s, ast.Return):
                    return None if s.value is None else self.value(s.value)
                if isinstance(s, ast.If):
                    result = self._if(s, statements[i + 1 :])
                    if result is not NOTHING:
                        return result[0]
                    continue
                leaves = isinstance(s, (ast.For, ast.While)) and any(isinstance(n, (ast.Return, ast.Break, ast.Continue)) for n in ast.walk(s))
                if leaves and not self._known_loop(s):
                    raise Unsupported("return, break and continue are not allowed in a loop that runs on the device")
                result = getattr(self, "_" + type(s).__name__, self._unsupported)(s)
                if result is not None:
                    return result[0]
            except Exception as error:
                failure = self.fail(error)
                raise failure from (None if failure is error else error)
        return NOTHING

    def _known_loop(self, s: ast.stmt) -> bool:
        return isinstance(s, ast.For) and isinstance(s.iter, ast.Call) and "static_range" in ast.unparse(s.iter.func)

    def _unsupported(self, node: ast.AST) -> Any:
        raise Unsupported(f"unsupported syntax in a kernel: {type(node).__name__}")

    def _Pass(self, s: ast.Pass) -> None:
        pass

    def _Import(self, s: Any) -> None:
        raise Unsupported("import is not allowed in a kernel")

    def _Assert(self, s: ast.Assert) -> None:
        condition = self.value(s.test)
        message = self.value(s.msg) if s.msg is not None else ""
        if isinstance(condition, tensor):
            language.device_assert(condition, message)
        elif not condition:
            raise AssertionError(message or f"assert {ast.unparse(s.test)}")

    def _Expr(self, s: ast.Expr) -> None:
        self.value(s.value)

    def _Assign(self, s: ast.Assign) -> None:
        value = self.value(s.value)
        for target in s.targets:
            self.assign(target, value)

    def _AnnAssign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            value = self.value(s.value)
            if "constexpr" in ast.unparse(s.annotation) and isinstance(value, tensor):
                raise TypeError(f"{ast.unparse(s.target)} is annotated as constexpr, but its value is a block that is known when the kernel runs")
            self.assign(s.target, value)

    def _AugAssign(self, s: ast.AugAssign) -> None:
        load = ast.parse(ast.unparse(s.target), mode="eval").body
        ast.copy_location(load, s)
        self.assign(s.target, self._operate(type(s.op), self.value(load), self.value(s.value)))

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.scope[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = list(value)
            if len(parts) != len(target.elts):
                raise ValueError(f"{len(target.elts)} names for {len(parts)} values")
            for t, v in zip(target.elts, parts, strict=True):
                self.assign(t, v)
        elif isinstance(target, ast.Attribute):
            setattr(self.value(target.value), target.attr, value)
        else:
            raise Unsupported(f"cannot assign to {ast.unparse(target)}; blocks are written by tl.store")

    def _carried(self, nodes: Sequence[ast.AST], values: bool = True) -> list[str]:
        """Names with values here that the nodes assign."""
        names: dict[str, None] = {}
        for node in nodes:
            for n in ast.walk(node):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in self.scope:
                    names[n.id] = None
        return list(names)

    def _region(self, params: Sequence[Value], body: Callable[[], Any]) -> tuple[Region, dict[str, Any], Any]:
        region, before = Region(list(params)), dict(self.scope)
        with build().inside(region):
            result = body()
        after, self.scope = self.scope, before
        return region, after, result

    # -- if -----------------------------------------------------------------------------------------------------------
    def _if(self, s: ast.If, rest: Sequence[ast.stmt]) -> Any:
        """NOTHING, or a tuple of what the function returns."""
        condition = self.value(s.test)
        if not isinstance(condition, tensor):
            result = self.block(s.body if condition else s.orelse)
            return NOTHING if result is NOTHING else (result,)
        if condition.shape:
            raise TypeError(f"the condition of `if` must be a scalar, got a block of shape {condition.shape}; tl.where chooses elements")
        returns = [any(isinstance(n, ast.Return) for x in part for n in ast.walk(x)) for part in (s.body, s.orelse)]
        test = truth(condition)
        if any(returns):
            return (self._returning(test, s, rest),)
        yes, scope_yes, _ = self._region((), lambda: self.block(s.body))
        no, scope_no, _ = self._region((), lambda: self.block(s.orelse))
        names = [n for n in {**scope_yes, **scope_no} if scope_yes.get(n, NOTHING) is not scope_no.get(n, NOTHING)]
        merged: dict[str, Any] = {}
        for name in names:
            if name in scope_yes and name in scope_no:
                a, c = scope_yes[name], scope_no[name]
                if flatten(a) or flatten(c) or unwrap(a) != unwrap(c):
                    merged[name] = self._agree(name, yes, a, no, c)
        self._finish_if(test, yes, no, merged)
        return NOTHING

    def _agree(self, name: str, yes: Region, a: Any, no: Region, c: Any) -> Any:
        """What a name stands for after both branches: the first's, with the results of both in the regions."""
        with build().inside(yes):
            a = as_blocks(a)
        with build().inside(no):
            c = as_blocks(c)
        x, y = flatten(a), flatten(c)
        if len(x) != len(y):
            raise TypeError(f"{name} is {a!r} after one branch of `if` and {c!r} after the other; they must agree")
        for p, q in zip(x, y, strict=True):
            left, right = p.handle, q.handle
            if left.shape == right.shape and left.type != right.type and not left.type.is_pointer and not right.type.is_pointer:
                d = promoted(left.type.dtype, right.type.dtype)
                with build().inside(yes):
                    left = cast(left, d)
                with build().inside(no):
                    right = cast(right, d)
            elif left.type != right.type:
                raise TypeError(f"{name} is {left.type} after one branch of `if` and {right.type} after the other; they must agree")
            yes.results.append(left)
            no.results.append(right)
        return a

    def _finish_if(self, test: Value, yes: Region, no: Region, merged: dict[str, Any]) -> None:
        results = list(build().op("if", (test,), (yes, no)))
        for name, like in merged.items():
            self.scope[name] = unflatten(like, results)

    def _returning(self, test: Value, s: ast.If, rest: Sequence[ast.stmt]) -> Any:
        """A branch returns: what follows the `if` belongs to the other branch."""

        def branch(body: Sequence[ast.stmt]) -> Callable[[], Any]:
            def emit() -> Any:
                result = self.block(body)
                if result is NOTHING:
                    result = self.block(rest)
                return None if result is NOTHING else result

            return emit

        yes, _, a = self._region((), branch(s.body))
        no, _, c = self._region((), branch(s.orelse))
        if a is None and c is None:
            self._finish_if(test, yes, no, {})
            return None
        merged = {"<returned>": self._agree("the returned value", yes, a, no, c)}
        self._finish_if(test, yes, no, merged)
        return self.scope.pop("<returned>")

    # -- loops --------------------------------------------------------------------------------------------------------
    def _For(self, s: ast.For) -> Any:
        if s.orelse:
            raise Unsupported("`for` with `else` is not allowed in a kernel")
        loop = self.value(s.iter)
        if isinstance(loop, (language.static_range, tuple, list)):
            return self._unrolled(s, loop)
        if not isinstance(loop, language.range):
            raise Unsupported("a loop in a kernel goes over range, tl.range or tl.static_range, or over a tuple")
        given = [unwrap(v) for v in (loop.start, loop.stop, loop.step)]
        d = int64 if any(number(v).type.element is not int32 for v in given) else int32
        bounds = [build().constant(v, d) if type(v) is int else cast(number(v), d) for v in given]
        names = [n for n in self._carried(s.body) if not (isinstance(s.target, ast.Name) and n == s.target.id)]
        index = Value(Type(d), None, ast.unparse(s.target))

        def body() -> None:
            self.assign(s.target, tensor(index))
            self.block(s.body)

        self._loop("for", bounds, names, [index], [body])
        return None

    def _unrolled(self, s: ast.For, loop: Any) -> Any:
        for i in loop:
            self.assign(s.target, i)
            stop = self._round(s.body)
            if stop == "break":
                break
            if isinstance(stop, tuple):
                return stop
        return None

    def _round(self, body: Sequence[ast.stmt]) -> Any:
        result = self.block(body)
        return None if result is NOTHING else (result,)

    def _While(self, s: ast.While) -> None:
        names = self._carried([*s.body, s.test])

        def holds() -> Value:
            return truth(self.value(s.test))

        self._loop("while", [], names, [], [holds, lambda: self.block(s.body)])

    def _loop(self, kind: str, bounds: list[Value], names: list[str], own: list[Value], bodies: list[Callable[[], Any]]) -> None:
        """A loop operation. Names whose values are no blocks, and that the body leaves alone, are not carried."""
        start = {n: as_blocks(self.scope[n]) for n in names}
        names = [n for n in names if flatten(start[n])]
        parts = {n: flatten(start[n]) for n in names}
        initial = [t.handle for n in names for t in parts[n]]
        b, regions = build(), []
        for i, body in enumerate(bodies):
            params = [Value(v.type, None, n) for n, v in zip([n for n in names for _ in parts[n]], initial, strict=True)]
            left = list(params)
            inner = {n: unflatten(start[n], left) for n in names}

            def emit(body: Callable[[], Any] = body, inner: dict[str, Any] = inner) -> Any:
                self.scope.update(inner)
                return body()

            region, after, result = self._region([*own, *params], emit)
            if kind == "while" and i == 0:
                region.results = [result]
            else:
                with b.inside(region):
                    for n in names:
                        given = flatten(as_blocks(after[n]))
                        if len(given) != len(parts[n]):
                            raise TypeError(f"{n} is {start[n]!r} before the loop and {after[n]!r} after a round")
                        for t, p in zip(given, parts[n], strict=True):
                            region.results.append(self._like(n, t.handle, p.handle))
            regions.append(region)
        results = list(b.op(kind, [*bounds, *initial], regions))
        for n in names:
            self.scope[n] = unflatten(start[n], results)

    def _like(self, name: str, v: Value, start: Value) -> Value:
        """A round's value in the dtype that the loop began with, where that is only a constant of another width."""
        if v.type == start.type or v.type.is_pointer or start.type.is_pointer or v.shape != start.shape:
            return v
        if v.op is not None and v.op.kind == "constant" and v.type.dtype.category <= start.type.dtype.category:
            return cast(v, start.type.dtype)
        raise TypeError(f"{name} is {start.type} before the loop and {v.type} after a round; it must keep its dtype (convert it by .to)")

    # -- expressions --------------------------------------------------------------------------------------------------
    def value(self, node: ast.expr) -> Any:
        """What an expression stands for."""
        method = getattr(self, "_x" + type(node).__name__, None)
        if method is None:
            raise Unsupported(f"unsupported syntax in a kernel: {type(node).__name__}")
        self._at(node)
        return unwrap(method(node))

    def _xConstant(self, node: ast.Constant) -> Any:
        return node.value

    def _xName(self, node: ast.Name) -> Any:
        if node.id in self.scope:
            return self.scope[node.id]
        found = self.function.global_value(node.id, NOTHING)
        if found is NOTHING:
            found = getattr(builtins, node.id, NOTHING)
            if found is NOTHING:
                raise NameError(f"{node.id} is not defined")
        return language.BUILTINS.get(found, found) if callable(found) and getattr(found, "__hash__", None) else found

    def _xTuple(self, node: ast.Tuple) -> Any:
        return tuple(self._elements(node.elts))

    def _xList(self, node: ast.List) -> Any:
        return self._elements(node.elts)

    def _elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                found += list(self.value(n.value))
            else:
                found.append(self.value(n))
        return found

    def _xDict(self, node: ast.Dict) -> Any:
        return {self.value(k): self.value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}

    def _xAttribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if node.attr == "value" and isinstance(owner, (bool, int, float, str, tuple)):
            return owner  # of a constexpr
        return getattr(owner, node.attr)

    def _xSubscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        return owner[self.value(node.slice)]

    def _xSlice(self, node: ast.Slice) -> Any:
        return slice(*[None if n is None else self.value(n) for n in (node.lower, node.upper, node.step)])

    def _xJoinedStr(self, node: ast.JoinedStr) -> Any:
        return "".join(str(self.value(v)) for v in node.values)

    def _xFormattedValue(self, node: ast.FormattedValue) -> Any:
        return format(self.value(node.value))

    def _xNamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.value(node.value)
        self.assign(node.target, value)
        return value

    def _xListComp(self, node: ast.ListComp) -> Any:
        if len(node.generators) != 1:
            raise Unsupported("a comprehension with several `for` is not allowed in a kernel")
        part, before, found = node.generators[0], dict(self.scope), []
        for x in self.value(part.iter):
            self.assign(part.target, x)
            if all(self.value(test) for test in part.ifs):
                found.append(self.value(node.elt))
        self.scope = before
        return found

    def _xGeneratorExp(self, node: Any) -> Any:
        return self._xListComp(node)

    def _operate(self, kind: type, a: Any, c: Any) -> Any:
        if isinstance(a, tensor) or isinstance(c, tensor):
            if kind not in _OPERATORS:
                raise Unsupported(f"blocks have no operator {kind.__name__}")
            return binary(_OPERATORS[kind], a, c)
        return _PYTHON[kind](a, c)

    def _xBinOp(self, node: ast.BinOp) -> Any:
        return self._operate(type(node.op), self.value(node.left), self.value(node.right))

    def _xUnaryOp(self, node: ast.UnaryOp) -> Any:
        x = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return negated(x) if isinstance(x, tensor) else not x
        if isinstance(x, tensor):
            return unary({ast.USub: "neg", ast.Invert: "invert", ast.UAdd: "pos"}[type(node.op)], x)
        plain: dict[Any, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Invert: operator.invert, ast.UAdd: operator.pos}
        return plain[type(node.op)](x)

    def _xCompare(self, node: ast.Compare) -> Any:
        left, result = self.value(node.left), None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
                one: Any = _PYTHON[type(op)](left, right)
            else:
                one = self._operate(type(op), left, right)
            both = isinstance(one, tensor) or isinstance(result, tensor)
            result = one if result is None else logical("and", result, one) if both else result and one
            left = right
        return result

    def _xBoolOp(self, node: ast.BoolOp) -> Any:
        name = "and" if isinstance(node.op, ast.And) else "or"
        result = self.value(node.values[0])
        for n in node.values[1:]:
            if not isinstance(result, tensor):
                if bool(result) != (name == "and"):
                    return result
                result = self.value(n)
            else:
                result = logical(name, result, self.value(n))
        return result

    def _xIfExp(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if not isinstance(condition, tensor):
            return self.value(node.body if condition else node.orelse)
        if condition.shape:
            raise TypeError(f"the condition of an if expression must be a scalar, got a block of shape {condition.shape}; use tl.where")
        yes, _, a = self._region((), lambda: self.value(node.body))
        no, _, c = self._region((), lambda: self.value(node.orelse))
        merged = {"<chosen>": self._agree("the value", yes, a, no, c)}
        self._finish_if(truth(condition), yes, no, merged)
        return self.scope.pop("<chosen>")

    def _xLambda(self, node: ast.Lambda) -> Any:
        raise Unsupported("lambda is not allowed in a kernel; write a function under @jit")

    def _xCall(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        args = self._elements(node.args)
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                kwargs |= self.value(k.value)
            else:
                kwargs[k.arg] = self.value(k.value)
        self._at(node)
        if hasattr(function, "expand"):
            return function.expand(*args, **kwargs)
        if not callable(function):
            raise TypeError(f"{ast.unparse(node.func)} is not a function")
        return function(*args, **kwargs)
