"""One record an operation: PyTorch's name and signature, the body (a composition of primitives), documentation, samples.

    @operation(method=True, inplace=True, samples=unary_floats)
    def square(input: Tensor) -> Tensor:
        \"\"\"The square of each element...\"\"\"
        return input * input

The annotation of a parameter says how it is recorded:

    Tensor, Tensor | None          a tensor
    Sequence[Tensor]               several tensors
    Tensor | Number                a tensor, or a Python number that is given to the kernels at run time
    Number                         a run-time number; static where it equals the default
    Tensor | Exponent              a tensor, or a number that is part of the edge's key; a float until it has a second value, as the next
    float, Whole                   static, until it has a second value: then it is a run-time number (ops/changing.py)
    anything else                  static: part of the edge's key, so it must be hashable (lists become tuples)

The body runs once for each new edge, over placeholders: it may branch on shapes, dtypes and static arguments, never on values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.dtypes import dtype, of_type
from flambeau.ops.changing import ANNOTATIONS, Changing
from flambeau.ops.dtype_rules import has_rules, refuse_dtypes, refuse_limited
from flambeau.ops.signatures import many_numbers, problem
from flambeau.ops.wrapper import freeze, make_inplace, make_wrapper
from flambeau.trace.classes import SIZED
from flambeau.trace.meta import Size
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import _PARAMETER, local

Number = int | float | bool
Exponent = int | float | bool | complex
Whole = int

OPERATIONS: dict[str, Operation] = {}

_KINDS = {
    "Tensor": "tensor",
    "Tensor | None": "tensor?",
    "Tensor | Number": "operand",
    "Tensor | Number | None": "operand?",
    "Number | Tensor": "operand",
    "Number": "number",
    "Number | None": "number",
    "float | Number": "number",
    "Tensor | Exponent": "exponent",
    "Sequence[Tensor]": "tensors",
    "list[Tensor]": "tensors",
    "tuple[Tensor, ...]": "tensors",
    "Sequence[Tensor | None]": "tensors",
}


_UNKNOWN: Final = "unknown"
_PLAIN: Final = frozenset((float, bool, type(None), dtype))


def _kind(a: Any, kind: str) -> Any:
    """What a value is to the check of kinds: equal ones are taken or refused alike. _UNKNOWN: each has to be looked at."""
    cls = type(a)
    if cls in _PLAIN or (kind.startswith("tensor") and (cls is _TENSOR[0] or cls is _PARAMETER[0])):
        return cls
    if cls is int:
        return int if -(1 << 63) <= a < 1 << 63 else _UNKNOWN
    if cls is tuple or cls is list or cls is Size:
        kinds = (cls, *[_kind(x, kind) for x in a])
        return _UNKNOWN if _UNKNOWN in kinds else kinds
    return _UNKNOWN


class Operation:
    """The record. `function` is what users call; `body` is the composition; `samples` yields argument lists for tests."""

    __slots__ = (
        "aliases", "apply", "body", "changing", "checks", "collects", "defaults", "fitting", "function", "inplace", "keywords", "kinds", "method", "name",
        "names", "out", "picky", "recent", "samples", "sized", "static",
    )  # fmt: skip

    def __init__(
        self, body: Callable[..., Any], name: str, aliases: Sequence[str], method: bool, inplace: bool, out: bool,
        samples: Callable[[], Any] | None,
    ) -> None:  # fmt: skip
        self.recent: Any = None  # the call of it without a trace that was last made (trace/immediate.py)
        self.body = body
        self.name = name
        self.aliases = tuple(aliases)
        self.method = method
        self.samples = samples
        parameters = inspect.signature(body).parameters
        self.names = tuple(parameters)
        self.kinds = tuple(_KINDS.get(str(p.annotation), "static") for p in parameters.values())
        self.static = tuple([i for i, kind in enumerate(self.kinds) if kind == "static"])
        self.sized = tuple([i for i in self.static if self.names[i] in SIZED])  # which of the static ones are sizes (trace/classes.py)
        self.defaults = tuple(p.default for p in parameters.values())
        self.out = out
        self.collects = name in ("stack", "cat")  # whether lists of changing lengths are done at once (autograd/collected.py)
        self.checks: Checks | None = getattr(body, "checks", None)  # see `checked`
        self.picky = has_rules(name)  # whether PyTorch has no kernel for some dtypes
        self.fitting: set[tuple[Any, ...]] = set()  # kinds of arguments that fit (see `settle`)
        keyword = [n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
        self.keywords = len(keyword)  # how many of the parameters, the last ones, can only be given by keyword
        first = len(parameters) - len(keyword)
        self.apply: Callable[..., Any] = body  # the body, all arguments given by position
        if keyword:
            self.apply = lambda *args: body(*args[:first], **dict(zip(keyword, args[first:], strict=True)))
        self.function = make_wrapper(self)
        floats = [i for i, p in enumerate(parameters.values()) if self.kinds[i] == "exponent" or str(p.annotation) in ANNOTATIONS]
        self.changing = Changing(self, floats) if floats else None
        self.inplace = make_inplace(self) if inplace else None

    def call(self, args: Sequence[Any]) -> Any:
        """The public function, all arguments given by position."""
        return self.function(**dict(zip(self.names, args, strict=True)))

    def settle(self, args: Sequence[Any]) -> list[Any] | None:
        """Asked where an edge is new: PyTorch's TypeError if an argument is not of a kind that it may be, its errors of dtypes that it has no kernel
        for. All arguments are given by position.

        If there are tensors among static arguments, where PyTorch takes them as numbers, all arguments, with those as numbers.
        """
        refuse_limited(self.name, self.kinds, args)
        if self.checks is not None:
            self.checks(self, args)
        if self.picky:
            refuse_dtypes(self.name, self.kinds, args)
        kinds = tuple([None if a is d else _kind(a, k) for a, d, k in zip(args, self.defaults, self.kinds, strict=True)])
        if kinds in self.fitting:
            return None
        wrong = problem(self.name, self.names, args, self.defaults)
        if wrong is not None:
            raise wrong
        if _UNKNOWN not in kinds:
            self.fitting.add(kinds)
        tensor = _TENSOR[0]
        for i in self.static:
            a = args[i]
            if a.__class__ is type and self.names[i].endswith("dtype"):
                return [of_type(a) if j == i else b for j, b in enumerate(args)]
            if isinstance(a, tensor):
                if a._meta.numel != 1:
                    raise many_numbers(self.name, self.names[i], i + 1, a)
                return [freeze(a) if i in self.static else a for i, a in enumerate(args)]
        return None

    def __repr__(self) -> str:
        return f"<operation {self.name}>"


class Checks:
    """What PyTorch looks at before it looks for a kernel of the dtype, and with `layouts` before one of the layout: check(*args) raises."""

    def __init__(self, check: Callable[..., None], layouts: bool) -> None:
        self.check = check
        self.layouts = layouts

    def __call__(self, op: Operation, args: Sequence[Any]) -> None:
        if local.main.autocast is not None:
            return  # it may cast them first; the body looks at them, too
        for a, kind in zip(args, op.kinds, strict=True):
            if not (hasattr(a, "_meta") or kind not in ("tensor", "tensor?") or (a is None and kind == "tensor?")):
                return
        self.check(*args)


def checked(check: Callable[..., None], layouts: bool = False) -> Callable[[Any], Any]:
    """A decorator of bodies: see `Checks`."""

    def mark(body: Any) -> Any:
        body.checks = Checks(check, layouts)
        return body

    return mark


def operation(
    function: Callable[..., Any] | None = None, *, name: str | None = None, aliases: Sequence[str] = (),
    method: bool = False, inplace: bool = False, out: bool = False, samples: Callable[[], Any] | None = None,
    public: bool | None = None,
) -> Any:  # fmt: skip
    """Make a composition one recorded edge.

    `method`: also a Tensor method. `inplace`: also `name_`. `out`: accepts `out=`. `public`: listed in OPERATIONS, from
    which the torch namespace and the tests are made; by default, unless the body's name starts with an underscore.
    """

    def make(body: Callable[..., Any]) -> Callable[..., Any]:
        record = Operation(body, name or body.__name__, aliases, method, inplace, out, samples)
        if not body.__name__.startswith("_") if public is None else public:
            OPERATIONS[record.name] = record
        return record.function

    return make if function is None else make(function)


def install(namespace: dict[str, Any], tensor_class: type) -> None:
    """Put every public operation (and its aliases) into a namespace, and the methods on the Tensor class."""
    for record in OPERATIONS.values():
        for name in (record.name, *record.aliases):
            namespace.setdefault(name, record.function)
            if record.method and name not in tensor_class.__dict__:
                setattr(tensor_class, name, record.function)
            if record.inplace is not None:
                namespace.setdefault(name + "_", record.inplace)
                if name + "_" not in tensor_class.__dict__:
                    setattr(tensor_class, name + "_", record.inplace)
