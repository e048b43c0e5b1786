"""torch.sparse._triton_ops_meta: the parameters with which kernels of GPUs for blocks of sparse matrices were found fastest, and the search for them.

PyTorch ships a table for some GPUs. Here it begins empty, and has what a program puts in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Any, Final

import flambeau as torch
from flambeau.trace.once import warn_here

_TABLE: Final[dict[tuple[str, str, Hashable], dict[tuple[Any, ...], tuple[Any, ...]]]] = {}
_BLOCKS: Final = ("GROUP_SIZE_ROW", "SPLIT_N", "num_stages", "num_warps")
_NAMES: Final = {
    "scatter_mm": ("GROUP_SIZE", "SPLIT_N", "TILE_M", "TILE_N", "num_stages", "num_warps"), "bsr_dense_addmm": _BLOCKS, "_int_bsr_dense_addmm": _BLOCKS,
}  # fmt: skip


def get_meta(op: str, key: tuple[Any, ...], device_name: str | None = None, version: Hashable = (0, torch.float16, 0.5), exact: bool = False) -> Any:
    """The parameters of an operation for a key, by name; for a key with "*" those of all that fit, by key. None where there are none."""
    known = _TABLE.get((op, "" if device_name is None else device_name, version))
    if known is None:
        return None
    if op not in _NAMES:
        raise NotImplementedError(f"get_meta(): no names of parameters are known for {op!r}; known are {', '.join(_NAMES)}")
    fitting = {k: dict(zip(_NAMES[op], v, strict=True)) for k, v in known.items() if all(b in ("*", a) for a, b in zip(k, key, strict=True))}
    return fitting if "*" in key else fitting.get(key)


def update(op: str, device_name: str, version: Hashable, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
    """Put parameters into the table; empty ones are left out, with a warning."""
    if value:
        _TABLE.setdefault((op, device_name, version), {})[key] = value
    else:
        warn_here(f"skipping empty value for {op}: {device_name=} {version=} {key=}")


def minimize(
    target_func: Callable[[dict[str, Any]], float], initial_parameters: dict[str, Any], reference_parameters: dict[str, Any],
    step_func: Callable[[str, Any, int, dict[str, Any]], Any], max_step: int = 2, verbose: bool = False, all_values: dict[Any, Any] | None = None,
) -> tuple[dict[str, Any], float, float, str]:  # fmt: skip
    """The parameters of the least value of `target_func` that steps of up to `max_step` places in all reach from `initial_parameters`.

    Returns them, by how many per cent less than at the reference, the value, and a text of how much each parameter matters. A set for which the
    function raises does not count; `all_values` gets every value. ValueError if it raises for the first set.
    """
    names = sorted(initial_parameters)
    seen: dict[Any, Any] = {} if all_values is None else all_values

    def value(parameters: dict[str, Any]) -> float | None:
        key = tuple([parameters[n] for n in names])
        if key not in seen:
            try:
                seen[key] = target_func(parameters)
            except Exception as error:
                seen[key] = None
                if verbose:
                    print(f"{parameters} failed: {error}")
        return seen[key]  # type: ignore[no-any-return]

    def moved(parameters: dict[str, Any], steps: tuple[int, ...]) -> dict[str, Any]:
        made = dict(parameters)
        for name, step in zip(names, steps, strict=True):
            for _ in range(abs(step)):
                made[name] = step_func(name, made[name], 1 if step > 0 else -1, made)
        return made

    reach = range(-max_step, max_step + 1)
    ways = sorted((w for w in itertools.product(reach, repeat=len(names)) if 0 < sum(map(abs, w)) <= max_step), key=lambda w: sum(map(abs, w)))
    best = dict(initial_parameters)
    least = value(best)
    if least is None:
        raise ValueError(f"minimize(): target_func failed for the initial parameters {initial_parameters}")
    goes_on = True
    while goes_on:
        goes_on = False
        for way in ways:
            candidate = moved(best, way)
            found = value(candidate)
            if found is not None and found < least:
                best, least, goes_on = candidate, found, True
                break
    reference = value(dict(reference_parameters))
    gain = 0.0 if reference is None or not reference else (reference - least) / reference * 100
    changes = []
    for at, name in enumerate(names):
        around = [value(moved(best, tuple([step if i == at else 0 for i in range(len(names))]))) for step in (-1, 1)]
        worst = max([v for v in around if v is not None], default=least)
        changes.append(f"{name}={best[name]} (+{(worst - least) / least * 100 if least else 0.0:.1f} %)")
    return best, gain, least, ", ".join(changes)
