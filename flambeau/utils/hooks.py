"""torch.utils.hooks: handles by which hooks are taken away again."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.hooks import RemovableHandle
from flambeau.trace.once import warn_here

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Any) -> Any:
    """Mark a hook of a tensor that is not saved with it, so that nobody is warned."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn of hooks that saving the tensor would lose."""
    for hook in (tensor._hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warn_here(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the function with "
                "@torch.utils.hooks.unserializable_hook to suppress this warning",
            )  # fmt: skip


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.utils.hooks", globals())
