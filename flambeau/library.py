"""torch.library: operators of one's own: their functions by dispatch key, without values, their gradients and batching rules; `opcheck`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any, Final

from flambeau._ops import standing_in, watch
from flambeau.operator_schema import infer_schema as infer_schema
from flambeau.operator_shapes import get_ctx as get_ctx
from flambeau.ops import dispatch
from flambeau.upward import upward

_registered: dict[str, Any] = {}
HOMES: Final = dict.fromkeys(  # by namespace: the module that registers its operators, when one of them is asked for
    ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"), "flambeau.distributed.operators"
)


class Tag(Enum):
    """What an operator says of itself (`torch.ops.ns.name.default.tags`); it changes nothing."""

    core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, flexible_layout, generated, inplace, inplace_view = range(8)
    maybe_aliasing_or_mutating, needs_contiguous_strides, needs_exact_strides, needs_fixed_stride_order = range(8, 12)
    nondeterministic_bitwise, nondeterministic_seeded, out, out_variant, pointwise, pt2_compliant_tag, reduction, view_copy = range(12, 20)


_CHECKS: Final = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
_KERNELS = ("", "CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "default")  # of dispatch keys, those of the operator's function here
_excluded = threading.local()  # names of keys inside _ExcludeDispatchKeyGuard, and operators whose Autograd kernel is running


class CustomOpDef:
    """An operator: its schema, its function for the CPU, that for tensors without values, and the functions for autograd and autocast that call it.

    What `custom_op` makes is `opaque`: gradients do not look into its function, they are what `register_autograd` says. Where operators are seen
    (a `__torch_dispatch__`, fake tensors), it is seen as one; without values its function is not run, but that of `register_fake`.
    """

    def __init__(self, name: str, fn: Callable[..., Any] | None, schema: str = "", opaque: bool = False) -> None:
        self._name = name
        self._schema = schema
        self._opaque = opaque
        self._fn: Callable[..., Any] = self._none if fn is None else fn
        self._call: Callable[..., Any] = self._fn
        self._keys: set[str] = {"CPU", "Autograd"} if opaque else set()  # dispatch keys that have a function
        self._fake: Callable[..., Any] | None = None
        self._for_meta = False  # whether that is for tensors of the device meta only, whose results are there, too
        self._outer: dict[str, Callable[..., Any]] = {}  # by "Autograd", "AutocastCPU"
        self._backward: Callable[..., Any] | None = None
        self._setup_context: Callable[..., Any] | None = None
        self._vmap: Callable[..., Any] | None = None
        self.tags: tuple[Tag, ...] = (Tag.pt2_compliant_tag,) if opaque else ()
        self.__name__ = getattr(fn, "__name__", name)
        self.__doc__ = fn.__doc__
        if opaque:
            self._made()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if dispatch.state.modes and watch.record is None and (answer := dispatch.ask_mode_of_operator(self._opoverload, args, kwargs)) is not NotImplemented:
            return answer
        if self._composite:
            return self._fn(*args, **kwargs)
        if self._schema and watch.record is not None:
            return watch.record(self._opoverload, args, kwargs)
        from flambeau.ops import below

        if asked := standing_in((*args, *kwargs.values())):
            return dispatch.ask(self._opoverload, asked, args, kwargs)
        if below.modes.stack or below.dispatched((*args, *kwargs.values())):
            return below.offer(self._opoverload, args, kwargs)
        if any(getattr(a, "is_meta", False) for a in (*args, *kwargs.values())):
            return self.without_values(args, kwargs)
        for key, function in self._outer.items():
            if key not in _skipped() and (self._name, key) not in _skipped() and (key == "Autograd" or _autocast()):
                with excluding(key if key != "Autograd" else (self._name, key)):
                    return function(*args, **kwargs)
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._name})>"

    @property
    def _composite(self) -> bool:
        """Whether it is but the operators that its function calls."""
        return "CompositeImplicitAutograd" in self._keys

    @property
    def _opoverload(self) -> Any:
        """`torch.ops.space.name.default`."""
        from flambeau._ops import ops

        space, _, name = self._name.partition("::")
        name, _, overload = name.partition(".")
        return getattr(getattr(getattr(ops, space), name), overload or "default")

    def without_values(self, args: Any, kwargs: Any) -> Any:
        """The result for tensors without values, by the function of `register_fake`; that of an operator that only writes is None.

        RuntimeError if there is none for an operator of `custom_op`, NotImplementedError for one of `define`.
        """
        if self._fake is not None:
            return self._fake(*args, **kwargs)
        if "CompositeExplicitAutograd" in self._keys:
            return self._fn(*args, **kwargs)
        if self._opaque:
            schema = self._opoverload._schema
            if schema.is_mutable and not schema.returns:
                return None
            raise RuntimeError(
                f"There was no fake impl registered for {self!r}. This is necessary for torch.compile/export/fx tracing to work. "
                f"Please use `{self.__name__}.register_fake` to add an fake impl."
            )
        raise NotImplementedError(
            f"{self._name}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel registered for this operator; "
            "register one with torch.library.register_fake"
        )

    def _none(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"Could not run '{self._name}' with arguments from the 'CPU' backend: it is defined, and has no function for the CPU; "
            "register one with torch.library.impl"
        )

    def _set(self, key: str, fn: Callable[..., Any]) -> None:
        """Keep the function for a dispatch key, as far as there is something here that calls it."""
        self._keys.add("Autograd" if key == "AutogradCPU" else key)
        if key in _KERNELS:
            self._fn = self._call = fn
            if self._opaque or self._backward is not None or self._vmap is not None:
                self._made()
        elif key == "Meta":
            self._fake, self._for_meta = fn, True
        elif key in ("Autograd", "AutogradCPU"):
            self._outer["Autograd"] = fn
        elif key == "AutocastCPU":
            self._outer = {"AutocastCPU": fn, **self._outer}

    def register_fake(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function that makes results without values, of fake tensors or those of the device meta."""
        self._set("Meta", fn)
        self._for_meta = False
        return fn

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None) -> Any:
        """The function for the CPU, if it is among the devices."""

        def register(f: Callable[..., Any]) -> Callable[..., Any]:
            listed = [device_types] if isinstance(device_types, str) or device_types is None else device_types
            if None in listed or "cpu" in listed or "default" in listed:
                self._set("CPU", f)
            return f

        return register if fn is None else register(fn)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """Gradients by `backward(ctx, *grads)`, after `setup_context(ctx, inputs, output)`.

        Where the schema has arguments by name only: `setup_context(ctx, inputs, keyword_only_inputs, output)`. RuntimeError for an operator that writes.
        """
        if self._schema and self._opoverload._schema.is_mutable:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self!r} with schema {self._opoverload._schema}. "
                "Please create a functional operator and register an autograd formula for that."
            )
        self._backward, self._setup_context = backward, setup_context
        self._keys.add("Autograd")
        self._made()

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """The function over a batch: `func(info, in_dims, *args)` returns (output, out_dims)."""
        if func is None:

            def register_rule(f: Callable[..., Any]) -> Callable[..., Any]:
                self.register_vmap(f)
                return f

            return register_rule
        self._vmap = func
        self._made()
        return None

    def register_autocast(self, device_type: str, cast_inputs: Any) -> Callable[..., Any]:
        """Under autocast on the device, floating arguments are cast first."""
        if device_type not in ("cpu", "cuda"):
            raise ValueError(f"Unknown device type: {device_type}")
        plain = self._call

        def kernel(*args: Any, **kwargs: Any) -> Any:
            if device_type != "cpu" or not is_autocast_enabled("cpu"):
                return plain(*args, **kwargs)
            with autocast("cpu", enabled=False):
                return plain(*[a.to(cast_inputs) if hasattr(a, "_meta") and a.is_floating_point() else a for a in args], **kwargs)

        self._call = kernel
        return kernel

    def _made(self) -> None:
        """Make the torch.autograd.Function that has the registered gradient and batching rule."""
        from flambeau.operator_gradients import differentiable

        self._call = differentiable(self)


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Any, device_types: Any = None, schema: str | None = None, tags: Any = None
) -> Any:
    """A decorator: the function as the operator "namespace::name", also found as torch.ops.namespace.name.

    Its schema is that of its annotations (`infer_schema`: ValueError where they do not say it) unless `schema` is given; `mutates_args` names the
    arguments that it writes to. `opcheck` finds what it writes to besides them.
    """
    if "::" not in name:
        raise ValueError(f"torch.library.custom_op: the name is 'namespace::operator', got {name!r}")

    def make(f: Callable[..., Any]) -> CustomOpDef:
        from flambeau._ops import ops

        space, _, last = name.partition("::")
        vars(getattr(ops, space)).pop(last, None)  # of an operator that this one replaces
        _registered[name] = made = CustomOpDef(name, f, schema or infer_schema(f, mutates_args=mutates_args), opaque=True)
        made.tags += _tags(tags)
        if device_types is not None and not {"cpu", "default"} & set([device_types] if isinstance(device_types, str) else device_types):
            made._fn = made._none  # it is for other devices
            made._made()
        return made

    return make if fn is None else make(fn)


@upward
def is_autocast_enabled(device_type: str) -> bool:
    """amp/autocast_mode.py."""
    raise NotImplementedError


@upward
def autocast(device_type: str, *, enabled: bool) -> AbstractContextManager[Any]:
    """amp/autocast_mode.py."""
    raise NotImplementedError


def _autocast() -> bool:
    return is_autocast_enabled("cpu")


def _skipped() -> set[Any]:
    if not hasattr(_excluded, "keys"):
        _excluded.keys = set()
    return _excluded.keys  # type: ignore[no-any-return]


@contextmanager
def excluding(*keys: Any) -> Iterator[None]:
    """Functions for these dispatch keys are not called within."""
    skipped = _skipped()
    new = set(keys) - skipped
    skipped |= new
    try:
        yield
    finally:
        skipped -= new


def _name_of(op: Any) -> str:
    return str(getattr(op, "_qualified_op_name", op))


def _found(op: Any) -> Any:
    if isinstance(op, CustomOpDef):
        return op
    name = _name_of(op)
    name = name.removesuffix(".default")
    if name not in _registered:
        raise RuntimeError(f"operator {name} does not exist: define it by torch.library.define or torch.library.custom_op")
    return _registered[name]


def _defined(name: str, schema: str = "") -> CustomOpDef:
    """The operator of this name, a new one without a function if there is none."""
    if name not in _registered:
        _registered[name] = CustomOpDef(name, None, schema)
    return _registered[name]  # type: ignore[no-any-return]


def _tags(given: Any) -> tuple[Tag, ...]:
    return () if given is None else (given,) if isinstance(given, Tag) else tuple(given)


def register_fake(op: Any, func: Callable[..., Any] | None = None, /, **_: Any) -> Any:
    """The operator's function for tensors without values: fake ones, and those of the device meta. A decorator without `func`."""
    definition = _found(op)
    return definition.register_fake if func is None else definition.register_fake(func)


def register_kernel(op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, **_: Any) -> Any:
    """See CustomOpDef."""
    return _found(op).register_kernel(device_types, func)


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None, **_: Any) -> None:
    """See CustomOpDef."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, **_: Any) -> Any:
    """See CustomOpDef."""
    return _found(op).register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, **_: Any) -> Any:
    """See CustomOpDef."""
    return _found(op).register_autocast(device_type, cast_inputs)


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, **_: Any) -> Any:
    """Accepted: there is no dispatcher below the functions that would ask a class or a mode."""
    return func if func is not None else (lambda f: f)


@upward
def run_opcheck(op: Any, args: Any, kwargs: Any, **how: Any) -> dict[str, str]:
    """The checks themselves (testing/_internal/optests)."""
    raise NotImplementedError


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _CHECKS,
    raise_exception: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
) -> dict[str, Any]:
    """Call an operator in several ways and compare: {check: "SUCCESS" or the exception}.

    "test_schema": it writes to and is a view of what its schema says and of nothing else. "test_autograd_registration": gradients were not made behind
    autograd's back. "test_faketensor": its function without values says the shapes, strides, dtypes and views that it gives. "test_aot_dispatch_dynamic":
    recorded without values, forward and backward, and run again, it gives the same results and gradients (`rtol` and `atol` as for assert_close).
    Arguments are copied before each. OpCheckError for the first check that fails, unless `raise_exception=False`.

    Example::

        >>> @torch.library.custom_op("mine::doubled", mutates_args=())
        ... def doubled(x: torch.Tensor) -> torch.Tensor:
        ...     return x * 2
        >>> found = torch.library.opcheck(doubled, (torch.ones(2),), raise_exception=False)
        >>> found["test_schema"], type(found["test_faketensor"]).__name__
        ('SUCCESS', 'RuntimeError')
    """
    return run_opcheck(op, args, kwargs, test_utils=test_utils, raise_exception=raise_exception, rtol=rtol, atol=atol)


class Library:
    """A namespace of operators: `define("name(Tensor x) -> Tensor")`, then `impl("name", function, "CPU")`."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """A new operator by its schema; its name."""
        name = schema.split("(", 1)[0].strip()
        _defined(f"{self.ns}::{name}", schema[len(name) :].strip()).tags = _tags(tags)
        return name

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **_: Any) -> None:
        """The operator's function for a dispatch key: "CPU" and the composites, "Autograd", "AutocastCPU"; those for others are accepted."""
        name = _name_of(op_name).split("::")[-1].removesuffix(".default")
        _defined(f"{self.ns}::{name}")._set(dispatch_key or self.dispatch_key, fn)

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", **_: Any) -> None:
        """Accepted: each operator here has its function."""

    def _register_fake(self, op_name: str, fn: Callable[..., Any], *_: Any, **__: Any) -> None:
        """The operator's function for tensors without values."""
        _defined(f"{self.ns}::{_name_of(op_name).split('::')[-1].removesuffix('.default')}").register_fake(fn)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """A new operator "namespace::name" with the schema "(Tensor x) -> Tensor"; its function comes by impl()."""
    if "::" not in qualname:
        raise ValueError(f"torch.library.define: the name is 'namespace::operator', got {qualname!r}")
    _defined(qualname, schema).tags = _tags(tags)


def impl(qualname: Any, types: Any, func: Callable[..., Any] | None = None, *, lib: Any = None) -> Any:
    """The operator's function for a dispatch key or a device ("cpu", "default"), or for several."""
    if isinstance(qualname, Library):  # the older decorator: impl(library, name, dispatch_key)
        library, key = qualname, str(func or "")

        def into(f: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(types, f, key)
            return f

        return into
    name = _name_of(qualname)

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        for key in [types] if isinstance(types, str) else types:
            _defined(name)._set("CPU" if key == "cpu" else key, f)
        return f

    return register if func is None else register(func)


def triton_op(name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """A decorator: an operator whose function launches kernels of the tile language (flambeau.tile). It has gradients by `register_autograd`."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel: launches need nothing more here."""
    return triton_kernel


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.library", globals())
