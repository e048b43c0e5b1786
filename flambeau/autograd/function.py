"""autograd.Function: operations whose gradient is user code. Its results are cut points of the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from flambeau.autograd import fitting
from flambeau.autograd.function_results import Result, check_written, saved_results, write_again
from flambeau.autograd.hooks import packed_by
from flambeau.trace.objects import is_view
from flambeau.trace.once import warn_here
from flambeau.trace.programs import program_of
from flambeau.trace.recorder import Fragment, Trace, local
from flambeau.trace.saved_hooks import saved
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


class FunctionCtx:
    """What forward leaves for backward. `needs_input_grad`: for each argument, whether a gradient is wanted."""

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self._versions: tuple[int, ...] = ()
        self._for_forward: tuple[Any, ...] | None = None
        self._non_differentiable: set[int] = set()
        self._dirty: tuple[Any, ...] = ()
        self._materialize = True
        self._materialize_non_diff_grads = True
        self.needs_input_grad: tuple[bool, ...] = ()
        # the engine's part
        self.output_slots: list[int | None] = []  # None: a result without gradients
        self.input_slots: list[int | None] = []
        self._function: type[Function]
        self._output_metas: list[Any] = []
        self._given: list[int] = []  # which arguments are tensors
        self._positions: list[int] = []  # which of them need a gradient
        self._input_metas: list[Any] = []  # of those arguments
        self._takes: list[Any] | None = None  # where tensors stand for others (DTensor): what makes backward's gradients of the local ones
        self._gives: list[Any] | None = None  # and what makes local ones of those that it returns
        self._freed = False
        self._unpack: Any = None
        self._in_jvp = False
        self._owner: Any = None  # while backward runs: the segment that it is in
        self._views: set[int] = set()  # of the output slots: those of views, and of inputs that forward returns as they are
        self.written: set[int] = set()  # of the output slots: what an input that was written in place has got

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; changing them in place before it is an error."""
        self._saved = tensors
        self._versions = tuple(-1 if t is None else t._version for t in tensors)
        if saved:  # autograd.graph.saved_tensors_hooks
            pack, self._unpack = saved[-1]
            self._saved = tuple(None if t is None else packed_by(pack, t) for t in tensors)

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for jvp."""
        self._for_forward = tensors

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """saved_tensors under its older name."""
        warn_here("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors given to save_for_backward; in jvp, those given to save_for_forward. One that is a result has the function behind it, as the result."""
        if self._in_jvp:
            return self._for_forward or ()
        if self._freed:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
                "been freed). Specify retain_graph=True if you need to backward through the graph a second time."
            )
        if self._unpack is not None:
            return tuple(None if v < 0 and p is None else self._unpack(p) for p, v in zip(self._saved, self._versions, strict=True))
        for kept, version in zip(self._saved, self._versions, strict=True):
            t = kept.value if type(kept) is Result else kept
            if t is not None and t._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{t.dtype!r} {list(t.shape)}] is at version {t._version}; expected version {version} instead."
                )
        return tuple([kept.tensor(self) if type(kept) is Result else kept for kept in self._saved])

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """These results never require gradients."""
        self._non_differentiable = {id(t) for t in tensors}

    def mark_dirty(self, *tensors: Tensor) -> None:
        """These inputs were modified in place by forward, which returns them: the function is in their history from then on."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros instead of None for results that were not used."""
        self._materialize = value

    def run_backward(self, grads: Sequence[Any], retain: bool, create: bool, owner: Any = None) -> list[Any]:
        """Call the user's backward; returns a gradient for each tensor input of the engine's `input_slots`. `owner`: the segment that this is in."""
        from flambeau.ops.creation import zeros

        if self._materialize:
            wanted = [
                m if slot is not None or self._materialize_non_diff_grads else None for m, slot in zip(self._output_metas, self.output_slots, strict=True)
            ]
            grads = [zeros(tuple(m.shape), dtype=m.dtype) if g is None and m is not None else g for g, m in zip(grads, wanted, strict=True)]
        if self._takes is not None:
            grads = [g if take is None or g is None else take(g) for g, take in zip(grads, self._takes, strict=True)]
        results = while_set(self, "_owner", owner, pullback_of(self._function), self, *grads)
        if not isinstance(results, tuple):
            results = (results,)
        count = len(self.needs_input_grad)
        while len(results) > count and results[-1] is None:
            results = results[:-1]
        if len(results) != count:
            raise RuntimeError(f"function {self._function.__name__}Backward returned an incorrect number of gradients (expected {count}, got {len(results)})")
        if not (retain or create):
            self._freed, self._saved, self._versions = True, (), ()  # they may hold the history that holds this context
        if self._gives is not None:
            for p, give in zip(self._positions, self._gives, strict=True):
                if give is not None and results[p] is not None:
                    results = (*results[:p], give(results[p]), *results[p + 1 :])
        name = f"{self._function.__name__}Backward"
        return [fitting.gradient(name, p, results[p], m) for p, m in zip(self._positions, self._input_metas, strict=True)]


class Function:
    """Subclass with static methods `forward(ctx, *args)` (or `forward(*args)` and `setup_context(ctx, inputs, output)`) and
    `backward(ctx, *grads)`, which returns a gradient (or None) for each argument of forward. Call it by `apply`.

    For torch.func: `vmap(info, in_dims, *args)` returns (output, out_dims), or `generate_vmap_rule = True` asks for a rule made of the
    other methods; `jvp(ctx, *tangents)` returns the tangents of the results.
    """

    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The operation."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Its gradients."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function.")

    # the same under the name that goes with jvp: one of the two is the subclass's
    vjp = backward

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Leave in `ctx` what backward needs: for a forward that takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the results for those of the arguments (None: zero)."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """(output, out_dims) for arguments with a batch at `in_dims`."""
        raise NotImplementedError("To use autograd.Function with vmap, you must either override the vmap staticmethod or set generate_vmap_rule=True.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward without recording it for gradients, and hang the user's backward on its results."""
        if type(local.trace) is not Trace and not isinstance(local.trace, Fragment):
            return local.trace.custom_function(cls, args, kwargs)
        return cls._apply(args, kwargs)[0]

    @classmethod
    def _apply(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, FunctionCtx]:
        """(what apply returns, the context)."""
        from flambeau.grad_modes import no_grad
        from flambeau.tensor import Tensor

        tr = local.trace
        if isinstance(tr, Fragment):
            raise RuntimeError("an operation's body must not call a custom autograd.Function")
        ctx = FunctionCtx()
        ctx._function = cls
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        track = tr.grad_enabled and any(ctx.needs_input_grad)
        with no_grad():
            if cls.setup_context is not Function.setup_context:
                args, kwargs = with_defaults(cls.forward, args, kwargs)
                ctx.needs_input_grad += (False,) * (len(args) - len(ctx.needs_input_grad))
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args, **kwargs)
        single = not isinstance(output, (tuple, list))
        outputs = [output] if single else list(output)
        if ctx._dirty:
            check_written(cls.__name__, ctx._dirty, args, outputs, track)
        if not track:
            return output, ctx
        program = program_of(f"{cls.__name__}, a torch.autograd.Function,", args)
        if program is not None:
            made = program.custom_function(cls, ctx, args, outputs)
            return made[0] if single else tuple(made), ctx
        results: list[Any] = []
        tr = local.trace
        ctx._given = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx._positions = [i for i, needs in enumerate(ctx.needs_input_grad) if needs]
        ctx._input_metas = [args[i]._meta for i in ctx._positions]

        def record() -> None:
            ctx.input_slots = [_slot(tr, args[i]) for i in ctx._positions]
            last = {id(t): i for i, t in enumerate(outputs)}
            written: list[tuple[Any, Any]] = []
            for i, t in enumerate(outputs):
                tensor = isinstance(t, Tensor)
                slot = None
                made = t
                if last[id(t)] != i:
                    made = None  # the same object as a later result, by which its gradient comes
                elif tensor and (t.dtype.is_floating_point or t.dtype.is_complex) and id(t) not in ctx._non_differentiable:
                    if any(t is d for d in ctx._dirty):
                        written.append((t, _rooted(t.detach().clone())))
                        slot = written[-1][1]._slot
                        ctx.written.add(slot)
                    else:
                        made = _rooted(t._plain())
                        slot = made._slot
                        if is_view(t) or any(t is a for a in args):
                            ctx._views.add(slot)
                            made._view = True
                    tr.custom[slot] = ctx
                results.append(made)
                ctx.output_slots.append(slot)
                ctx._output_metas.append(t._meta if tensor else None)
            for i, t in enumerate(outputs):
                results[i] = results[last[id(t)]]
            if written:  # after all that the function is behind: its backward is called once, when the gradients of all have come
                write_again(ctx, written)

        tr.holding(record)
        if any(type(a) is not Tensor and hasattr(a, "_for_gradients") for a in (*args, *outputs)):
            ctx._takes = [t._for_gradients()[0] if hasattr(t, "_for_gradients") else None for t in outputs]
            ctx._gives = [args[i]._for_gradients()[1] if hasattr(args[i], "_for_gradients") else None for i in ctx._positions]
        for i, t in enumerate(outputs):
            if type(t) is not Tensor and results[i] is not t and type(results[i]) is Tensor:
                results[i] = _of_class(t, results[i])
        if ctx._saved and ctx._unpack is None:
            ctx._saved = saved_results(ctx._saved, outputs, results, ctx.output_slots)
        return (results[0] if single else type(output)(results) if isinstance(output, list) else tuple(results)), ctx


def pullback_of(function: type[Function]) -> Any:
    """The function's backward, or vjp; RuntimeError if it has both."""
    if function.vjp is Function.vjp:
        return function.backward
    if function.backward is not Function.backward:
        raise RuntimeError(
            f"Implementing both 'backward' and 'vjp' for a custom Function is not allowed: {function.__name__} has both. You should only implement one of them."
        )
    return function.vjp


def with_defaults(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a forward without ctx, with what it has for those that are not given: setup_context gets them all."""
    try:
        bound = signature(forward).bind(*args, **kwargs)
    except (TypeError, ValueError):  # the call itself says what is wrong
        return args, kwargs
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _slot(tr: Any, t: Tensor) -> int:
    return tr.slot_of(t._plain())  # type: ignore[no-any-return]


def _rooted(t: Tensor) -> Tensor:
    """An alias of `t` that requires gradients although no recorded node leads to it: the custom node does."""
    from flambeau.trace.recorder import mark_custom

    return mark_custom(t)


def _of_class(t: Tensor, plain: Tensor) -> Tensor:
    """A tensor as the object of a subclass that `t` is, with its attributes."""
    from flambeau.ops.dispatch import DisableTorchFunctionSubclass

    with DisableTorchFunctionSubclass():
        made = plain.as_subclass(type(t))
    made.__dict__.update(t.__dict__)
    return made


class _Once(Function):
    """The identity, which refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, result: Any, *grads: Any) -> Any:
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(function: Any) -> Any:
    """Decorator of backward: its gradients are not differentiable again (RuntimeError)."""

    def wrapped(ctx: Any, *grads: Any) -> Any:
        from flambeau.grad_modes import no_grad
        from flambeau.tensor import Tensor

        with no_grad():
            results = function(ctx, *grads)
        wanted = [g for g in grads if isinstance(g, Tensor) and g.requires_grad]
        if not wanted or not local.trace.grad_enabled:
            return results
        if not isinstance(results, tuple):
            return _Once.apply(results, *wanted)
        return tuple([_Once.apply(r, *wanted) if isinstance(r, Tensor) else r for r in results])

    return wrapped


FunctionMeta = type(Function)
InplaceFunction = Function
