"""rearrange: permutation, splitting and merging of dims by a pattern of names, as einops writes it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

Axis = tuple[str, ...]  # one dim: the names whose product it is; ("...",) is the ellipsis


@lru_cache(256)
def _side(text: str) -> tuple[Axis, ...]:
    """One side of a pattern."""
    axes: list[Axis] = []
    group: list[str] | None = None
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            if group is not None:
                raise ValueError(f"rearrange: nested parentheses are not allowed, got {text!r}")
            group = []
        elif token == ")":
            if group is None:
                raise ValueError(f"rearrange: brackets are not balanced in {text!r}")
            axes.append(tuple(group))
            group = None
        elif token != "..." and not (token.isidentifier() or (token.isdigit() and token == "1")):
            raise ValueError(f"rearrange: {token!r} is no name of a dimension (in {text!r})")
        elif group is not None:
            if token != "1":
                group.append(token)
        else:
            axes.append(() if token == "1" else (token,))
    if group is not None:
        raise ValueError(f"rearrange: brackets are not balanced in {text!r}")
    names = [n for a in axes for n in a]
    if len(set(names)) != len(names):
        raise ValueError(f"rearrange: a dimension occurs twice in {text!r}")
    return tuple(axes)


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """The tensor with its dims permuted, split and merged: rearrange(x, "b c (h s) -> b h (s c)", s=2).

    A list of tensors is stacked first. ValueError for patterns and lengths that do not fit.
    """
    if isinstance(tensor, (list, tuple)):
        from flambeau.ops.concatenated import stack

        tensor = stack(list(tensor))
    left_text, arrow, right_text = pattern.partition("->")
    if not arrow:
        raise ValueError(f"rearrange: the pattern {pattern!r} needs an arrow ->")
    left, right = _side(left_text.strip()), _side(right_text.strip())
    names, shape = _split_sizes(tensor.shape, left, pattern, axes_lengths)
    wanted = [n for a in right for n in _spelled(a, names)]
    if set(wanted) != set(names):
        raise ValueError(f"rearrange: the sides of {pattern!r} must have the same names; {sorted(set(wanted) ^ set(names))} are on one side only")
    size = dict(zip(names, shape, strict=True))
    result: list[int] = []
    for axis in right:
        if axis == ("...",):
            result += [size[n] for n in names if n.startswith("...")]
            continue
        length = 1
        for n in _spelled(axis, names):
            length *= size[n]
        result.append(length)
    return tensor.reshape(shape).permute([names.index(n) for n in wanted]).reshape(result)


def _spelled(axis: Axis, names: list[str]) -> list[str]:
    """The names of an axis, the ellipsis as those of the dims that it stands for."""
    return [m for n in axis for m in ([k for k in names if k.startswith("...")] if n == "..." else [n])]


def _split_sizes(have: Any, left: tuple[Axis, ...], pattern: str, lengths: dict[str, int]) -> tuple[list[str], list[int]]:
    """(elementary names of the left side, their sizes)."""
    dots = [i for i, a in enumerate(left) if a == ("...",)]
    if any("..." in a for a in left if a != ("...",)):
        raise ValueError(f"rearrange: an ellipsis inside of parentheses is not allowed on the left side of {pattern!r}")
    extra = len(have) - len(left) + len(dots)
    if extra < 0 or (not dots and extra):
        raise ValueError(f"rearrange: the left side of {pattern!r} has {len(left)} dims, the tensor {len(have)} (shape {tuple(have)})")
    names: list[str] = []
    shape: list[int] = []
    at = 0
    for axis in left:
        if axis == ("...",):
            names += [f"...{i}" for i in range(extra)]
            shape += list(have[at : at + extra])
            at += extra
            continue
        size, at = have[at], at + 1
        known = 1
        unknown = [n for n in axis if n not in lengths and len(axis) > 1]
        for n in axis:
            known *= lengths.get(n, 1)
        if len(unknown) > 1:
            raise ValueError(f"rearrange: the lengths of {unknown} in {pattern!r} are not known; give all but one")
        if (unknown and size % known) or (not unknown and axis and (len(axis) > 1 or axis[0] in lengths) and size != known) or (not axis and size != 1):
            raise ValueError(f"rearrange: a dim of size {size} cannot be ({' '.join(axis)}) with {lengths} (pattern {pattern!r}, shape {tuple(have)})")
        for n in axis:
            names.append(n)
            shape.append(size // known if n in unknown else size if len(axis) == 1 else lengths[n])
    return names, shape
