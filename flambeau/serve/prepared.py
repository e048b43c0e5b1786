"""A whole call at fixed sizes as its plan: a function is recorded over example inputs, and from then on its plan runs over new inputs without recording.

For programs that are called time and again with inputs of the same shapes (a server's models): what recording asks of each call is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from flambeau.grad_modes import no_grad
from flambeau.trace import recorder
from flambeau.trace.evaluate import flush, synchronize
from flambeau.trace.recorder import Fragment
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.runtime.buffers import Buffer
    from flambeau.tensor import Tensor

_ATTEMPTS: Final = 12  # what it reads besides its examples must be the same twice


class PreparedCall:
    """A plan and its inputs. `run(buffers)`: one Buffer of each result from one of each example, in order; from any thread.

    What the function read besides its examples (parameters) is read where it is: a later write to it is seen, a replacement is not. `results`: the examples'
    results, whose metadata says how the buffers are to be read.
    """

    __slots__ = ("_given", "_order", "_outputs", "_parameters", "_plan", "_run", "_slots", "results")

    def __init__(self, plan: Any, given: list[Any], slots: list[int], outputs: list[int], parameters: list[Any], results: list[Tensor]) -> None:
        self._plan = plan
        self._run = plan.run
        self._given = given
        self._slots = slots
        self._outputs = outputs
        self._parameters = parameters
        self._order = outputs == list(range(len(outputs)))
        self.results = results

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results' buffers. The inputs' must have the bytes that the examples' had."""
        given = self._given.copy()
        for slot, buffer in zip(self._slots, buffers, strict=True):
            if slot >= 0:
                given[slot] = buffer
        made: list[Buffer] = self._run(given, self._parameters)
        return made if self._order else [made[i] for i in self._outputs]


def prepare(function: Callable[..., Sequence[Tensor]], examples: Sequence[Tensor]) -> PreparedCall | None:
    """The plan of `function(*examples)`, which returns tensors; None where one plan is not all of it.

    That is so if it looks at values, calls the host, writes to what it is given, draws random numbers, records gradients, or returns views of its inputs.
    It is called some times over, under no_grad.
    """
    before: list[Any] = []
    with no_grad():
        for _ in range(_ATTEMPTS):
            found = _attempt(function, examples, before)
            if found is not None:
                return found
    return None


def _attempt(function: Callable[..., Sequence[Tensor]], examples: Sequence[Tensor], before: list[Any]) -> PreparedCall | None:
    """`before`: the memory and the numbers that the last attempt read besides its examples. What a call has made for itself (random numbers) is not the same
    the next time, and must not be kept."""
    if isinstance(recorder.local.trace, Fragment):
        return None
    synchronize()
    tr = recorder.local.main
    generation = tr.walk.whole = tr.gen  # never in pieces
    results = list(function(*examples))
    if tr.gen != generation or not tr.tensors:
        synchronize()
        return None
    storages: list[Storage] = list(tr.inputs)
    parameters = list(tr.params)
    state, tensors = tr.state, tr.tensors
    positions: list[int] = []
    for r in results:
        at = [i for i, t in enumerate(tensors) if t is r]
        if not at:
            synchronize()
            return None
        positions.append(at[0])
    plain = not (tr.custom or tr.hooked)
    flush(tr, "preparation")
    plan = next((p for p in state.plans.values() if p.last == generation), None)
    if plan is None or not plain or plan.keep is not None or plan.made_from.calls_host() or plan.made_from.interface.updates:
        return None
    index = dict(plan.assign)
    if any(p not in index for p in positions) or plan.made_from.schedule.returned:
        return None
    if any(r._meta.offset or not r.is_contiguous() or r._meta.bits for r in results):
        return None
    given = [s.buffer for s in storages]
    if any(b is None for b in given):
        return None
    slots: list[int] = []
    for x in examples:
        storage = recorder.storage_of(x)
        found = [i for i, s in enumerate(storages) if s is storage]
        slots.append(found[0] if found else -1)
    kept = [s for i, s in enumerate(storages) if i not in slots] + [(type(p), p) for p in parameters]
    same = len(kept) == len(before) and all(a is b or (type(a) is tuple and a == b) for a, b in zip(kept, before, strict=True))
    before[:] = kept
    if kept and not same:
        return None
    if len({s for s in slots if s >= 0}) != sum([s >= 0 for s in slots]):
        return None  # two examples share memory
    return PreparedCall(plan, given, slots, [index[p] for p in positions], parameters, results)
