"""Expressions of sizes as `.pt2` files write them (the text of a tree of calls: `Mul(Integer(2), Symbol('s0', positive=True, integer=True))`), and back."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from flambeau import symbols
from flambeau.symbols import Expr

_NAMES: Final = {"//": "FloorDiv", "%": "Mod", "max": "Max", "min": "Min", "**": "Pow", "float": "ToFloat", "/": "IntTrueDiv"}


def text(e: Any) -> str:
    """An expression as the file has it."""
    if e.__class__ is not Expr:
        return f"Integer({e})" if isinstance(e, int) else f"Float('{e!r}')"
    if e.op == "size":
        return f"Symbol('s{e.a}', positive=True, integer=True)"
    if e.op == "sum":
        parts = []
        for factors, count in (e.terms or {}).items():
            items = ([f"Integer({count})"] if count != 1 or not factors else []) + [text(f) for f in factors]
            parts.append(items[0] if len(items) == 1 else f"Mul({', '.join(items)})")
        return parts[0] if len(parts) == 1 else f"Add({', '.join(parts)})"
    if e.op not in _NAMES:
        raise NotImplementedError(f"torch.export.save: a size that is computed by {e.op} has no form in a file")
    return f"{_NAMES[e.op]}({text(e.a)}{'' if e.b is None else ', ' + text(e.b)})"


def _product(*xs: Any) -> Any:
    out: Any = 1
    for x in xs:
        out = x * out
    return out


_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "Integer": lambda x: int(x), "Float": lambda x, *_, **__: float(x), "Add": lambda *xs: sum(xs[1:], xs[0]), "Mul": _product,
    "FloorDiv": lambda a, b: a // b, "CleanDiv": lambda a, b: a // b, "Mod": lambda a, b: a % b, "PythonMod": lambda a, b: a % b,
    "CeilDiv": lambda a, b: -(-a // b), "CeilToInt": lambda a: symbols.as_int(a), "Max": symbols.maximum, "Min": symbols.minimum,
    "Pow": lambda a, b: _power(a, b), "PowByNatural": lambda a, b: _power(a, b), "ToFloat": symbols.as_float, "IntTrueDiv": lambda a, b: a / b,
    "Rational": lambda a, b: a / b, "TruncToInt": symbols.as_int,
}  # fmt: skip
_DEEPEST: Final = 100


def _power(a: Any, b: Any) -> Any:
    if not isinstance(b, int) or not 0 <= b <= 64:
        raise ValueError(f"a power of {b}")
    return _product(*[a] * b)


def value(source: str, symbol: Callable[[str], Any]) -> Any:
    """What a text means, a number or a symbol; `symbol(name)` gives the symbol of a name. ValueError for anything else: nothing is executed."""
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"no expression of sizes: {source[:100]!r}") from None

    def walk(node: ast.expr, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("an expression of sizes that is nested too deeply")
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, str):
            return node.value
        if isinstance(node, ast.Name):
            return symbol(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand, depth + 1)
        if isinstance(node, ast.BinOp):
            a, b = walk(node.left, depth + 1), walk(node.right, depth + 1)
            kinds: dict[type, Callable[[Any, Any], Any]] = {
                ast.Add: lambda a, b: a + b,
                ast.Sub: lambda a, b: a - b,
                ast.Mult: lambda a, b: a * b,
                ast.FloorDiv: lambda a, b: a // b,
                ast.Mod: lambda a, b: a % b,
                ast.Pow: _power,
            }
            if type(node.op) in kinds:
                return kinds[type(node.op)](a, b)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            args = [walk(a, depth + 1) for a in node.args]
            if node.func.id == "Symbol" and len(args) == 1 and isinstance(args[0], str):
                return symbol(args[0])
            if node.func.id in _CALLS:
                return _CALLS[node.func.id](*args)
        raise ValueError(f"no expression of sizes: {source[:100]!r}")

    return walk(tree, 0)
