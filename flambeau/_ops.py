"""torch._ops: operators by namespace: torch.ops.aten.add is torch.add, torch.ops.mine.f what torch.library has registered."""

from __future__ import annotations

import importlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.operator_schema import FunctionSchema


class _Watch(threading.local):
    """Per thread: what is handed the calls of aten's overloads instead of their functions, while a program is exported."""

    record: Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any] | None = None


watch = _Watch()


def standing_in(arguments: Iterable[Any]) -> list[Any]:
    """Those of the arguments (and of lists and tuples among them) that stand for tensors and are none: proxies of torch.fx."""
    found: list[Any] = []
    for a in arguments:
        for b in a if type(a) in (list, tuple) else (a,):
            if hasattr(type(b), "__torch_function__") and not hasattr(type(b), "_meta"):
                found.append(b)
    return found


@upward
def schema_text(name: str, overload: str) -> str:
    """The schema of an operator of aten (export/schemas.py)."""
    raise NotImplementedError


@upward
def load_extension(path: str) -> Any:
    """Register the operators of a package's C++ extension that flambeau has itself (extensions/)."""
    raise NotImplementedError


def _asked(operator: OpOverloadPacket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a mode, or a proxy among the arguments, of an own operator answers; NotImplemented if there is none."""
    from flambeau import library
    from flambeau.ops import dispatch

    if not isinstance(operator._function, library.CustomOpDef):
        return NotImplemented
    if dispatch.state.modes and watch.record is None and (answer := dispatch.ask_mode_of_operator(operator, args, kwargs)) is not NotImplemented:
        return answer
    if operator._function._composite:
        return NotImplemented
    found = standing_in((*args, *kwargs.values()))
    return dispatch.ask(operator, found, args, kwargs) if found else NotImplemented


class OpOverload:
    """One overload of an operator: `torch.ops.aten.add.Tensor`."""

    def __init__(self, packet: OpOverloadPacket, overload: str, function: Any) -> None:
        self.__name__ = f"{packet.__name__}.{overload}"
        self.overloadpacket = self._overloadpacket = packet
        self._overloadname = overload
        self._function = function
        self.namespace = packet._qualified_op_name.partition("::")[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if watch.record is not None and self.namespace == "aten":
            return watch.record(self, args, kwargs)
        return self._function(*args, **kwargs)  # an own operator's definition asks modes and proxies itself

    def name(self) -> str:
        """ "aten::add.Tensor"; the default overload's has no ending."""
        ending = "" if self._overloadname == "default" else f".{self._overloadname}"
        return self._overloadpacket._qualified_op_name + ending

    @property
    def _qualified_op_name(self) -> str:
        return self.name()

    @property
    def tags(self) -> list[Any]:
        """What is known of it: those given to `define`; an operator of `custom_op` is compliant with exports."""
        return list(getattr(self._function, "tags", ()))

    @cached_property
    def _schema(self) -> FunctionSchema:
        """What it takes and gives, writes to and is a view of. RuntimeError if nobody has said."""
        from flambeau.operator_schema import parse_schema

        name = self._overloadpacket._qualified_op_name
        known = schema_text(self._overloadpacket.__name__, self._overloadname) if self.namespace == "aten" else getattr(self._function, "_schema", "")
        if not known:
            raise RuntimeError(f"{self}: no schema of this operator is known")
        return parse_schema(f"{name}{'' if self._overloadname == 'default' else '.' + self._overloadname}{known[known.index('(') :]}")

    def __str__(self) -> str:
        return f"{self._overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self._overloadpacket}', overload='{self._overloadname}')>"


class OpOverloadPacket:
    """An operator: call it, or one of its overloads (`.default`, `.Tensor`), which are the same function unless they were defined apart."""

    asked_as = None  # what dispatch.ask looks for in functions, which is no overload

    def __init__(self, name: str, function: Any) -> None:
        self.__name__ = name.split("::")[-1]
        self._qualified_op_name = name
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (answer := _asked(self, args, kwargs)) is not NotImplemented:
            return answer
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        from flambeau import library

        found = library._registered.get(f"{self._qualified_op_name}.{name}")
        if found is None and self._qualified_op_name.startswith("aten::"):
            from flambeau.composed import dispatcher_names

            found = dispatcher_names.OVERLOADS.get(f"{self.__name__}.{name}")
        found = found or self._function
        made = OpOverload(self, name, found)
        setattr(self, name, made)
        return made

    def __str__(self) -> str:
        return self._qualified_op_name.replace("::", ".")

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


_BITS = frozenset(f"__{n}__" for n in "and or xor lshift rshift iand ior ixor ilshift irshift".split())  # operators of aten with Python's names


class HigherOrderOperator(ABC):
    """An operator that takes functions, as packages define them: a call is that of the function which was registered for the CPU, or for all devices."""

    _ORDER = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "Autograd", "AutogradCPU")

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name
        self._cacheable = cacheable
        self.namespace = self._ns = "higher_order"
        self._functions: dict[str, Any] = {}

    def name(self) -> str:
        """What the operator is called."""
        return self._name

    def cacheable(self) -> bool:
        """Whether results for fake tensors may be kept."""
        return self._cacheable

    def py_impl(self, key: Any) -> Any:
        """A decorator that registers a function for a dispatch key (torch._C.DispatchKey)."""

        def register(function: Any) -> Any:
            self._functions[getattr(key, "name", str(key))] = function
            return function

        return register

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = next((self._functions[key] for key in self._ORDER if key in self._functions), None)
        if found is None:
            known = ", ".join(sorted(self._functions)) or "none"
            raise NotImplementedError(f"could not find kernel for HigherOrderOperator {self._name} on the CPU (registered: {known})")
        return found(*args, **kwargs)

    def __str__(self) -> str:
        return self._name


class _Namespace:
    """The operators of one namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _BITS:
            raise AttributeError(name)
        import flambeau
        from flambeau import library

        if self.name in library.HOMES:
            importlib.import_module(library.HOMES[self.name])
        found = library._registered.get(f"{self.name}::{name}")
        if found is None and self.name in ("aten", "prims"):
            from flambeau.composed import dispatcher_activation_gradients, dispatcher_gradients, dispatcher_names

            homes = (
                dispatcher_names,
                dispatcher_gradients,
                dispatcher_activation_gradients,
                flambeau,
                flambeau.nn.functional,
                flambeau.special,
                flambeau.Tensor,
            )
            plain = name.removeprefix("special_").removeprefix("linalg_").removeprefix("fft_")
            spaces = {"linalg": flambeau.linalg, "fft": flambeau.fft}
            found = getattr(spaces.get(name.split("_")[0]), plain, None) if name.split("_")[0] in spaces else None
            found = found or next((f for n in (name, plain) for h in homes if callable(f := getattr(h, n, None))), None)
        if found is None and self.name == "quantized":
            from flambeau.quantized.operators import OPERATORS

            found = OPERATORS.get(name)
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}': no such operator in flambeau")
        made = OpOverloadPacket(f"{self.name}::{name}", found)
        setattr(self, name, made)
        return made


class _Ops:
    """torch.ops."""

    def __init__(self) -> None:
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Namespace(name)
        setattr(self, name, made)
        return made

    def load_library(self, path: Any) -> None:
        """Register the operators of a package's C++ extension that flambeau has itself (extensions/).

        OSError, which packages catch, for any other: there is no C++ interface.
        """
        load_extension(str(path))
        self.loaded_libraries.add(str(path))


ops = _Ops()


def namespace(name: str) -> Any:
    """The operators of a library."""
    return getattr(ops, name)
