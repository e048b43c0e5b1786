"""Hooks of a Module: registration, and the slow call that runs them.

A module without hooks never comes here: `Module.__call__` tests one flag, `_call_hooks`, which registration sets (on the
instance, or on the class `Module` for the global hooks).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.autograd.hooks import RemovableHandle
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

Hook = Callable[..., Any]


def register(hooks: OrderedDict[int, Hook], hook: Hook, marks: Sequence[OrderedDict[int, bool]], prepend: bool) -> RemovableHandle:
    """Add `hook`; its id is also noted in each of `marks`."""
    handle = RemovableHandle(hooks, extra_dict=marks)
    hooks[handle.id] = hook
    for mark in marks:
        mark[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class _Global:
    """Hooks that run for every module."""

    def __init__(self) -> None:
        self.forward_pre: OrderedDict[int, Hook] = OrderedDict()
        self.forward: OrderedDict[int, Hook] = OrderedDict()
        self.with_kwargs: OrderedDict[int, bool] = OrderedDict()
        self.always: OrderedDict[int, bool] = OrderedDict()
        self.backward_pre: OrderedDict[int, Hook] = OrderedDict()
        self.backward: OrderedDict[int, Hook] = OrderedDict()
        self.buffers: OrderedDict[int, Hook] = OrderedDict()  # the last three run when something is registered
        self.modules: OrderedDict[int, Hook] = OrderedDict()
        self.parameters: OrderedDict[int, Hook] = OrderedDict()


EVERY: Final = _Global()


class HookMixin:
    """The `register_*_hook` methods of Module, and the call that runs the hooks."""

    forward: Callable[..., Any]
    _call_hooks = False
    _forward_pre_hooks: OrderedDict[int, Hook]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Hook]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _backward_pre_hooks: OrderedDict[int, Hook]
    _backward_hooks: OrderedDict[int, Hook]
    _is_full_backward_hook: bool | None

    def register_forward_pre_hook(self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Run `hook(module, args)` (or `hook(module, args, kwargs)`) before each forward; it may return new arguments."""
        self._call_hooks = True
        marks = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return register(self._forward_pre_hooks, hook, marks, prepend)

    def register_forward_hook(self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
        """Run `hook(module, args[, kwargs], output)` after each forward; it may return another output.

        With `always_call` it runs also when forward raises.
        """
        self._call_hooks = True
        marks = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            marks.append(self._forward_hooks_always_called)
        return register(self._forward_hooks, hook, marks, prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_output)` before the module's gradients are computed; it may return new ones."""
        self._call_hooks = True
        return register(self._backward_pre_hooks, hook, [], prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output)` when the gradients of the inputs are known; it may return new ones."""
        if self._is_full_backward_hook is False:
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them.")
        self._call_hooks = True
        self._is_full_backward_hook = True
        return register(self._backward_hooks, hook, [], prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """The old name; it registers a full backward hook (docs/differences.md)."""
        return self.register_full_backward_hook(hook)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result: Any = None
        ran: set[int] = set()
        forward_hooks = [*EVERY.forward.items(), *self._forward_hooks.items()]

        def after(identity: int, hook: Hook) -> Any:
            if identity in self._forward_hooks_with_kwargs or identity in EVERY.with_kwargs:
                return hook(self, args, kwargs, result)
            return hook(self, args, result)

        try:
            for identity, hook in (*EVERY.forward_pre.items(), *self._forward_pre_hooks.items()):
                if identity in self._forward_pre_hooks_with_kwargs:
                    changed = hook(self, args, kwargs)
                    if changed is not None:
                        if not (isinstance(changed, tuple) and len(changed) == 2):
                            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                        args, kwargs = changed
                else:
                    changed = hook(self, args)
                    if changed is not None:
                        args = changed if isinstance(changed, tuple) else (changed,)
            backward = BackwardHooks(
                self,
                [*EVERY.backward.values(), *self._backward_hooks.values()],
                [*EVERY.backward_pre.values(), *self._backward_pre_hooks.values()],
            )
            if backward.needed:
                args = backward.wrap_inputs(args)
            result = self.forward(*args, **kwargs)
            for identity, hook in forward_hooks:
                ran.add(identity)
                changed = after(identity, hook)
                if changed is not None:
                    result = changed
            if backward.needed:
                result = backward.wrap_output(result)
            return result
        except Exception:
            for identity, hook in forward_hooks:
                always = identity in self._forward_hooks_always_called or identity in EVERY.always
                if always and identity not in ran:
                    try:
                        changed = after(identity, hook)
                        if changed is not None:
                            result = changed
                    except Exception as error:
                        warn_here(
                            "module forward hook with ``always_call=True`` raised an exception that was silenced as "
                            f"another error was raised in forward: {error}",
                        )
            raise


class BackwardHooks:
    """The backward hooks of one call: an identity function round the inputs, and one round the outputs."""

    def __init__(self, module: HookMixin, hooks: list[Hook], pre_hooks: list[Hook]) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.needed = bool(hooks or pre_hooks)
        self.grad_output: tuple[Any, ...] | None = None
        self.inputs_wrapped = False
        self.input_count = 0
        self.input_positions: list[int] = []

    def wrap_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.input_count = len(args)
        self.input_positions = positions
        if not any(args[i].requires_grad for i in positions):
            return args
        self.inputs_wrapped = True
        return self._wrap(args, positions, self._at_inputs)

    def wrap_output(self, result: Any) -> Any:
        single = isinstance(result, Tensor)
        if not single and not isinstance(result, tuple):
            warn_here(
                f"For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received {type(result)}",
            )
            return result
        outputs = (result,) if single else result
        positions = [i for i, a in enumerate(outputs) if isinstance(a, Tensor)]
        if not any(outputs[i].requires_grad for i in positions):
            return result
        self.output_positions = positions
        self.output_count = len(outputs)
        wrapped = self._wrap(outputs, positions, self._at_outputs)
        return wrapped[0] if single else wrapped

    def _wrap(self, values: tuple[Any, ...], positions: list[int], at: Callable[..., Any]) -> tuple[Any, ...]:
        new = _boundary().apply(at, *[values[i] for i in positions])
        replaced = list(values)
        for i, t in zip(positions, new if isinstance(new, tuple) else (new,), strict=True):
            replaced[i] = t
        return type(values)(*replaced) if hasattr(values, "_fields") else tuple(replaced)

    @staticmethod
    def _spread(grads: Sequence[Any], positions: list[int], count: int) -> tuple[Any, ...]:
        full: list[Any] = [None] * count
        for i, g in zip(positions, grads, strict=True):
            full[i] = g
        return tuple(full)

    def _at_outputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_output = self._spread(grads, self.output_positions, self.output_count)
        for hook in self.pre_hooks:
            changed = hook(self.module, grad_output)
            if changed is not None:
                changed = changed if isinstance(changed, tuple) else (changed,)
                if len(changed) != len(grad_output):
                    raise RuntimeError(f"Backward pre hook returned an invalid number of grad_output, got {len(changed)}, but expected {len(grad_output)}")
                grad_output = changed
        self.grad_output = grad_output
        if not self.inputs_wrapped and self.hooks:  # no input asks for a gradient: this is the last that is seen of the module
            warn_here(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require gradients. See "
                "torch.nn.Module.register_full_backward_hook for more details.",
            )  # fmt: skip
            for gradient in self._run((None,) * self.input_count):
                if gradient is not None:
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or None for all gradients.")
        return tuple(grad_output[i] for i in self.output_positions)

    def _at_inputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.grad_output is None:  # a pass that has not come through the module's outputs: of gradients of gradients, say
            return grads
        full = self._run(self._spread(grads, self.input_positions, self.input_count))
        return tuple(full[i] for i in self.input_positions)

    def _run(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.hooks:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                changed = changed if isinstance(changed, tuple) else (changed,)
                if len(changed) != len(grad_input):
                    raise RuntimeError(f"Backward hook returned an invalid number of grad_input, got {len(changed)}, but expected {len(grad_input)}")
                grad_input = changed
        self.grad_output = None
        return grad_input


def _boundary() -> Any:
    """The identity function whose backward calls `at(gradients)`; made once autograd is there."""
    global _BOUNDARY
    if _BOUNDARY is None:
        from flambeau.autograd import Function

        class ModuleBoundary(Function):  # type: ignore[misc, unused-ignore]
            @staticmethod
            def forward(ctx: Any, at: Callable[..., Any], *tensors: Tensor) -> tuple[Tensor, ...]:
                ctx.at = at
                made = tuple([t.view_as(t) for t in tensors])
                ctx.mark_non_differentiable(*[m for m, t in zip(made, tensors, strict=True) if not t.requires_grad])
                return made

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
                return (None, *ctx.at(grads))

        _BOUNDARY = ModuleBoundary
    return _BOUNDARY


_BOUNDARY: Any = None


def _for_every_module(table: OrderedDict[int, Hook], hook: Hook, marks: Sequence[OrderedDict[int, bool]] = ()) -> RemovableHandle:
    HookMixin._call_hooks = True
    return register(table, hook, marks, False)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, args)` before every module's forward."""
    return _for_every_module(EVERY.forward_pre, hook)


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Run `hook(module, args[, kwargs], output)` after every module's forward."""
    marks = [EVERY.with_kwargs] if with_kwargs else []
    return _for_every_module(EVERY.forward, hook, [*marks, EVERY.always] if always_call else marks)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, grad_output)` before every module's backward."""
    return _for_every_module(EVERY.backward_pre, hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output)` after every module's backward."""
    return _for_every_module(EVERY.backward, hook)


def registered(hooks: OrderedDict[int, Hook], module: Any, name: str, value: Any) -> Any:
    """What is registered in the place of `value`, after the hooks of registration."""
    for hook in hooks.values():
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, name, buffer)` whenever a buffer is registered; it may return another."""
    return register(EVERY.buffers, hook, (), False)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, name, submodule)` whenever a child is registered; it may return another."""
    return register(EVERY.modules, hook, (), False)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, name, parameter)` whenever a parameter is registered; it may return another."""
    return register(EVERY.parameters, hook, (), False)


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """The old name; it registers a full backward hook (docs/differences.md)."""
    return register_module_full_backward_hook(hook)
