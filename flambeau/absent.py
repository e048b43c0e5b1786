"""Functions about devices that are not here: a table of signatures says which answer, which accept, and which refuse.

A line of a table is one of

    name(parameters) = value      the answer, a Python expression
    name(parameters) ok           accepted: there is nothing to do
    name(parameters) !            refused with the namespace's error
    name other_name third!        rows of `SHARED`, which several namespaces have; with ! refused in this one

The answers are those of PyTorch's CPU build; where that fails for a reason of its own (an AttributeError of torch._C), settings are
accepted and questions refused.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NoReturn

# Rows that several namespaces of devices have. {device}: the device's name, as in "cuda".
SHARED: Final = """
change_current_allocator(allocator) !
clock_rate(device=None) !
current_device() !
current_stream(device=None) !
default_stream(device=None) !
device_count() = 0
device_memory_used(device=None) !
empty_cache() ok
get_arch_list() = []
get_device_capability(device=None) !
get_device_name(device=None) !
get_device_properties(device=None) !
get_gencode_flags() = ''
get_per_process_memory_fraction(device=None) !
get_rng_state(device='{device}') !
get_rng_state_all() = []
get_stream_from_external(data_ptr, device=None) !
graph_pool_handle() !
init() !
initial_seed() !
is_available() = False
is_bf16_supported(including_emulation=True) = False
is_current_stream_capturing() = False
is_initialized() = False
is_tf32_supported() = False
make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None) !
manual_seed(seed) ok
manual_seed_all(seed) ok
max_memory_allocated(device=None) = 0
max_memory_reserved(device=None) = 0
mem_get_info(device=None) !
memory_allocated(device=None) = 0
memory_reserved(device=None) = 0
memory_stats(device=None) = OrderedDict()
memory_stats_as_nested_dict(device=None) = {}
memory_usage(device=None) !
power_draw(device=None) !
reset_accumulated_memory_stats(device=None) ok
reset_peak_memory_stats(device=None) ok
seed() ok
seed_all() ok
set_device(device) !
set_per_process_memory_fraction(fraction, device=None) !
set_rng_state(new_state, device='{device}') ok
set_rng_state_all(new_states) ok
synchronize(device=None) !
temperature(device=None) !
utilization(device=None) !
"""
_ROW: Final = re.compile(r"(\w+)(\(.*?\)) (?:= (.*)|(ok)|(!))")


def refusal(error: type[Exception], message: str, hint: str = "flambeau runs on the CPU so far; ask is_available() first") -> Any:
    """A function that raises the error for whatever function of the namespace it is told of."""

    def refuse(name: str) -> NoReturn:
        raise error(f"{message} ({name}: {hint})")

    return refuse


def not_compiled(device: str, error: type[Exception] = AssertionError) -> Any:
    """The refusal of a namespace whose device PyTorch's CPU build has not."""
    return refusal(error, f"Torch not compiled with {device} enabled")


@cache
def _shared() -> dict[str, str]:
    return {row.partition("(")[0]: row for row in SHARED.split("\n") if row}


def rows(table: str, device: str) -> list[str]:
    """The table's rows, the shared ones in place of their names."""
    found = []
    for line in filter(None, map(str.strip, table.splitlines())):
        if "(" in line:
            found.append(line)
            continue
        for word in line.split():
            row = _shared()[word.removesuffix("!")].replace("{device}", device.lower())
            found.append(row if not word.endswith("!") else f"{row[: row.index(')') + 1]} !")
    return found


def define(namespace: dict[str, Any], table: str, refuse: Any, device: str) -> list[str]:
    """Put the functions of a table into a module's globals; returns their names. `device`: what is not here, for docstrings."""
    names = []
    scope: dict[str, Any] = {"OrderedDict": OrderedDict, "refuse": refuse}
    for line in rows(table, device):
        found = _ROW.fullmatch(line)
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
