"""Whether an operator's gradients were registered where autograd looks for them."""

from __future__ import annotations

from typing import Any

from flambeau.library import CustomOpDef
from flambeau.testing._internal.optests.sharing import tensors


def autograd_registration_check(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An operator without a function for autograd whose function for the CPU makes results with gradients: AssertionError.

    RuntimeError where no argument requires gradients, as then nothing can be seen.
    """
    given = tensors((args, kwargs))
    if not any(t.requires_grad for t in given):
        raise RuntimeError("autograd_registration_check: no inputs have requires_grad=True so we are unable to actually perform this test. "
                           "Please pass inputs that do require grad.")  # fmt: skip
    definition = op._function
    if not isinstance(definition, CustomOpDef) or definition._keys & {"Autograd", "CompositeImplicitAutograd"}:
        return
    mine = {id(t) for t in given}
    if any(t.requires_grad and id(t) not in mine for t in tensors(op(*args, **kwargs))):
        raise AssertionError(
            f"{op.name()}: at least one output of this operator has requires_grad=True but the operator does not have an autograd kernel defined at an "
            "autograd key (e.g. DispatchKey::Autograd). This could mean that you have incorrectly registered an autograd kernel to a non-Autograd "
            "DispatchKey, which may lead to silently incorrect results. If your operator consists of regular PyTorch operations, consider not using an "
            "operator at all or registering your operator as CompositeImplicitAutograd."
        )
