"""torch._subclasses.fake_tensor: tensors that have a shape and no memory. None can be made here, so the answer to each question is no."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent

_refuse = _absent.refusal(NotImplementedError, "there are no fake tensors", "make real ones; what is recorded takes no memory until it is looked at")
_absent.classes(globals(), "FakeTensor FakeTensorMode FakeTensorConverter".split(), _refuse, "fake tensors")


class UnsupportedFakeTensorException(RuntimeError):
    """What cannot be done without values."""


class DataDependentOutputException(RuntimeError):
    """A result whose shape depends on values."""


def is_fake(x: Any) -> bool:
    """False: there are no fake tensors."""
    return False


def unset_fake_temporarily() -> Any:
    """A `with` block without effect."""
    from contextlib import nullcontext

    return nullcontext()
