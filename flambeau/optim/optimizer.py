"""The base of all optimizers: parameter groups, state, state_dict in PyTorch's format, hooks, and the frame of a step.

A subclass says in `_update` what one group's step is. It calls an update function that is one recorded edge over the lists of
parameters, gradients and states and returns their new values, which `assign` writes in place. Counts of steps are tensors that lie beside it (counts.py).
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import deepcopy
from struct import pack, unpack
from typing import Any, Final, TypeVar, cast

import flambeau as torch
from flambeau.foreign import refuse
from flambeau.grad_modes import is_grad_enabled, switch
from flambeau.module_names import is_ours
from flambeau.nn.functional.engine import overwrite
from flambeau.nn.modules.hooks import Hook, RemovableHandle, register
from flambeau.nn.modules.module import clear_grad
from flambeau.ops.creation import fills
from flambeau.ops.registry import Number as Number
from flambeau.ops.registry import operation
from flambeau.optim.counts import Counts, count, counts_of, kept_dtype
from flambeau.tensor import Tensor
from flambeau.trace.evaluate import step_boundary
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import Trace, local
from flambeau.trace.tiers import in_pieces
from flambeau.trace.while_set import while_set, while_switched
from flambeau.tracebacks import shorten

ParamsT = Iterable[Any]
Body = TypeVar("Body", bound=Callable[..., Any])
Group = dict[str, Any]


PART: Final = 128  # parameters that are updated at once, where there are twice as many: a plan for so many takes 0.2 s to make


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def update(body: Body) -> Body:
    """Make a function over lists of tensors one recorded edge; it returns the new values as one flat list, for each parameter as many.

    Complex numbers are pairs of real ones to it, as in PyTorch; 16 bits are computed in float32 and rounded once.
    """

    @functools.wraps(body)
    def of_reals(*args: Any) -> Any:
        first = args[0]
        kinds = {t.dtype for a in args if _holds_tensors(a) for t in a}
        if len(kinds) == 1 and kinds <= {torch.float16, torch.bfloat16}:
            (kind,) = kinds
            return [new.to(kind) for new in body(*[[t.to(torch.float32) for t in a] if _holds_tensors(a) else a for a in args])]
        if isinstance(first, Tensor) or not any(t.is_complex() for t in first):
            return body(*args)
        pairs = [[torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in a] if _holds_tensors(a) else a for a in args]
        return [_complex(new) if first[i % len(first)].is_complex() else new for i, new in enumerate(body(*pairs))]

    edge: Any = operation(of_reals, name=f"optim.{body.__name__}", public=False)

    @functools.wraps(body)
    def call(*args: Any) -> Any:
        if _records.on:  # a learning rate may be a tensor; gradients need the old values, which are written over
            return of_reals(*[[t.clone() for t in a] if _holds_tensors(a) else a for a in args])
        return edge(*args)

    return cast(Body, call)


def _holds_tensors(a: Any) -> bool:
    return isinstance(a, (list, tuple)) and all(isinstance(t, Tensor) for t in a)


def _complex(pairs: Tensor) -> Tensor:
    """Complex numbers of their real and imaginary parts, which are the last dim."""
    return torch.complex(pairs.select(-1, 0), pairs.select(-1, 1))


class _Records(threading.local):
    on = False  # the step under way is part of the history of gradients


_records = _Records()


def assign(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Write new values in place: parameters and states keep their memory. Recorded for gradients in a differentiable step."""
    if _records.on:
        for target, value in zip(targets, values, strict=True):
            target.copy_(value)
    else:
        overwrite(targets, values)


def is_zero(x: Any) -> bool:
    """Whether a Number is the static 0; a run-time number counts as not zero."""
    return not isinstance(x, Tensor) and x == 0


def zeros_like_all(params: Sequence[Tensor]) -> list[Tensor]:
    """A tensor of zeros for each parameter."""
    return [_zeroed(p) if type(p) in _PLAIN and p.device.type == "cpu" else torch.zeros_like(p, requires_grad=False) for p in params]


_PLAIN = (Tensor, torch.nn.Parameter)


def _zeroed(p: Tensor) -> Tensor:
    """Memory that is zero already, so that a first step is the same path as those that follow."""
    made = torch.empty_like(p, requires_grad=False)
    storage = made._storage
    if storage is None or storage.buffer is None or fills[0]:  # under a transform; or filling it is recorded, and comes later
        return torch.zeros_like(p, requires_grad=False)
    ctypes.memset(storage.buffer.address, 0, storage.buffer.nbytes)
    return made


def kept(value: float) -> float:
    """A number rounded as in PyTorch, where it is a 0-d tensor of a state."""
    return value if kept_dtype() is torch.float64 else float(unpack("f", pack("f", value))[0])


def filled_like(p: Tensor, value: float) -> Tensor:
    """A state whose every number is `value`, both parts of complex ones."""
    return torch.full_like(p, complex(value, value) if p.is_complex() else value, requires_grad=False)


_HOOKS: Final = tuple(f"_optimizer_{of}_{when}_hooks" for of in ("step", "state_dict", "load_state_dict") for when in ("pre", "post"))
_GLOBAL_PRE: OrderedDict[int, Hook] = OrderedDict()
_GLOBAL_POST: OrderedDict[int, Hook] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(optimizer, args, kwargs)` before every optimizer's step."""
    return register(_GLOBAL_PRE, hook, [], False)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(optimizer, args, kwargs)` after every optimizer's step."""
    return register(_GLOBAL_POST, hook, [], False)


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step with the hooks around it, of a subclass too that writes its own; where it ends, what is pending runs."""

    @functools.wraps(step)
    def run(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        try:
            for pre in (*_GLOBAL_PRE.values(), *self._optimizer_step_pre_hooks.values()) if _GLOBAL_PRE or self._optimizer_step_pre_hooks else ():
                changed = pre(self, (self, *args), kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                    args, kwargs = changed[0][1:], changed[1]
            result = step(self, *args, **kwargs)
            for post in (*self._optimizer_step_post_hooks.values(), *_GLOBAL_POST.values()) if _GLOBAL_POST or self._optimizer_step_post_hooks else ():
                post(self, (self, *args), kwargs)
            self._opt_called = True
            step_boundary()
            return result
        except BaseException as error:
            shorten(error)
            raise

    return run


class Optimizer:
    """Base class. `params`: tensors, (name, tensor) pairs or dicts of a group's options; `defaults`: options of all groups."""

    _counts: tuple[str, ...] = ("step",)  # states that are tensors of one number, of any parameter (counts.py)

    _optimizer_step_pre_hooks: OrderedDict[int, Hook]
    _optimizer_step_post_hooks: OrderedDict[int, Hook]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Hook]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Hook]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Hook]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Hook]
    _opt_called: bool
    _known_counts: dict[tuple[str, int], Counts]
    _scheduled_step: Any  # a step of the instance's own when its schedule was made (lr_scheduler/base.py)
    # How many steps of a path in pieces update one parameter after the other: a plan for a list pays only if it comes back. More than a path that does needs.
    _steps_apart = 6
    _differentiable_lists = False  # whether `foreach` and `differentiable` go together, as PyTorch's SGD lets them
    _flags_seen = False  # whether the options of the groups have been looked at, which the first step does

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """With what a step needs, also in a subclass whose `__init__` does not call this class's (a wrapper of another optimizer)."""
        self = super().__new__(cls)
        for name in _HOOKS:
            setattr(self, name, OrderedDict())
        self._opt_called = False
        self._known_counts = {}
        return self

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        if defaults.get("fused") and defaults.get("differentiable"):
            raise RuntimeError("`fused` does not support `differentiable`")
        if defaults.get("fused") and defaults.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self.defaults = defaults
        if isinstance(params, Tensor):
            raise TypeError(f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {type(params).__name__}")
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(cast(Group, group))

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    # -- groups -----------------------------------------------------------------------------------------------------
    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will "
                "change between runs. Please use a list instead."
            )
        params = list(params)
        named = [isinstance(p, tuple) for p in params]
        if any(named):
            if not all(named):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        param_group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                refuse((p,), f"the optimizer {type(self).__name__}")
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        if len({id(p) for p in params}) != len(params):
            warn_here(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; see "
                "github.com/pytorch/pytorch/issues/40967 for more information",
            )  # fmt: skip
        if any(("param_names" in param_group) != ("param_names" in group) for group in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with names' if 'param_names' in param_group else 'without names'} to the optimizer"
            )
        if any(id(p) in seen for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> Any:
        """See utils/_foreach_utils.py."""
        from flambeau.utils._foreach_utils import _group_tensors_by_device_and_dtype

        return _group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    def _accelerator_graph_capture_health_check(self) -> None:
        """Optimizers of packages call it before a step: nothing is captured into a graph of an accelerator here, so nothing can be wrong."""

    _cuda_graph_capture_health_check = _accelerator_graph_capture_health_check

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero."""
        for group in self.param_groups:
            for p in group["params"]:
                if p._grad is not None:
                    if set_to_none:
                        p._grad = None
                    else:
                        clear_grad(p, False)

    # -- the step ---------------------------------------------------------------------------------------------------
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _hooked(cls.__dict__["step"])  # type: ignore[method-assign]
        if Optimizer in cls.__bases__ and not is_ours(cls.__module__):
            cls._counts = ()  # a user's own optimizer keeps in its state what it likes

    @_hooked
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all parameters that have a gradient; `closure` recomputes the loss, which is returned."""
        if type(self)._update is Optimizer._update and type(self)._step is Optimizer._step:
            raise NotImplementedError(f"{type(self).__name__} must define step()")
        return self._step(closure)

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        records = bool(self.defaults.get("differentiable", False))
        if records or _records.on:
            while_set(_records, "on", records, while_switched, switch, is_grad_enabled(), records, self._update_groups)
        else:
            while_switched(switch, is_grad_enabled(), False, self._update_groups)
        return loss

    def _update_groups(self) -> None:
        if not self._flags_seen:
            self._check_flags()
        tr = local.trace
        apart = self._steps_apart > 0 and type(tr) is Trace and in_pieces(tr) and not tr.held
        if apart:
            self._steps_apart -= 1
        for group in self.param_groups:
            params = [p for p in group["params"] if p._grad is not None]
            if True in [p._grad.is_sparse for p in params]:
                sparse = [p for p in params if p._grad.is_sparse]
                params = [p for p in params if not p._grad.is_sparse]
                self._update_sparse(group, sparse)
            while params:  # what is in the group twice has two updates, one after the other
                once = params if len(set(params)) == len(params) else [*{id(p): p for p in params}.values()]
                if apart and len({p.dtype for p in once}) == 1:
                    for p in once:
                        self._update(group, [p])
                else:
                    self._update_in_parts(group, once)
                params = [] if len(once) == len(params) else _without(params, once)

    def _check_flags(self) -> None:
        """At the first step, as in PyTorch: the errors of options of groups that do not go with their parameters, or with each other."""
        from flambeau.optim.parts import _device_dtype_check_for_fused

        for group in self.param_groups:
            if group.get("foreach") and group.get("differentiable") and not self._differentiable_lists:
                raise AssertionError("_foreach ops don't support autograd: an optimizer takes `foreach` or `differentiable`, not both")
            if group.get("fused"):
                for p in group["params"]:
                    if p._grad is not None:
                        _device_dtype_check_for_fused(p)
        self._flags_seen = True

    def _update_in_parts(self, group: Group, params: list[Tensor]) -> None:
        """`_update`, for a long list part by part, each a trace of its own: one update is one plan, which takes longer to make the longer it is, and the
        parts of a network of many layers alike are one plan."""
        if len(params) < 2 * PART or _records.on or len({p.dtype for p in params}) > 1:  # dtypes together decide in what the list is computed
            return self._update(group, params)
        step_boundary()
        for start in range(0, len(params), PART):
            self._update(group, params[start : start + PART])
            step_boundary()

    def _update_sparse(self, group: Group, params: list[Tensor]) -> None:
        """Update the parameters of one group whose gradients are sparse (of embeddings with sparse=True)."""
        hint = ", please consider SparseAdam instead" if type(self).__name__ == "Adam" else ""
        raise RuntimeError(f"{type(self).__name__} does not support sparse gradients{hint}")

    def _update(self, group: Group, params: list[Tensor]) -> None:
        """Update the parameters of one group, which all have a gradient."""
        raise NotImplementedError

    def _cohorts(
        self, params: list[Tensor], names: tuple[str, ...], start: Callable[[Tensor], dict[str, Any]], apart: bool = True
    ) -> Iterable[tuple[list[Tensor], list[Tensor], list[dict[str, Any]], list[Counts]]]:
        """(parameters, gradients, states, their numbers under each name) of those whose numbers are the same, usually all; new states come from `start`.

        `apart` False: together, whatever the numbers are.
        """
        table = self.state
        states = [table[p] for p in params]
        if not all(states):
            for p, state in zip(params, states, strict=True):
                if not state:
                    state.update(start(p))
        found = [counts_of(self._known_counts, states, name) for name in names]
        counts = [c for c, _ in found]
        gradients: list[Any] = [p._grad for p in params]
        if not apart or False not in [same for _, same in found]:
            return [(params, gradients, states, counts)]
        places: dict[Hashable, list[int]] = {}
        for i, key in enumerate(zip(*[c.numbers for c in counts], strict=True)):
            places.setdefault(key, []).append(i)
        return [
            ([params[i] for i in at], [gradients[i] for i in at], [states[i] for i in at], [c.of(at) for c in counts]) for at in places.values()
        ]  # fmt: skip

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs)` before each step; it may return new (args, kwargs)."""
        return register(self._optimizer_step_pre_hooks, hook, [], False)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs)` after each step."""
        return register(self._optimizer_step_post_hooks, hook, [], False)

    # -- saving and loading -----------------------------------------------------------------------------------------
    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer)` before state_dict."""
        return register(self._optimizer_state_dict_pre_hooks, hook, [], prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer, state_dict)` after state_dict; it may return another."""
        return register(self._optimizer_state_dict_post_hooks, hook, [], prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer, state_dict)` before loading; it may return another."""
        return register(self._optimizer_load_state_dict_pre_hooks, hook, [], prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer)` after loading."""
        return register(self._optimizer_load_state_dict_post_hooks, hook, [], prepend)

    def state_dict(self) -> dict[str, Any]:
        """{"state": {index: state}, "param_groups": options with the parameters' indices}, as PyTorch writes it."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        index: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                index.setdefault(id(p), len(index))
            packed["params"] = [index[id(p)] for p in group["params"]]
            groups.append(packed)
        states: dict[Any, Any] = {}
        for p, state in self.state.items():
            key = index.get(id(p), p) if isinstance(p, Tensor) else p
            states[key] = state
        result: dict[str, Any] = {"state": states, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over groups' options and states; tensors are cast to their parameter's dtype."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for mine, theirs in zip(self.param_groups, saved, strict=True):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"{len(theirs['params'])} parameters in the file, {len(mine['params'])} here"
                )
        theirs_all = itertools.chain.from_iterable(g["params"] for g in saved)
        mine_all = itertools.chain.from_iterable(g["params"] for g in self.param_groups)
        params = dict(zip(theirs_all, mine_all, strict=True))
        states: dict[Any, Any] = defaultdict(dict)
        for key, state in state_dict["state"].items():
            p = params.get(key)
            if p is None:
                states[key] = state
            else:
                states[p] = self._from_file(state, p, key, state_dict["param_groups"])
        groups = []
        for mine, theirs in zip(self.param_groups, saved, strict=True):
            theirs["params"] = mine["params"]
            if "param_names" in mine:
                theirs["param_names"] = mine["param_names"]
            groups.append({**{k: v for k, v in mine.items() if k not in theirs}, **theirs})
        self.__setstate__({"state": states, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _from_file(self, value: Any, p: Tensor, index: Any, groups: list[Group], key: Hashable = None) -> Any:
        """A value of a loaded state as the parameter needs it. What needs no other dtype is the dict's own, as in PyTorch."""
        if isinstance(value, Tensor):
            key = "step" if key in self._counts else key
            return Optimizer._process_value_according_to_param_policy(p, value, index, groups, key)
        if isinstance(value, dict):
            return {k: self._from_file(v, p, index, groups, k) for k, v in value.items()}
        if isinstance(value, (list, tuple, set)):
            return type(value)(self._from_file(v, p, index, groups) for v in value)
        return value

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Tensor, value: Tensor, param_id: Any, param_groups: list[Group], key: Hashable = None
    ) -> Tensor:  # fmt: skip
        """A tensor of a loaded state in the dtype of a floating parameter; "step" stays as it is, or is float32 where the group is fused."""
        if key != "step":
            return value.to(dtype=param.dtype, device=param.device) if param.is_floating_point() else value.to(device=param.device)
        group = next((g for g in param_groups if param_id in g["params"]), {})
        return value.to(dtype=torch.float32, device=param.device) if group.get("fused") or group.get("capturable") else value

    def __getstate__(self) -> dict[str, Any]:
        """All but the hooks, which files of PyTorch do not hold either, and what belongs to these very tensors."""
        return {name: value for name, value in self.__dict__.items() if name not in _HOOKS and name != "_known_counts"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over attributes: those of a pickle, or the state and the groups of a loaded dict. Counts that are numbers, in older files, become tensors."""
        self.__dict__.update(state)
        self._known_counts.clear()
        for group in self.param_groups if self._counts else ():
            for p in group["params"]:
                of_p = self.state.get(p, {})
                for name in self._counts:
                    if name in of_p and not isinstance(of_p[name], Tensor):
                        of_p[name] = count(float(of_p[name]), group.get("fused"))


def _without(params: list[Tensor], once: list[Tensor]) -> list[Tensor]:
    """The parameters but for one occurrence of each."""
    left = {id(p) for p in once}
    rest = []
    for p in params:
        if id(p) in left:
            left.discard(id(p))
        else:
            rest.append(p)
    return rest


def check(*, takes_nan: bool = False, **values: Any) -> None:
    """PyTorch's checks of the usual arguments; ValueError where one is out of range, or a NaN and not taken."""
    names = {"lr": "learning rate", "eps": "epsilon value", "weight_decay": "weight_decay value", "momentum": "momentum value"}
    for name, value in values.items():
        if name == "betas":
            for i in range(2):
                if not 0.0 <= value[i] < 1.0:
                    raise ValueError(f"Invalid beta parameter at index {i}: {value[i]}")
        elif name == "lr" and isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        elif value < 0.0 if takes_nan else not value >= 0.0:
            raise ValueError(f"Invalid {names.get(name, name + ' value')}: {value}")


def number(value: Any) -> Any:
    """A learning rate that may be a tensor, as a Python number; it stays a tensor where gradients of it are asked for."""
    if not isinstance(value, Tensor) or (value.requires_grad and _records.on):
        return value
    return value.item()


def __getattr__(name: str) -> Any:
    from flambeau.optim import parts  # what optimizers copied from PyTorch's source import

    if name.startswith("_") and not name.startswith("__") and hasattr(parts, name):
        return getattr(parts, name)
    from flambeau.names import otherwise

    return otherwise("torch.optim.optimizer", name, globals())
