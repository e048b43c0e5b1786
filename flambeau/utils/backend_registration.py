"""torch.utils: names of devices of one's own, which cannot be added; and the exchange of two tensors."""

from __future__ import annotations

from typing import Any, NoReturn


def rename_privateuse1_backend(backend_name: str) -> NoReturn:
    """RuntimeError: devices cannot be added from outside."""
    raise RuntimeError("torch.utils.rename_privateuse1_backend: devices cannot be added to flambeau from outside; it runs on the CPU so far")


def generate_methods_for_privateuse1_backend(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: devices cannot be added from outside."""
    raise RuntimeError("torch.utils.generate_methods_for_privateuse1_backend: devices cannot be added to flambeau from outside")


def set_module(obj: Any, mod: str) -> None:
    """Let an object say that it is of another module."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchange two tensors: every name of the one is from now on a name of what the other was."""
    cls1, cls2 = type(t1), type(t2)
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import synchronize
    from flambeau.trace.objects import inner_dict

    synchronize()  # what is pending knows both by who they are
    places = [name for name in Tensor.__slots__ if not name.startswith("__")]
    first, second = ({**inner_dict(t), **{name: getattr(t, name) for name in places if hasattr(t, name)}} for t in (t1, t2))
    t1.__class__, t2.__class__ = cls2, cls1
    for t, state in ((t1, second), (t2, first)):
        inner = inner_dict(t)
        inner.clear()
        for name in places:
            if name not in state and hasattr(t, name):
                object.__delattr__(t, name)
        for name, value in state.items():
            if name in places:
                object.__setattr__(t, name, value)
            else:
                inner[name] = value
