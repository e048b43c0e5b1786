"""Inner steps of the transforms, which packages put functions of their own in the place of.

PyTorch's transforms are Python, and look these functions up in `torch._functorch` at every call. tensordict teaches vmap its collections by
that, pypose keeps the kind of its tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

REPLACED: dict[str, Callable[..., Any]] = {}
"""What has been put in the place of a step, by PyTorch's name of it; empty as a rule."""


def replaceable(module: str, *names: str) -> None:
    """From now on a step's function that is set in the module goes into REPLACED, and out of it once the module's own is set again."""
    home = sys.modules[module]
    own = {name: getattr(home, name) for name in names}

    class Steps(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name in own:
                if value is own[name]:
                    REPLACED.pop(name, None)
                else:
                    REPLACED[name] = value

    home.__class__ = Steps
