"""Plans over symbols that together hold for the sizes of a program: each is made at some sizes, and its guards say where else it holds.

A guard may shut out sizes for which the plan is right all the same: `batch == 64` is asked where a layer has 64 channels. So a plan made at such sizes is
compared, number by number, with what an earlier one gives there; where they agree the earlier one takes these sizes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, TypeVar

from flambeau.compiler.kernel import Address, ErrorRecord, Function, Kernel, Scratch, Table
from flambeau.compiler.objects import texts
from flambeau.compiler.pipeline import compile_graph
from flambeau.compiler.plan import Plan
from flambeau.deploy.errors import BuildError
from flambeau.deploy.record import Recorded, record
from flambeau.export.program import ExportedProgram
from flambeau.runtime.target import Target
from flambeau.symbols import Code, at_sizes, reaches
from flambeau.trace.while_set import while_set

MOST: Final = 32  # plans of one library; a small GPT with two dynamic sizes has 28 where there is a matrix unit
SINGLE: Final = 4096  # values of a single symbol that are looked at one by one
LOOKED_AT: Final = 4096  # combinations of several
# Sizes at which plans are made first: no layer has them by chance, and from small to large.
_FIRST: Final = (61, 7, 509, 2, 1, 3, 5, 13, 4099, 31)

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Symbol:
    """A dynamic size of the program: `number` of its symbol, where it is met first, and the values for which the program holds."""

    number: int
    name: str
    place: str  # "dim 0 of input x"
    lower: int
    upper: int


@dataclass(kw_only=True)
class Planned:
    """A plan over symbols. `guards`: (operator, left, right, answer); `also`: sizes that they shut out, for which it was found right."""

    recorded: Recorded
    made_at: Sizes
    guards: list[tuple[str, Any, Any, bool]]
    holds: Callable[[Sizes], Any]
    also: list[Sizes] = field(default_factory=list)

    @property
    def parts(self) -> str:
        """How much there is, for people."""
        raise NotImplementedError

    def covers(self, sizes: Sizes) -> bool:
        """Whether it is right at these sizes."""
        return sizes in self.also or self.holds(sizes) is not None


@dataclass(kw_only=True)
class Variant(Planned):
    """A plan of kernels, and their texts."""

    plan: Plan
    texts: dict[str, str]

    @property
    def parts(self) -> str:
        """How much there is, for people."""
        return f"{len(self.plan.steps)} kernels"


def make(program: ExportedProgram, sizes: Sizes, target: Target) -> Variant:
    """The plan of a program over its symbols, decided at these sizes. BuildError if there is none without Python."""
    recorded = record(program, sizes)
    rec = recorded.recording

    def compiled() -> tuple[Plan, dict[str, str]]:
        plan = compile_graph(recorded.graph, target=target, over_symbols=True)
        return plan, {} if plan.calls_host() else texts(plan)

    plan, written = while_set(rec, "texts", True, compiled)
    if plan.calls_host():
        names = sorted({str(getattr(s, "name", s)) for s in plan.steps if not isinstance(s, Kernel)})
        raise BuildError(f"the program calls {', '.join(names)}, which NumPy computes: a library has no Python; take it out of the model")
    guards, holds = guards_of(recorded, sizes)
    return Variant(recorded=recorded, plan=plan, made_at=tuple(sizes), texts=written, guards=guards, holds=holds)


def guards_of(recorded: Recorded, sizes: Sizes) -> tuple[list[tuple[str, Any, Any, bool]], Callable[[Sizes], Any]]:
    """The questions that decided a plan, and a function of sizes that gives None where one has another answer."""
    guards = list(recorded.recording.guards.values())
    code = Code()
    later = [g for g in guards if reaches(g[1], len(sizes)) or reaches(g[2], len(sizes))]
    if later:
        raise BuildError(f"a plan asks where its blocks lie in memory: {later[0]}")
    code.check(guards)
    return guards, code.function("True")


V = TypeVar("V", bound=Planned)


def cover(
    symbols: Sequence[Symbol], make: Callable[[Sizes], V], agree: Callable[[V, V, Sizes], bool], report: Callable[[str], None]
) -> list[V]:  # fmt: skip
    """Plans that together hold for all sizes that were looked at; BuildError if more than `MOST` would be wanted. `make`: a plan decided at sizes;
    `agree`: whether two of them are the same at sizes."""
    if not symbols:
        return [make(())]
    found: list[V] = []
    for sizes in _candidates(symbols):
        if any(v.covers(sizes) for v in found):
            continue
        new = make(sizes)
        for known in found:
            if agree(known, new, sizes):
                known.also.append(sizes)
                break
        else:
            found.append(new)
            if len(found) > MOST:
                raise BuildError(
                    f"the program would want more than {MOST} plans for the sizes {', '.join(f'{s.name} from {s.lower} to {s.upper}' for s in symbols)}: "
                    "export it with narrower ranges (Dim(..., min=..., max=...)), or with fewer dynamic sizes")  # fmt: skip
            report(f"plan {len(found)}, made at {_named(symbols, sizes)}: {new.parts}")
    return found


def _named(symbols: Sequence[Symbol], sizes: Sizes) -> str:
    return ", ".join([f"{s.name} = {n}" for s, n in zip(symbols, sizes, strict=True)])


def _candidates(symbols: Sequence[Symbol]) -> Iterator[Sizes]:
    """Sizes at which there must be a plan, those that are typical first: all values of one symbol, or many combinations of several."""
    of_each: list[list[int]] = []
    few = len(symbols) > 1
    for s in symbols:
        typical = [n for n in _FIRST if s.lower <= n <= s.upper] or [s.lower]
        near = [n for p in range(1, 32) for n in (2**p - 1, 2**p, 2**p + 1)] if few else range(s.lower, min(s.upper, s.lower + SINGLE - 1) + 1)
        far = [] if few else [n for p in range(12, 32) for q in range(8) for n in (2**p + q * 2 ** (p - 3),)]
        more = [n for n in (*near, *far, s.upper, s.lower) if s.lower <= n <= s.upper]
        of_each.append(list(dict.fromkeys([*typical, *more])))
    if not few:
        yield from [(n,) for n in of_each[0]]
        return
    order = sorted(product(*[range(min(len(x), 24)) for x in of_each]), key=lambda at: (sum(at), at))[:LOOKED_AT]
    yield from [tuple([x[i] for x, i in zip(of_each, at, strict=True)]) for at in order]


def agree(known: Variant, new: Variant, sizes: Sizes) -> bool:
    """Whether two plans are the same at these sizes: the same kernels with the same words, in the same order, over blocks with the same lives."""
    a, b = known.plan, new.plan
    if len(a.steps) != len(b.steps) or a.phases != b.phases or len(a.placement.lives) != len(b.placement.lives):
        return False
    return _numbers(known, sizes) == _numbers(new, sizes)


def _numbers(variant: Variant, sizes: Sizes) -> Any:
    plan, placement = variant.plan, variant.plan.placement
    lives = at_sizes(sizes)(placement.lives)
    plain = at_sizes((*sizes, *range(0, -len(lives) - 1, -1)))  # a block's offset: a name for it
    steps = []
    for step, place in zip(plan.steps, plan.places, strict=True):
        assert isinstance(step, Kernel)
        words: list[Any] = []
        for at, word in enumerate(step.words):
            if isinstance(word, Address):
                kind, where = placement.places[word.value]
                words.append(("address", kind, plain(where), plain(plan.schedule.inside.get(word.value, 0)), plain(word.offset)))
            elif isinstance(word, Scratch):
                words.append(("scratch", plain(placement.scratch[place, at])))
            elif isinstance(word, ErrorRecord):
                words.append("record")
            elif isinstance(word, Function):
                words.append(word.key)
            elif isinstance(word, Table):
                words.append(word)
            else:
                words.append(plain(word))
        steps.append((step.key, words, plain(step.units)))
    return lives, steps
