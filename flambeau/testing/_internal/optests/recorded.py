"""An operator recorded without values, forward and backward, and run again: the same results and gradients, or the recording is not the operator."""

from __future__ import annotations

from functools import partial
from typing import Any

from flambeau import operator_shapes
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.autograd import grad as gradients
from flambeau.autograd.function import Function, FunctionCtx
from flambeau.library import CustomOpDef
from flambeau.operator_gradients import inputs, set_up
from flambeau.random import fork_rng, manual_seed
from flambeau.tensor import Tensor
from flambeau.testing import assert_close
from flambeau.testing._internal.optests.fake_tensor import fake_of, results_without_values
from flambeau.testing._internal.optests.sharing import tensors
from flambeau.utils._pytree import tree_leaves, tree_map

_RESULTS = (
    "Outputs of the operator are different when it is called and when it is recorded and run again: it depends on more than its arguments, "
    "or what it does cannot be recorded."
)
_GRADIENTS = (
    "Gradients of the operator are different when it is called and when its backward is recorded and run again: its backward depends on more "
    "than its arguments, or is registered wrongly, or cannot be recorded."
)


class Tape(FakeTensorMode):  # type: ignore[misc]
    """Fake tensors that write down what is done to them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """As FakeTensorMode, and written down."""
        result = super().dispatch(func, args, kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    def play(self, known: dict[int, Any], wanted: Any) -> Any:
        """Do it again with the tensors that `known` has for fake ones, by their ids; what it has for the `wanted` ones in the end."""

        def real(x: Any) -> Any:
            return known[id(x)] if isinstance(x, FakeTensor) else x

        for func, args, kwargs, result in self.calls:
            made = func(*tree_map(real, tuple(args)), **tree_map(real, kwargs))
            for fake, one in zip(tree_leaves(result), tree_leaves(made), strict=True):
                known[id(fake)] = one
        return tree_map(real, wanted)


def recorded_check(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, rtol: float | None = None, atol: float | None = None) -> None:
    """Call the operator, record it without values, run the recording, and compare: AssertionError. What cannot be recorded raises what it raises.

    Sizes are those of the arguments. Where a result's size depends on values its backward is recorded and not run again.
    """
    close = assert_close if rtol is None else partial(assert_close, rtol=rtol, atol=atol)
    wanted = [t for t in tensors((args, kwargs)) if t.requires_grad]
    copies = {id(t): t.clone() for t in tensors((args, kwargs))}

    def fresh() -> tuple[Any, Any]:
        return tree_map(lambda x: copies[id(x)].clone() if isinstance(x, Tensor) else x, (args, kwargs))  # type: ignore[no-any-return]

    given = fresh()
    result = _seeded(op, *given)
    graded = bool(wanted) and any(t.requires_grad for t in tensors(result))
    expected = _backward(result, wanted) if graded else None
    definition = op._function
    again = fresh()
    if isinstance(definition, CustomOpDef) and not definition._composite:
        second, by_place = _opaque(op, definition, again, result, graded)
        found = None
        if by_place is not None:
            found = [by_place.get(i) for i, t in enumerate(tensors((args, kwargs))) if t.requires_grad]
    else:
        tape = Tape()
        fakes = tree_map(lambda x: fake_of(tape, x), again)
        with tape:
            said = op(*fakes[0], **fakes[1])
        known = {id(f): t for f, t in zip(tensors(fakes), tensors(again), strict=True)}
        with fork_rng():
            manual_seed(42)
            second = tape.play(known, said)
        found = _backward(second, wanted) if graded else None
    try:
        close(second, result)
    except AssertionError as error:
        raise AssertionError(f"{_RESULTS}\n{error}") from error
    if expected is None or found is None:
        return
    try:
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    except AssertionError as error:
        raise AssertionError(f"{_GRADIENTS}\n{error}") from error


def _seeded(op: Any, args: Any, kwargs: Any) -> Any:
    with fork_rng():
        manual_seed(42)
        return op(*args, **kwargs)


def _backward(result: Any, wanted: list[Tensor]) -> list[Any]:
    """Gradients of the sum of the absolute values of the results' sums."""
    total = sum(t.sum().abs() for t in tensors(result) if t.requires_grad)
    return list(gradients(total, wanted, allow_unused=True))


def _opaque(op: Any, definition: CustomOpDef, given: tuple[Any, Any], result: Any, graded: bool) -> tuple[Any, dict[int, Any] | None]:
    """(the results, gradients by the place of their tensor among the arguments' tensors) of a recording in which the operator is one call."""
    tape = Tape()
    fakes = tree_map(lambda x: fake_of(tape, x), given)
    said, free = results_without_values(definition, tape, *fakes)
    tape.calls.clear()  # of the shapes: in the recording the operator itself is called
    with fork_rng():
        manual_seed(42)
        second = definition(*given[0], **given[1])
    if not graded:
        return second, None
    positions, keywords = inputs(definition, *fakes)
    user = definition._outer.get("Autograd")
    if user is None and definition._backward is None:
        raise RuntimeError(f"{op}: its results require gradients, and those of its function without values do not: no gradient is registered for it")
    ctx = FunctionCtx()
    needs = {id(f): t.requires_grad for f, t in zip(tensors(fakes), tensors(given), strict=True)}
    with tape, operator_shapes.context(operator_shapes.FakeImplCtx(definition._name, lambda low, _: max(low, 7))):
        if user is None:
            ctx.needs_input_grad = tuple(tree_map(lambda x: needs.get(id(x), False), list(positions)))
            set_up(definition, ctx, positions, keywords, said)
            backward: Any = definition._backward
        else:
            cls = getattr(user, "__self__", None)
            if not (isinstance(cls, type) and issubclass(cls, Function)):
                return second, None  # a function of any form: it has no backward of its own to record
            said, ctx = cls._apply(*fakes)
            ctx.needs_input_grad = tuple([needs.get(id(x), False) for x in fakes[0]])
            backward = cls.backward
        outputs = list(said) if isinstance(said, (tuple, list)) else [said]
        tangents = [fake_of(tape, t.detach()) if isinstance(t, Tensor) else None for t in (result if isinstance(result, (tuple, list)) else [result])]
        tangents = [tangents] if isinstance(result, list) else tangents
        back = backward(ctx, *tangents)
    if any(free):
        return second, None
    known = {id(f): t.detach() for f, t in zip(tensors(fakes), tensors(given), strict=True)}
    known |= {id(f): t.detach() for f, t in zip(tensors(outputs), tensors(second), strict=True)}
    for fake, t in zip(tensors(tangents), tensors(second), strict=True):
        known[id(fake)] = t.detach().sum().sgn().expand(t.shape).contiguous()
    played = tape.play(known, back)
    row = tree_leaves([played] if not isinstance(played, tuple) else list(played))
    places = {id(t): i for i, t in enumerate(tensors(fakes))}
    whole = tree_leaves(list(positions))
    return second, {places[id(x)]: g for x, g in zip(whole, row, strict=False) if id(x) in places}
