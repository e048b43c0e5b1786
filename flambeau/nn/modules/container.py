"""Containers of modules and of parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import islice
from typing import Any, Self

from flambeau.nn.modules.module import Module, _indent
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor


def _position(index: Any, length: int) -> int:
    """A possibly negative index as a position; IndexError outside."""
    i = operator.index(index)
    if not -length <= i < length:
        raise IndexError(f"index {i} is out of range")
    return i % length


class _Numbered(Module):
    """What Sequential and ModuleList share: children under the keys "0", "1", ..."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def _key(self, index: Any) -> str:
        return next(islice(self._modules, _position(index, len(self)), None))

    def __setitem__(self, index: Any, module: Module) -> None:
        setattr(self, self._key(index), module)

    def _delete(self, index: Any) -> None:
        if isinstance(index, slice):
            for key in list(self._modules)[index]:
                delattr(self, key)
        else:
            delattr(self, self._key(index))

    def _renumber(self, modules: Iterable[Module | None]) -> None:
        self._modules = {str(i): m for i, m in enumerate(modules)}


class Sequential(_Numbered):
    """Modules called one after another: Sequential(a, b, ...) or Sequential(OrderedDict of them)."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __delitem__(self, index: Any) -> None:
        self._delete(index)
        self._renumber(self._modules.values())

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Self:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(list(other))

    def __mul__(self, times: int) -> Sequential:
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(f"Non-positive multiplication factor {times} for {type(self)}")
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before position `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        modules = list(self)
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"Index out of range: {index}")
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in sequential:
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Take a module out and return it."""
        module = self[key]
        del self[key]
        return module


class ModuleList(_Numbered):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])  # type: ignore[arg-type]
        return self._modules[self._key(index)]

    def __delitem__(self, index: Any) -> None:
        self._delete(index)
        self._renumber(self._modules.values())

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def _get_abs_string_index(self, idx: Any) -> str:
        """The key of the module at a position (pyro's lists ask)."""
        return self._key(idx)

    def insert(self, index: int, module: Module) -> None:
        """Put a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Take a module out and return it."""
        module = self[key]
        del self[key]
        return module

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in modules:
            self.append(module)
        return self

    def __repr__(self) -> str:
        """Equal neighbours are folded: (0-2): 3 x Linear(...)."""
        texts = [repr(module) for module in self]
        if not texts:
            return self._get_name() + "()"
        runs: list[tuple[int, int, str]] = []
        for i, text in enumerate(texts):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = [f"({first}): {_indent(text)}" if first == last else f"({first}-{last}): {last - first + 1} x {_indent(text)}" for first, last, text in runs]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take a module out and return it."""
        return self._modules.pop(key)

    def keys(self) -> KeysView[str]:
        return self._modules.keys()

    def items(self) -> ItemsView[str, Any]:
        return self._modules.items()

    def values(self) -> ValuesView[Any]:
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add modules from a mapping or from pairs."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleDict.update should be called with an iterable of key/value pairs, but got {type(modules).__name__}")
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for i, pair in enumerate(pairs):
            if not isinstance(pair, Iterable):
                raise TypeError(f"ModuleDict update sequence element #{i} should be Iterable; is{type(pair).__name__}")
            pair = tuple(pair)
            if len(pair) != 2:
                raise ValueError(f"ModuleDict update sequence element #{i} has length {len(pair)}; 2 is required")
            self[pair[0]] = pair[1]


def _wrap(value: Any) -> Any:
    """ParameterList and ParameterDict make parameters of plain tensors."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(value: Any, dtype_name: Callable[[Any], str] = str) -> str:
    """How PyTorch's containers print an entry."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(n) for n in value.shape)
    return f"{kind} containing: [{dtype_name(value.dtype)} of size {size}]"


def _type_name(dtype: Any) -> str:
    """The name of the tensor type of a dtype, which ParameterDict prints."""
    names = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int"}
    plain = str(dtype).removeprefix("torch.")
    return f"torch.{names.get(plain, plain.capitalize())}Tensor"


class ParameterList(Module):
    """A list of parameters (plain tensors become parameters; other values are kept as they are)."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index: Any, value: Any) -> None:
        setattr(self, str(_position(index, len(self))), _wrap(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, value: Any) -> Self:
        """Add a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters (plain tensors become parameters; other values are kept as they are)."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _text(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(f"Index given to ParameterDict cannot be used as a key as it is not a string (type is '{type(key).__name__}').")
        return key

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, self._text(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[self._text(key)] = None
        setattr(self, key, _wrap(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """A shallow copy."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, which is first set to `default` where it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take all entries out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take an entry out and return its value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last entry out and return it."""
        key = next(reversed(list(self._keys)))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dictionary with these keys and one value."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add entries from a mapping or from pairs."""
        if not isinstance(parameters, Iterable):
            raise TypeError(f"ParametersDict.update should be called with an iterable of key/value pairs, but got {type(parameters).__name__}")
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs: Iterable[Any] = parameters.items()
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items())
        else:
            pairs = parameters
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_describe(value, _type_name)}" for key, value in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def _merge(self, other: ParameterDict, first: ParameterDict) -> ParameterDict:
        result = first.copy()
        result.update(other)
        return result

    def __or__(self, other: ParameterDict) -> ParameterDict:
        return self._merge(other, self)

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        return self._merge(self, other)

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self


Container: Callable[..., Module] = Module
