"""The checks of `torch.library.opcheck`: an operator of one's own called in several ways, and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau._ops import OpOverload, OpOverloadPacket
from flambeau.library import _CHECKS, CustomOpDef
from flambeau.tensor import Tensor
from flambeau.testing._internal.optests.autograd_registration import autograd_registration_check
from flambeau.testing._internal.optests.fake_tensor import fake_check
from flambeau.testing._internal.optests.recorded import recorded_check
from flambeau.testing._internal.optests.schema import schema_check
from flambeau.utils._pytree import tree_leaves, tree_map


class OpCheckError(Exception):
    """A check that failed."""


def _registration(op: OpOverload, args: Any, kwargs: Any, **_: Any) -> None:
    if any(isinstance(a, Tensor) and a.requires_grad for a in tree_leaves((args, kwargs))):
        autograd_registration_check(op, args, kwargs)


ALL_TEST_UTILS: Final[dict[str, Callable[..., None]]] = {
    "test_schema": schema_check,
    "test_autograd_registration": _registration,
    "test_faketensor": lambda op, args, kwargs, **_: fake_check(op, args, kwargs),
    "test_aot_dispatch_static": recorded_check,
    "test_aot_dispatch_dynamic": recorded_check,
}


def opcheck(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, test_utils: str | Sequence[str] = _CHECKS,
    raise_exception: bool = True, rtol: float | None = None, atol: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """See torch.library.opcheck. ValueError for what is no operator, for an unknown check, and for one of `rtol` and `atol` alone."""
    if (rtol is None) != (atol is None):
        raise ValueError("opcheck(op, ...): if you specify one of rtol/atol, you must specify both")
    if isinstance(op, CustomOpDef):
        op = op._opoverload
    if isinstance(op, OpOverloadPacket):
        op = op.default
    if not isinstance(op, OpOverload):
        raise ValueError(f"opcheck(op, ...): op must be instance of torch._ops.OpOverload, e.g. torch.ops.aten.sin.default, got {type(op)}")
    names = tuple(ALL_TEST_UTILS) if test_utils == "ALL" else (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(names) <= set(ALL_TEST_UTILS):
        raise ValueError(f"opcheck(op, ..., test_utils={test_utils}), expected test_utils to be subset of {tuple(ALL_TEST_UTILS)} but it was not")
    found: dict[str, Any] = {}
    given = tree_leaves((args, kwargs or {}))
    without_values = any(isinstance(a, Tensor) and a.is_meta for a in given)
    for name in names:
        try:
            if not without_values:
                copied, named = tree_map(copy_of, (tuple(args), kwargs or {}))
                ALL_TEST_UTILS[name](op, copied, named, rtol=rtol, atol=atol)
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)") from error
            found[name] = error
    return found


def copy_of(value: Any) -> Any:
    """A tensor of its own with the same elements, strides and need of gradients; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    made = value.detach().clone() if value.is_contiguous() else value.new_empty_strided(tuple(value.shape), value.stride()).copy_(value.detach())
    return made.requires_grad_() if value.requires_grad else made
