"""`flambeau coverage`: our public names and signatures beside those of the installed PyTorch, as the page docs/coverage.md.

PyTorch's names come from its modules themselves (`__all__`, or `dir` without underscores, modules and what was imported from
elsewhere). Its signatures come from `inspect`; those of built-in functions from the schemas that PyTorch's argument parser is made
from, or, where there is none, from the first lines of their docstrings.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, NamedTuple

from flambeau.names import is_internal, left_out
from flambeau.ops.named import parameters_of
from flambeau.ops.wrapper import MISSING
from flambeau.runtime import whole_files

SPACES = (
    "torch Tensor nn nn.functional nn.init nn.utils nn.utils.clip_grad nn.utils.parametrizations nn.utils.parametrize nn.utils.prune "
    "nn.utils.rnn nn.utils.stateless nn.attention nn.parallel nn.parameter optim optim.lr_scheduler optim.swa_utils linalg fft special "
    "masked signal.windows random autograd autograd.forward_ad autograd.functional autograd.graph func utils.data utils.checkpoint "
    "utils.tensorboard utils.benchmark testing amp serialization sparse distributions distributions.constraints distributions.transforms "
    "jit fx hub overrides types profiler multiprocessing backends.cpu backends.cuda backends.cudnn backends.mkl backends.mkldnn "
    "backends.mps backends.openmp cpu cuda"
).split()
ABSENT = object()


class Parameter(NamedTuple):
    """A parameter as far as it is compared. `default` is normalised text, None where there is none."""

    name: str
    kind: str  # "positional", "keyword", "*", "**"
    default: str | None


class Comparison(NamedTuple):
    """What came of one namespace; `differing` is {name: reasons}, `open`: names whose signatures one side does not tell.

    `internal`: names of PyTorch's C++ parts, which are not counted (names.py).
    """

    space: str
    names: list[str]
    missing: list[str]
    equal: list[str]
    differing: dict[str, str]
    open: list[str]
    internal: list[str]  # not among `names`


# -- names ----------------------------------------------------------------------------------------------------------
def public_names(holder: Any) -> list[str]:
    """The public names of a PyTorch module or class, sorted."""
    if isinstance(holder, type):
        return sorted(n for n in dir(holder) if not n.startswith("_"))
    listed = getattr(holder, "__all__", None)
    names = dir(holder) if listed is None else listed
    found = []
    for name in set(names):
        value = getattr(holder, name, ABSENT)
        if name.startswith("_") or value is ABSENT or isinstance(value, ModuleType):
            continue
        home = getattr(value, "__module__", None)
        if listed is None and isinstance(home, str) and home.split(".")[0] != "torch":
            continue  # typing, warnings and the like, imported there
        if listed is None and inspect.isroutine(value) is False and not isinstance(value, type) and home is None:
            continue  # a module's own constants
        found.append(name)
    return sorted(found)


def _holder(package: str, space: str) -> Any:
    """The module (or the Tensor class) `space` of a package; ABSENT where there is none."""
    root = importlib.import_module(package)
    if space == "torch":
        return root
    if space == "Tensor":
        return root.Tensor
    try:
        return importlib.import_module(f"{package}.{space}")
    except ImportError:
        pass
    value: Any = root
    for part in space.split("."):
        value = getattr(value, part, ABSENT)
    return value


# -- signatures ------------------------------------------------------------------------------------------------------
def _normal(default: Any) -> str:
    """A default as text that both packages share: numbers by value, objects without their package."""
    if isinstance(default, (tuple, list)):
        if default and all(d == default[0] for d in default):
            return _normal(default[0])  # one size stands for all dimensions
        return "(" + ", ".join(map(_normal, default)) + ")"
    if isinstance(default, (bool, type(None))) or (isinstance(default, str) and not default.startswith("torch.")):
        return repr(default)
    if isinstance(default, (int, float)):
        return repr(float(default))
    if isinstance(default, ModuleType):
        return default.__name__
    text = default if isinstance(default, str) else repr(default)  # layouts are text here
    return re.sub(r"\bflambeau\.|\btorch\.|ops\.random\.|_C\.| at 0x[0-9a-f]+", "", text)


_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional", inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword", inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**",
}  # fmt: skip


def _inspected(function: Any) -> list[Parameter] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [Parameter(p.name, _KINDS[p.kind], None if p.default is p.empty or p.default is MISSING else _normal(p.default)) for p in parameters]


def _tells(parameters: list[Parameter] | None) -> bool:
    """Whether a signature says more than that there are arguments."""
    return parameters is not None and not any(p.kind == "**" for p in parameters)


def documented(function: Any, name: str) -> list[list[Parameter]]:
    """The signatures that a docstring's lines `name(a, b=1, *, out=None) -> Tensor` give."""
    found = []
    for line in (getattr(function, "__doc__", None) or "").splitlines()[:12]:
        match = re.match(rf"\s*(?:[\w.]*\.)?{re.escape(name)}\((.*)\)\s*(?:->.*)?$", line)
        if match is None:
            continue
        try:
            arguments = ast.parse(f"def f({match[1]}): pass").body[0].args  # type: ignore[attr-defined]
        except SyntaxError:
            continue
        plain = [*arguments.posonlyargs, *arguments.args]
        lack = len(plain) - len(arguments.defaults)
        parameters = [Parameter(a.arg, "positional", None if i < lack else _literal(arguments.defaults[i - lack])) for i, a in enumerate(plain)]
        if arguments.vararg is not None:
            parameters.append(Parameter(arguments.vararg.arg, "*", None))
        for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            parameters.append(Parameter(a.arg, "keyword", None if d is None else _literal(d)))
        if arguments.kwarg is not None:
            parameters.append(Parameter(arguments.kwarg.arg, "**", None))
        found.append(parameters)
    return found


def _literal(node: Any) -> str:
    try:
        return _normal(ast.literal_eval(node))
    except ValueError:
        return re.sub(r"\btorch\.", "", ast.unparse(node)).replace("long", "int64")


PREFIXES = {"linalg": "linalg_", "fft": "fft_", "special": "special_"}  # of the schemas' names; elsewhere there is none


def in_schemas(function: Any, name: str, space: str) -> list[list[Parameter]]:
    """The signatures of a built-in function's overloads, but for those of TorchScript's own (no tensor) and by names of dimensions.

    The schemas have an `out` for every function; Python has it where the documentation names it.
    """
    if space not in (*PREFIXES, "torch", "Tensor", "nn.functional"):
        return []
    find = getattr(importlib.import_module("torch")._C, "_jit_get_schemas_for_operator", None)
    found: list[list[Parameter]] = []
    for schema in find(f"aten::{PREFIXES.get(space, '')}{name}") if find else ():
        tensors = any("Tensor" in str(a.type) for a in schema.arguments)
        if not tensors or any(a.is_out for a in schema.arguments) or re.search("dimname|names|list|^any$", schema.overload_name):
            continue
        parameters: list[Parameter] = []
        for a in schema.arguments:
            default = _normal(a.default_value) if a.has_default_value() else None
            if a.name == "memory_format" and default == "0.0":  # the schemas have the number of the enumeration
                default = "contiguous_format"
            parameters.append(Parameter("input" if a.name == "self" else a.name, "keyword" if a.kwarg_only else "positional", default))
        if space != "Tensor" and re.search(r"\bout(=| \()", getattr(function, "__doc__", None) or ""):
            parameters.append(Parameter("out", "keyword", "None"))
        found.append(parameters)
    return found


def their_signatures(function: Any, name: str, space: str) -> list[list[Parameter]]:
    """PyTorch's signatures of a function or class: one for each overload; empty if it tells none."""
    try:
        dispatched = importlib.import_module("torch._jit_internal").boolean_dispatched
        if inspect.isfunction(function) and function in dispatched:
            function = dispatched[function]["if_true"]
    except (ImportError, AttributeError):
        pass
    seen = _inspected(function)
    if seen is not None and _tells(seen):
        return [seen]
    schemas = [] if inspect.isfunction(function) or isinstance(function, type) else in_schemas(function, name, space)
    return schemas or [s for s in documented(function, name) if _tells(s)]


def our_signature(function: Any, name: str) -> list[Parameter] | None:
    """Our signature, with `out` where the record of an operation takes it, and of in-place forms the operation's."""
    from flambeau.ops.registry import OPERATIONS

    record = getattr(function, "operation", None)
    if record is None and name.endswith("_") and not name.endswith("__") and name[:-1] in OPERATIONS:
        candidate = OPERATIONS[name[:-1]]
        record = candidate if candidate.inplace is function else None
    seen = _inspected(function if record is None else record.body)
    if seen is None or not inspect.isfunction(function) or any(p.name == "out" for p in seen):
        return seen
    return [*seen, *[Parameter("out", "keyword", "None") for p in parameters_of(function) if p.name == "out"]]


# Parameters of schemas that PyTorch's own Python functions refuse: called with them, they raise TypeError (or, on a CPU, NotImplementedError).
_REFUSED = {
    "sort": "reverse", "mm": "out_dtype", "bmm": "out_dtype", "addmm": "out_dtype", "baddbmm": "out_dtype", "zeros_like": "out", "ones_like": "out",
    "from_numpy": "ndarray", "set_num_threads": "int", "set_num_interop_threads": "int", "new_tensor": "layout pin_memory",
    "sparse_coo_tensor": "layout", "copy_": "src", "histogramdd": "out", "dequantize": "tensors qtensor",
}  # fmt: skip


def differences(mine: list[Parameter], theirs: list[Parameter], method: bool, elsewhere: Collection[str] = ()) -> list[str]:
    """What of PyTorch's signature ours does not have; parameters that only we have do not count, nor do private ones.

    `elsewhere`: names that another overload lacks, so that one signature for all of them needs a default.
    """
    if method:  # the tensor itself, whatever it is called; docstrings leave it out
        mine = mine[1:]
        theirs = [p for p in theirs if p.name not in ("self", "input")]
    own = {p.name: (i, p) for i, p in enumerate(mine)}
    gather = any(p.kind == "*" for p in mine)
    reasons = []
    for place, p in enumerate(theirs):
        if p.name.startswith("_") or p.kind in ("*", "**"):
            if p.kind == "*" and not gather:
                reasons.append(f"no *{p.name}")
            continue
        if p.name not in own:
            reasons.append(f"no {p.name}")
            continue
        i, q = own[p.name]
        alias = place < len(mine) and mine[place].kind == "positional" and mine[place].name not in {t.name for t in theirs}
        if p.kind == "positional" and q.kind == "keyword" and not gather and not alias:
            reasons.append(f"{p.name} only by keyword")
        elif p.kind == "positional" and q.kind == "positional" and i != place:
            reasons.append(f"{p.name} is number {i + 1}, not {place + 1}")
        if p.default is None and p.name in elsewhere:
            continue
        if p.default != q.default and not (p.kind == "keyword" and p.default is None):  # docstrings omit defaults of keywords
            reasons.append(f"{p.name}={q.default or '(required)'}, not {p.default or '(required)'}")
    return reasons


# -- the comparison and the page --------------------------------------------------------------------------------------
def compare(space: str) -> Comparison | None:
    """Both packages' namespace; None where the installed PyTorch has none of that name."""
    theirs, mine = _holder("torch", space), _holder("flambeau", space)
    if theirs is ABSENT:
        return None
    shown = public_names(theirs)
    internal = [n for n in shown if is_internal(f"torch.{space}" if space != "torch" else "torch", n) and getattr(mine, n, ABSENT) is ABSENT]
    result = Comparison(space, [n for n in shown if n not in internal], [], [], {}, [], internal)
    method = isinstance(theirs, type)
    for name in result.names:
        try:
            ours = getattr(mine, name, ABSENT)
        except (ImportError, RuntimeError):
            ours = ABSENT
        if ours is ABSENT:
            result.missing.append(name)
            continue
        their_value = getattr(theirs, name)
        if not callable(their_value) or not callable(ours):
            continue  # constants, dtypes, properties: there is no signature to compare
        overloads, own = their_signatures(their_value, name, space), our_signature(ours, name)
        if not overloads or own is None or not _tells(own):
            result.open.append(name)
            continue
        refused = _REFUSED.get(name, "").split()
        overloads = [[p for p in overload if p.name not in refused] for overload in overloads]
        called = [{p.name for p in overload} for overload in overloads]
        each = [differences(own, overload, method, {n for some in called for n in some if not all(n in other for other in called)}) for overload in overloads]
        best = min(each, key=len)  # one signature of ours stands for all overloads: it must know the parameters of each
        reasons = list(dict.fromkeys([*best, *(r for some in each for r in some if r.startswith("no "))]))
        if reasons:
            result.differing[name] = "; ".join(reasons)
        else:
            result.equal.append(name)
    return result


def _listed(names: list[str], width: int = 130) -> list[str]:
    """Names as lines of a paragraph."""
    lines, line = [], ""
    for name in names:
        item = f"`{name}`"
        if line and len(line) + len(item) + 2 > width:
            lines.append(line)
            line = ""
        line = f"{line}, {item}" if line else item
    return [*lines, line] if line else lines


def _by_reason(c: Comparison) -> list[str]:
    """The missing names of a namespace: first those without a reason, then a paragraph for each reason."""
    reasons: dict[str | None, list[str]] = {None: []}
    for name in c.missing:
        reasons.setdefault(left_out(c.space, name), []).append(name)
    lines = _listed(reasons.pop(None))
    for why, names in reasons.items():
        lines += ["", f"{why} ({len(names)}):"[:1].upper() + f"{why} ({len(names)}):"[1:], *_listed(names)]
    return lines


def page() -> str:
    """The whole of docs/coverage.md for the installed PyTorch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        version = importlib.import_module("torch").__version__.split("+")[0]
        found = [c for c in map(compare, SPACES) if c is not None]
    lines = [
        "# Coverage of PyTorch's names", "",
        f"Made by `flambeau coverage --out docs/coverage.md` against PyTorch {version}; a test refuses a stale page.", "",
        "*Names*: PyTorch's public names. *Here*: those that flambeau has too. *Equal*: of the callable ones, those whose parameters have "
        "the same names, order, kinds and defaults; parameters that only flambeau has do not count. *Differ*: listed below. *Open*: one "
        "side does not tell its signature (`*args, **kwargs`; built-in functions without a schema or a documented one).", "",
        "| namespace | names | here | share | equal | differ | open |", "|---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    rows = [(c.space, len(c.names), len(c.names) - len(c.missing), len(c.equal), len(c.differing), len(c.open)) for c in found]
    total: tuple[Any, ...] = ("**all**", *(sum(row[i] for row in rows) for i in range(1, 6)))  # type: ignore[misc]
    for space, names, here, equal, differ, unknown in (*rows, total):
        lines.append(f"| {space} | {names} | {here} | {100 * here / max(names, 1):.1f} % | {equal} | {differ} | {unknown} |")
    lines += ["", "## Missing", ""]
    for c in found:
        if c.missing:
            lines += [f"### {c.space} ({len(c.missing)})", *_by_reason(c), ""]
    internal = [n for c in found for n in c.internal]
    if internal:
        lines += [
            f"## Not counted ({len(internal)})", f"In PyTorch's module, but {left_out('torch', internal[0])}.", "", *_listed(internal), "",
        ]  # fmt: skip
    lines += ["## Signatures that differ", ""]
    for c in found:
        if c.differing:
            lines += [f"### {c.space} ({len(c.differing)})", *(f"- `{name}`: {why}" for name, why in c.differing.items()), ""]
    return "\n".join(lines).rstrip() + "\n"


def coverage(out: str | None, write: Callable[[str], Any] = sys.stdout.write) -> int:
    """Print the page, or write it to a file; 1 where PyTorch is not installed."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("flambeau coverage: PyTorch is not installed (pip install 'flambeau[torch]')", file=sys.stderr)
        return 1
    text = page()
    if out is None:
        write(text)
    else:
        with whole_files.replacing(out) as file:
            file.write(text.encode())
    return 0
