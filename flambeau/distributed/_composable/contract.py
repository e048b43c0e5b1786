"""torch.distributed._composable.contract: functions that change modules in place, each once a module, without renaming what is in them."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flambeau.nn.modules.module import Module

STATE_KEY = f"__composable_api_state_{uuid.uuid4()}"
REGISTRY_KEY = f"__composable_api_registry_{uuid.uuid4()}"


class _State:
    """What a function keeps of a module: any attributes."""


class RegistryItem:
    """The mark of a function that a module was given to."""


def _roots(modules: Iterable[Module]) -> list[Module]:
    """Those of several modules that are in none of the others."""
    given = list(modules)
    inside = {id(part) for each in given for part in each.modules() if part is not each}
    return [each for each in given if id(each) not in inside]


def _names(modules: Sequence[Module]) -> list[tuple[list[str], list[str], list[str]]]:
    return [([n for n, _ in m.named_parameters()], [n for n, _ in m.named_buffers()], [n for n, _ in m.named_modules()]) for m in modules]


def _check(before: list[str], after: list[str], what: str) -> None:
    if before == after:
        return
    gone, new = set(before) - set(after), set(after) - set(before)
    if gone or new:
        raise RuntimeError(
            f"Checking {what}: Composable distributed API implementations cannot modify FQNs.\nFQNs only in original: {gone}\nFQNs only in new: {new}"
        )
    raise RuntimeError(f"Checking {what}: Composable distributed API implementations cannot modify the order of FQNs.\nBefore: {before}\nAfter: {after}")


def contract(state_cls: type[Any] = _State) -> Callable[[Callable[..., Any]], Any]:
    """A decorator of `function(module, ...)`: it may be called once a module, and `function.state(module)` is what it keeps of it.

    Of several modules those count that are in none of the others. RuntimeError where names of parameters, buffers or modules change.
    """

    def decorated(func: Callable[..., Any]) -> Any:
        @functools.wraps(func)
        def wrapper(module: Any, *args: Any, **kwargs: Any) -> Any:
            given = [module] if isinstance(module, Module) else _roots(module)
            state, item = state_cls(), RegistryItem()
            for each in given:
                states, registry = each.__dict__.setdefault(STATE_KEY, {}), each.__dict__.setdefault(REGISTRY_KEY, {})
                if func in states or func.__name__ in registry:
                    raise AssertionError(
                        f"Each distinct composable distributed API can only be applied to a module once. {func.__name__} has already been applied to the "
                        f"following module:\n{each}"
                    )
                states[func], registry[func.__name__] = state, item
            before = _names(given)
            result = func(module, *args, **kwargs)
            result = module if result is None else result
            after = _names([result] if isinstance(result, Module) else _roots(result))
            if len(before) != len(after):
                raise AssertionError(f"{func.__name__} should return the same number of modules as input modules: got {len(before)}, returned {len(after)}")
            for one, other in zip(before, after, strict=True):
                for what, a, b in zip(("parameters", "buffers", "modules"), one, other, strict=True):
                    _check(a, b, what)
            return result

        wrapper.state = lambda module: module.__dict__.setdefault(STATE_KEY, {}).get(func)  # type: ignore[attr-defined]
        return wrapper

    return decorated


def _get_registry(module: Module) -> dict[str, RegistryItem] | None:
    """By name, the functions that a module was given to; None without any."""
    return module.__dict__.get(REGISTRY_KEY)


__all__ = ["contract"]
