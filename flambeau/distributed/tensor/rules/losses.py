"""Losses: of each element, or each sample, then reduced over all processes."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Final

from flambeau.distributed.tensor.calls import Call, Rule
from flambeau.distributed.tensor.rules.letters import WHOLE, by_letters, names
from flambeau.distributed.tensor.rules.pointwise import pointwise


@cache
def _signature(func: Any) -> Any:
    return inspect.signature(func)


def _reduction(given: dict[str, Any]) -> str:
    if given.get("size_average") is not None or given.get("reduce") is not None:
        average, reduce = given.get("size_average") is not False, given.get("reduce") is not False
        return "none" if not reduce else "mean" if average else "sum"
    return str(given.get("reduction", "mean"))


def _unreduced(func: Any, given: dict[str, Any]) -> Any:
    left = {k: v for k, v in given.items() if k not in ("size_average", "reduce")}
    return func(**{**left, "reduction": "none"})


def by_element(c: Call, *args: Any, **kwargs: Any) -> Any:
    """Losses of each element."""
    given = dict(_signature(c.func).bind(*args, **kwargs).arguments)
    reduction = _reduction(given)
    if reduction == "none":
        return pointwise(c, *args)
    values = _unreduced(c.func, given)
    if reduction == "batchmean":
        return values.sum() / values.shape[0]
    return values.sum() if reduction == "sum" else values.mean()


def by_class(c: Call, *args: Any, **kwargs: Any) -> Any:
    """Losses over classes, which are whole: dim 1, or the only one."""
    given = dict(_signature(c.func).bind(*args, **kwargs).arguments)
    input, target, weight = given["input"], given["target"], given.get("weight")
    reduction = _reduction(given)
    shape = input._layout.shape
    if reduction == "none":
        letters = names(len(shape))
        place = 1 if len(shape) > 1 else 0
        rest = letters[:place] + letters[place + 1 :]
        classes = letters[:place] + WHOLE + letters[place + 1 :]
        ins = [classes, classes if target._layout.shape == shape else rest, *([WHOLE] if weight is not None else [])]
        return Rule(by_letters(ins, rest))
    values = _unreduced(c.func, given)
    if reduction == "sum":
        return values.sum()
    if target._layout.shape == shape and target.is_floating_point():
        return values.mean()
    counted = target != given.get("ignore_index", -100)
    if weight is None:
        return values.sum() / counted.to(values.dtype).sum()
    return values.sum() / (weight[target.masked_fill(~counted, 0)] * counted.to(values.dtype)).sum()


RULES: Final[dict[str, Any]] = {
    **dict.fromkeys(
        """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div soft_margin_loss poisson_nll_loss
        hinge_embedding_loss""".split(), by_element,
    ),
    "cross_entropy": by_class, "nll_loss": by_class,
}  # fmt: skip
