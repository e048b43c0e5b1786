"""Functions about devices that are not here: a table of signatures says which answer, which accept, and which refuse.

A line of a table is one of

    name(parameters) = value      the answer, a Python expression
    name(parameters) ok           accepted: there is nothing to do
    name(parameters) !            refused with the namespace's error

The answers are those of PyTorch's CPU build; where that fails for a reason of its own (an AttributeError of torch._C), settings are
accepted and questions refused.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NoReturn


def refusal(error: type[Exception], message: str, hint: str = "flambeau runs on the CPU so far; ask is_available() first") -> Any:
    """A function that raises the error for whatever function of the namespace it is told of."""

    def refuse(name: str) -> NoReturn:
        raise error(f"{message} ({name}: {hint})")

    return refuse


def define(namespace: dict[str, Any], table: str, refuse: Any, device: str) -> list[str]:
    """Put the functions of a table into a module's globals; returns their names. `device`: what is not here, for docstrings."""
    names = []
    scope: dict[str, Any] = {"OrderedDict": OrderedDict, "refuse": refuse}
    for line in filter(None, map(str.strip, table.splitlines())):
        found = re.fullmatch(r"(\w+)(\(.*?\)) (?:= (.*)|(ok)|(!))", line)
        assert found is not None, line
        name, parameters, answer, accepted, _ = found.groups()
        if answer is not None:
            body, text = f"return {answer}", f"{answer}: there is no {device} device."
        elif accepted:
            body, text = "return None", f"Accepted: there is no {device} device."
        else:
            body, text = f"refuse({name!r})", f"Raises: there is no {device} device."
        exec(compile(f"def {name}{parameters}:\n    {body}\n", f"<torch.{device.lower()}>", "exec"), scope)
        function = scope[name]
        function.__doc__ = text
        function.__module__ = namespace["__name__"]
        namespace[name] = function
        names.append(name)
    return names


def classes(namespace: dict[str, Any], names: Iterable[str], refuse: Any, device: str) -> list[str]:
    """Classes of which no object can be made: `isinstance` answers False, a call is refused."""
    made = []
    for name in names:

        def new(cls: type, *args: Any, _name: str = name, **kwargs: Any) -> NoReturn:
            refuse(_name)
            raise AssertionError("refuse raises")

        namespace[name] = type(name, (), {"__new__": new, "__module__": namespace["__name__"], "__doc__": f"Cannot be made: there is no {device} device."})
        made.append(name)
    return made
