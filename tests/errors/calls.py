"""Valid calls of public callables, and the wrong calls that are made of each: one argument replaced, left out, or one too many."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from flambeau.testing.compare import Input, Named
from tests.errors.table import FIXTURES, SECTIONS

# What an argument is replaced by, as text in which `torch` is either package.
WRONG: Final = {
    "None": "None", "str": "'a'", "bytes": "b'a'", "object": "object()", "dict": "{}", "strings": "['a', 'b']", "float": "2.5", "zero": "0", "negative": "-7",
    "huge": "2**62", "beyond": "2**70", "nan": "float('nan')", "complex": "1j", "bool": "True", "empty list": "[]", "nested": "((1, 2), (3,))",
    "floats": "(0.5, 1.5)", "negatives": "(-1, -5)", "function": "abs", "type": "int", "dtype": "torch.int16", "slice": "slice(None)", "ellipsis": "...",
    "list of None": "[None]", "module": "torch.nn.ReLU()", "device": "torch.device('cpu')",
    "ints": "torch.ones(2, 3, dtype=torch.int64)", "bools": "torch.ones(2, 3, dtype=torch.bool)", "complexes": "torch.ones(2, 3, dtype=torch.complex64)",
    "halves": "torch.ones(2, 3, dtype=torch.float16)", "scalar": "torch.tensor(1.5)", "rank 5": "torch.ones(1, 2, 1, 2, 1)", "no elements": "torch.ones(0)",
    "other sizes": "torch.ones(7, 5)", "tensors": "[torch.ones(2), torch.ones(3)]", "sparse": "torch.eye(3).to_sparse()",
    "tensor type": "torch.Tensor", "module type": "torch.nn.Linear",
}  # fmt: skip
STRUCTURE: Final = ("too many", "too few", "unknown keyword", "twice")

Make = Callable[["Scope"], Any]


class Scope(dict[str, Any]):
    """The names of a call's text in one package; fixtures are made when they are first asked for."""

    def __init__(self, module: Any) -> None:
        super().__init__(torch=module)

    def __missing__(self, name: str) -> Any:
        text = FIXTURES.get(name)
        if text is None:
            raise KeyError(name)
        value = self[name] = eval(text, {"torch": self["torch"]})
        return value


class Call(NamedTuple):
    """A call: its section and text, the function, and its arguments, each made in a package."""

    section: str
    text: str
    function: Make
    args: tuple[Make, ...]
    kwargs: dict[str, Make]

    @property
    def name(self) -> str:
        """The last part of the function's name."""
        return self.text.partition(" ")[0].rsplit(".", 1)[-1]


class Wrong(NamedTuple):
    """A wrong call: which argument (position or keyword; None: all of them), and how."""

    call: Call
    where: int | str | None
    how: str

    @property
    def key(self) -> str:
        return f"{self.call.text} | {self.where} | {self.how}"

    def run(self, module: Any) -> Any:
        """Make it in a package."""
        scope = Scope(module)
        call = self.call
        function = call.function(scope)
        args = [make(scope) for make in call.args]
        kwargs = {k: make(scope) for k, make in call.kwargs.items()}
        if self.how == "valid":
            pass
        elif self.how == "too many":
            args += [None] * 12
        elif self.how == "too few":
            args = args[:-1]
        elif self.how == "unknown keyword":
            kwargs["wrong_name"] = 1
        elif self.how == "twice":
            kwargs[str(self.where)] = args[0]
        else:
            value = _text(WRONG[self.how])(scope)
            if isinstance(self.where, int):
                args[self.where] = value
            else:
                kwargs[str(self.where)] = value
        return function(*args, **kwargs)


def wrong_calls(call: Call, hows: tuple[str, ...] | None = None) -> Iterator[Wrong]:
    """All wrong calls of a valid one."""
    places: list[int | str] = [*range(len(call.args)), *call.kwargs]
    for how in WRONG if hows is None else hows:
        for where in places if how in WRONG else ():
            yield Wrong(call, where, how)
    for how in STRUCTURE:
        if (how == "too few" and not call.args) or (hows is not None and how not in hows):
            continue
        if how == "twice":
            first = first_parameter(call)
            if call.args and first is not None:
                yield Wrong(call, first, how)
        else:
            yield Wrong(call, None, how)


def first_parameter(call: Call) -> str | None:
    """The name of the first argument, by flambeau's signature."""
    import inspect

    import flambeau

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function = call.function(Scope(flambeau))
        first = next(iter(inspect.signature(function).parameters.values()))
    except (TypeError, ValueError, StopIteration, AttributeError):
        return None
    return first.name if first.kind is first.POSITIONAL_OR_KEYWORD else None


# -- from text ----------------------------------------------------------------------------------------------------
def _text(text: str) -> Make:
    code = compile(text, "<call>", "eval")
    return lambda scope: eval(code, {"torch": scope["torch"]}, scope)


def parsed(section: str, line: str) -> Call:
    """The call that a line of the table is."""
    node = ast.parse(line, mode="eval").body
    assert isinstance(node, ast.Call)
    function = ast.unparse(node.func)
    args = tuple(_text(ast.unparse(a)) for a in node.args)
    return Call(section, f"{function} {line}", _text(function), args, {str(k.arg): _text(ast.unparse(k.value)) for k in node.keywords})


def table(*sections: str) -> Iterator[Call]:
    """The calls of the table (table.py)."""
    for section, lines in SECTIONS.items():
        if not sections or section in sections:
            for line in lines.strip().splitlines():
                yield parsed(section, line)


# -- from PyTorch's databases -------------------------------------------------------------------------------------
def _value(x: Any) -> Make:
    return lambda scope: _built(x, scope["torch"])


def _built(x: Any, module: Any) -> Any:
    if isinstance(x, Input):
        return x.build(module)
    if isinstance(x, Named):
        return getattr(module, x.name)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([_built(y, module) for y in x])
    if isinstance(x, dict):
        return {k: _built(v, module) for k, v in x.items()}
    return x


def operators() -> Iterator[Call]:
    """For each operator of PyTorch's database the sample with the most arguments among its first ones, and the first."""
    from tests.differential import samples

    dtypes = ("float32", "int64", "bool", "complex64")
    for label, op in samples.OPERATORS.items():
        dtype = next((d for d in dtypes if samples.supported(label, d)), None)
        if dtype is None:
            continue
        try:
            found = list(samples.cases(label, dtype, False, 30))
        except (AttributeError, NotImplementedError, ValueError):
            continue  # one that flambeau has not
        small = [c for c in found if all(not isinstance(a, Input) or 0 < a.values.size < 10_000 for a in c.args)] or found
        if not small:
            continue
        richest = max(small, key=lambda c: len(c.args) + len(c.kwargs))
        for case in [small[0], richest] if richest is not small[0] else [richest]:
            ours, theirs = case.function
            # The database's own lambdas are not what a user calls.
            if getattr(theirs, "__module__", "") is not None and str(getattr(theirs, "__module__", "")).startswith("torch.testing"):
                continue
            made = partial(_choose, ours, theirs)
            kwargs = {k: _value(v) for k, v in case.kwargs.items()}
            yield Call("operators", f"torch.{op.name} {case.text}", made, tuple(_value(a) for a in case.args), kwargs)


def _choose(ours: Any, theirs: Any, scope: Scope) -> Any:
    return ours if scope["torch"].__name__ == "flambeau" else theirs


def modules() -> Iterator[Call]:
    """Constructors and forwards of all modules of PyTorch's database, with its first samples."""
    import torch
    from torch.testing._internal.common_modules import module_db

    from tests.differential.samples import Unsupported, case_of

    def maker(name: str, args: Any, kwargs: Any, scope: Scope) -> Any:
        module = scope["torch"]
        return _constructor(name, scope)(*_built(args, module), **_built(kwargs, module))

    for info in module_db:
        name = info.module_cls.__module__.replace("torch.nn.modules", "nn").split(".")[0] + "." + info.module_cls.__name__
        if "quantized" in info.module_cls.__module__ or not name.startswith("nn."):
            continue
        try:
            found = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
        except (RuntimeError, TypeError, ValueError):
            continue
        for n, sample in enumerate(sorted(found, key=lambda s: -len(s.constructor_input.kwargs))[:1] + list(found)[:1]):
            try:
                args, kwargs = case_of(tuple(sample.constructor_input.args)), case_of(dict(sample.constructor_input.kwargs))
                yield Call("modules", f"torch.{name} {n}({args!r}, {kwargs!r})", partial(_constructor, name), *_pieces(args, kwargs))
                if sample.forward_input is not None:
                    given, named = case_of(tuple(sample.forward_input.args)), case_of(dict(sample.forward_input.kwargs))
                    yield Call("modules", f"torch.{name} {n}({args!r}, {kwargs!r})()", partial(maker, name, args, kwargs), *_pieces(given, named))
            except Unsupported:
                continue


def _constructor(name: str, scope: Scope) -> Any:
    return getattr(scope["torch"].nn, name.rpartition(".")[2])


def _pieces(args: Any, kwargs: Any) -> tuple[tuple[Make, ...], dict[str, Make]]:
    return tuple(_value(a) for a in args), {k: _value(v) for k, v in kwargs.items()}


def all_calls(*sections: str) -> Iterator[Call]:
    """The calls of some sections (all, if none is named): those of the table, "operators" and "modules"."""
    yield from table(*[s for s in sections if s in SECTIONS]) if not sections or any(s in SECTIONS for s in sections) else ()
    if not sections or "operators" in sections:
        yield from operators()
    if not sections or "modules" in sections:
        yield from modules()
