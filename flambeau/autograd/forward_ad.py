"""torch.autograd.forward_ad: dual numbers, a value and its tangent, inside a `dual_level`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.grad_modes import _Mode
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.func.forward import JvpLevel
    from flambeau.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class _Active(threading.local):
    """The level of this thread."""

    level: JvpLevel | None = None


_active = _Active()
_current_level = -1  # of whichever thread came last; packages ask whether any is active


@upward
def jvp_level() -> JvpLevel:
    """A level of forward mode that nobody has entered (func/forward.py)."""
    raise NotImplementedError


@upward
def check_tangent(primal: Any, tangent: Any) -> None:
    """PyTorch's rules of a pair (func/forward_mode.py)."""
    raise NotImplementedError


def enter_dual_level() -> int:
    """Enter a level; there is one at most (nested derivatives: torch.func.jvp)."""
    global _current_level
    if _active.level is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = jvp_level()
    level.remembered = []
    try:
        level.__enter__()
        _active.level, _current_level = level, 0
        return 0
    except BaseException:  # an interrupt: nobody will leave it
        _active.level = None
        level.__exit__()
        raise


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level: its dual tensors become their primals."""
    global _current_level
    found = _active.level
    if found is None or level not in (None, 0):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    _active.level, _current_level = None, -1
    found.__exit__()
    found.let_go()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor with the value of `tensor`, which carries `tangent`; RuntimeError outside of a level, or if shapes differ."""
    if _active.level is None:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    for name, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {t.dtype}")
    check_tangent(tensor, tangent)
    return _active.level.enter(_active.level.parts(tensor)[0], tangent)


class UnpackedDualTensor(NamedTuple):
    """What unpack_dual returns."""

    primal: Tensor
    tangent: Tensor | None


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent); the tangent is None for a tensor that carries none."""
    if _active.level is None:
        return UnpackedDualTensor(tensor, None)
    primal, tangent = _active.level.parts(tensor)
    return UnpackedDualTensor(primal, tangent)


class dual_level(_Mode):
    """A block (or a function that is decorated) inside of which dual tensors can be made."""

    def __init__(self) -> None:
        super().__init__(True)

    def __enter__(self) -> int:  # type: ignore[override]
        before = _active.level
        try:
            return enter_dual_level()
        except BaseException:
            if before is None and _active.level is not None:
                exit_dual_level()
            raise

    def __exit__(self, *_: Any) -> None:
        exit_dual_level()

    def _fresh(self) -> dual_level:
        return dual_level()


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("autograd.forward_ad", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.autograd.forward_ad", globals())
