"""Forward mode as transforms: jvp, jacfwd, hessian, linearize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.func.arguments import chosen, replaced, require_real, require_tensors, with_aux
from flambeau.func.forward import JvpLevel
from flambeau.func.levels import leaves_no_level
from flambeau.func.mapping import vmap
from flambeau.func.reverse import jacrev, like, pullback, standard_basis
from flambeau.tensor import Tensor
from flambeau.trace.programs import program_around
from flambeau.utils._pytree import tree_flatten, tree_map, tree_unflatten

_API = "jvp(f, primals, tangents)"


def check_tangent(primal: Any, tangent: Any) -> None:
    """PyTorch's rules of a pair."""
    if tuple(primal.shape) != tuple(tangent.shape):
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size "
            f"{list(primal.shape)} while the given forward gradient is of size {list(tangent.shape)}."
        )
    if not (primal.is_floating_point() or primal.is_complex()):
        raise ValueError(f"Expected primal to be floating point or complex, but got: {primal.dtype}")


@leaves_no_level
def push_forward(func: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, strict: bool, has_aux: bool) -> tuple[Any, Any, Any]:
    """jvp with respect to the arguments at `argnums` (None: all): (output, tangent of the output, aux)."""
    from flambeau.ops.creation import zeros_like

    if not isinstance(primals, tuple):
        raise RuntimeError(f"{_API}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    given = primals if argnums is None else chosen(primals, argnums)
    flat, spec = tree_flatten(given)
    moved, moved_spec = tree_flatten(tangents)
    if spec != moved_spec:
        raise RuntimeError(
            f"{_API}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple of 3 tensors, "
            f"tangents also must be. Got primals with structure {spec} and tangents with structure {moved_spec}"
        )
    for name, leaves in (("primals", flat), ("tangents", moved)):
        if not leaves:
            raise RuntimeError(f"{_API}: Expected {name} to contain at least one Tensor.")
        for t in leaves:
            if not isinstance(t, Tensor):
                raise RuntimeError(f"{_API}: Expected {name} to only contain Tensors, got {type(t)}")
    for p, t in zip(flat, moved, strict=True):
        check_tangent(p, t)
    if program_around(_API, (*flat, *moved)) is not None:
        return _by_pullbacks(func, primals, tangents, argnums, has_aux)
    with JvpLevel() as level:
        duals = tree_unflatten([level.enter(p, t) for p, t in zip(flat, moved, strict=True)], spec)
        if argnums is not None:
            duals = replaced(primals, duals[0] if isinstance(argnums, int) else duals, argnums)
        result = func(*duals)
        aux = None
        if has_aux:
            result, aux = with_aux(result, _API)
        outputs, out_spec = tree_flatten(result)
        require_tensors(outputs, _API)
        parts = [level.parts(o) for o in outputs]
        aux = tree_map(lambda t: level.parts(t)[0] if isinstance(t, Tensor) else t, aux)
    if strict and any(t is None for _, t in parts):
        raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with strict=True.")
    values = tree_unflatten([p for p, _ in parts], out_spec)
    return values, tree_unflatten([zeros_like(p.detach()) if t is None else t for p, t in parts], out_spec), aux


def _by_pullbacks(func: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, has_aux: bool) -> tuple[Any, Any, Any]:
    """(output, its derivative, aux) in a program that is traced: the pullback is linear in its cotangents, and the derivative is the pullback of that."""
    from flambeau.ops.creation import zeros_like

    output, pull_back, aux = pullback(func, tuple(primals) if argnums is None else primals, argnums, has_aux)
    cotangents = tree_map(lambda t: zeros_like(t.detach()), output)
    _, again, _ = pullback(lambda c: pull_back(c, True, True), (cotangents,), None, False)
    return output, again(tuple(tangents) if argnums is None else tangents[0] if isinstance(argnums, int) else tangents)[0], aux


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(func(*primals), the derivative of func at the primals in the direction of the tangents); with `has_aux`, also aux.

    `tangents` is structured as `primals`, each of its primal's shape and dtype. `strict`: RuntimeError for an output that does not
    depend on the primals.
    """
    output, moved, aux = push_forward(func, primals, tangents, None, strict, has_aux)
    return (output, moved, aux) if has_aux else (output, moved)


def jacfwd(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error", chunk_size: int | None = None
) -> Callable[..., Any]:
    """A function that computes the Jacobian of `func` with respect to the arguments at `argnums`, by forward mode; see `jacrev`.

    `randomness`: of the vmap over the directions; `chunk_size`: so many of them at a time.
    """

    def wrapper(*args: Any) -> Any:
        require_real("jacfwd", args, "inputs")
        flat, spec = tree_flatten(chosen(args, argnums))

        def push(direction: Any) -> Any:
            output, moved, aux = push_forward(func, args, direction, argnums, False, has_aux)
            require_real("jacfwd", output, "outputs")
            return (moved, aux) if has_aux else moved

        results = vmap(push, randomness=randomness, chunk_size=chunk_size)(tree_unflatten(standard_basis(flat), spec))
        aux = None
        if has_aux:
            results, aux = results
            aux = tree_map(lambda t: t[0], aux)
        columns, out_spec = tree_flatten(results)
        sizes = [p.numel() for p in flat]
        trees = []
        for column in columns:
            parts = column.movedim(0, -1).split(sizes, -1)
            trees.append(tree_unflatten([j.reshape((*column.shape[1:], *p.shape)) for j, p in zip(parts, flat, strict=True)], spec))
        result = tree_unflatten([t[0] for t in trees] if isinstance(argnums, int) else trees, out_spec)
        return (result, aux) if has_aux else result

    return like(func, wrapper)


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that computes the matrix of second derivatives, forward over reverse: jacfwd(jacrev(func))."""
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(func(*primals), the linear map from tangents to the derivative in their direction).

    Every call of the map goes through the recorded edges of func once more: what depends on the primals alone is not kept.
    """
    flat, spec = tree_flatten(primals)
    if not flat:
        raise RuntimeError("linearize: Expected at least one primal")
    for p in flat:
        if not isinstance(p, Tensor):
            raise RuntimeError(f"linearize: Expected primals to contain only Tensors, got {type(p)}")
    output = func(*primals)
    require_tensors(tree_flatten(output)[0], "linearize(f, *primals)")

    def jvp_fn(*tangents: Any) -> Any:
        moved, moved_spec = tree_flatten(tangents)
        if moved_spec != spec:
            raise RuntimeError(f"Expected the tangents {moved_spec} to have the same argspec as the primals {spec}")
        for i, (t, p) in enumerate(zip(moved, flat, strict=True)):
            if tuple(t.shape) != tuple(p.shape):
                raise RuntimeError(f"tangent:{i} with shape {t.shape} in flattened pytree doesn't match the shape {p.shape} of the corresponding primal.")
            if t.dtype is not p.dtype:
                raise RuntimeError(f"tangent:{i} with dtype {t.dtype} in flattened pytree doesn't match the dtype {p.dtype} of the corresponding primal.")
        return push_forward(func, primals, tangents, None, False, False)[1]

    return output, jvp_fn
