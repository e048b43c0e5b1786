"""Reverse mode as transforms: grad, grad_and_value, vjp, jacrev."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.func.arguments import chosen, replaced, require_real, require_tensors, with_aux
from flambeau.func.mapping import vmap
from flambeau.func.pullback import pull
from flambeau.func.steps import REPLACED
from flambeau.func.tracking import Scope, _wrap_tensor_for_grad
from flambeau.grad_modes import enable_grad, is_grad_enabled
from flambeau.tensor import Tensor
from flambeau.trace.programs import program_of
from flambeau.trace.recorder import local
from flambeau.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten, treespec_pprint


def like(func: Callable[..., Any], made: Callable[..., Any]) -> Callable[..., Any]:
    """`made` under the name of `func`."""
    return functools.wraps(func)(made) if hasattr(func, "__name__") else made


def _tracked(scope: Scope, tree: Any) -> Any:
    """The tensors of a tree as differentiable ones; ValueError for what is no tensor, RuntimeError for those that have no gradients."""

    def track(t: Any) -> Tensor:
        if not isinstance(t, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(t)}")
        if not (t.is_floating_point() or t.is_complex()):
            raise RuntimeError(f"only Tensors of floating point dtype can require gradients, or of complex dtype, got {t.dtype}")
        return REPLACED.get("_wrap_tensor_for_grad", _wrap_tensor_for_grad)(t, scope)

    return tree_map(track, tree)


def _released(scope: Scope, tree: Any) -> Any:
    return tree_map(lambda t: scope.release(t) if isinstance(t, Tensor) else t, tree)


def _pulled(outputs: Sequence[Any], inputs: Sequence[Any], gradients: Sequence[Any], retain: bool, create: bool) -> list[Any]:
    """Gradients; zeros where there are none."""
    from flambeau.ops.creation import zeros_like

    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    wanted = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
    program = program_of("torch.func.grad and its like", (*[o for o, _ in pairs], *[g for _, g in pairs]))
    if program is not None:
        found = iter(program.pull([o for o, _ in pairs], wanted, [g for _, g in pairs]) if pairs else [None] * len(wanted))
    else:
        found = iter(pull(local.trace, [o for o, _ in pairs], wanted, [g for _, g in pairs], 0, retain, create) if pairs else [None] * len(wanted))
    result = []
    for t in inputs:
        g = next(found) if isinstance(t, Tensor) and t.requires_grad else None
        result.append(zeros_like(t.detach()) if g is None else g)
    return result


def _grad_and_value(func: Callable[..., Any], argnums: Any, aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
    """(gradients, value, aux)."""
    from flambeau.ops.creation import ones_like

    api = "grad_and_value(f)(*args)"
    scope = Scope(is_grad_enabled())
    with enable_grad():
        inputs = _tracked(scope, chosen(args, argnums, as_tuple=False))
        flat, spec = tree_flatten(inputs)
        output = func(*replaced(args, inputs, argnums), **kwargs)
        extra = None
        if aux:
            output, extra = with_aux(output, api)
        if not isinstance(output, Tensor):
            raise RuntimeError(f"{api}: Expected f(*args) to return a Tensor, got {type(output)}")
        if output.dim() != 0:
            raise RuntimeError(
                f"{api}: Expected f(*args) to return a scalar Tensor, got tensor with {output.dim()} dims. Maybe you wanted to use the vjp or "
                "jacrev APIs instead?"
            )
        if output.is_complex():
            raise RuntimeError(f"{api}: grad can be implicitly created only for real scalar outputs but got {output.dtype}")
        create = scope.escapes([output])
        found = _pulled([output], flat, [ones_like(output.detach())], False, create)
        return tree_unflatten(found, spec), scope.release(output), _released(scope, extra)


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that computes the gradient of `func`, whose value is one number, with respect to the arguments at `argnums`.

    With `has_aux`, `func` returns (value, aux), and the result is (gradients, aux). RuntimeError if the value is no 0-d tensor.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found, _, aux = _grad_and_value(func, argnums, has_aux, args, kwargs)
        return (found, aux) if has_aux else found

    return like(func, wrapper)


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """As `grad`; the result is (gradients, value), or (gradients, (value, aux))."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found, value, aux = _grad_and_value(func, argnums, has_aux, args, kwargs)
        return (found, (value, aux)) if has_aux else (found, value)

    return like(func, wrapper)


class _Pullback:
    """The function that vjp returns."""

    def __init__(self, scope: Scope, outputs: list[Any], out_spec: TreeSpec, inputs: list[Any], in_spec: TreeSpec) -> None:
        self.scope = scope
        self.outputs = outputs
        self.out_spec = out_spec
        self.inputs = inputs
        self.in_spec = in_spec
        self.__name__ = "vjp_fn"

    def __call__(self, cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        flat, spec = tree_flatten(cotangents)
        if spec != self.out_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. cotangents: "
                f"{treespec_pprint(spec)}, primal output: {treespec_pprint(self.out_spec)}"
            )
        for o, g in zip(self.outputs, flat, strict=True):
            if tuple(o.shape) != tuple(g.shape):
                raise RuntimeError(f"Mismatch in shape: grad_output has a shape of {g.shape} and output has a shape of {o.shape}.")
        create = is_grad_enabled() if create_graph is None else create_graph
        if create and create_graph is None:
            create = self.scope.escapes(self.outputs) or any(g.requires_grad for g in flat)
        return tree_unflatten(_pulled(self.outputs, self.inputs, flat, retain_graph, create), self.in_spec)


def pullback(func: Callable[..., Any], primals: tuple[Any, ...], argnums: Any, has_aux: bool) -> tuple[Any, _Pullback, Any]:
    """vjp with respect to the arguments at `argnums` (None: all): (output, pullback, aux)."""
    scope = Scope(is_grad_enabled())
    with enable_grad():
        if argnums is None:
            inputs = _tracked(scope, primals)
            output = func(*inputs)
        else:
            inputs = _tracked(scope, chosen(primals, argnums, as_tuple=False))
            output = func(*replaced(primals, inputs, argnums))
        aux = None
        if has_aux:
            output, aux = with_aux(output, "vjp(f, *primals)")
        flat, spec = tree_flatten(output)
        require_tensors(flat, "vjp(f, *primals)")
        for o in flat:
            if not (o.is_floating_point() or o.is_complex()):
                raise RuntimeError(f"vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype {o.dtype}")
        flat_inputs, in_spec = tree_flatten(inputs)
        return _released(scope, output), _Pullback(scope, flat, spec, flat_inputs, in_spec), _released(scope, aux)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(func(*primals), pullback): pullback(cotangents) gives the product of the cotangents, structured as the output, with the
    Jacobian, one for each primal. With `has_aux`, (output, pullback, aux)."""
    output, pull_back, aux = pullback(func, primals, None, has_aux)
    return (output, pull_back, aux) if has_aux else (output, pull_back)


def standard_basis(tensors: Sequence[Tensor], start: int = 0, count: int | None = None) -> list[Any]:
    """Rows `start` to `start + count` of the identity over all elements of all tensors, cut into (rows, *shape of the tensor) each."""
    from flambeau.ops.creation import arange, eye

    total = sum(t.numel() for t in tensors)
    made = []
    at = 0
    for t in tensors:
        n = t.numel()
        if len(tensors) == 1 and count is None:
            rows = eye(n, dtype=t.dtype)
        else:
            rows = (arange(start, start + (total if count is None else count)).unsqueeze(1) == arange(at, at + n)).to(t.dtype)  # type: ignore[attr-defined]
        made.append(rows.reshape(rows.shape[0], *t.shape))  # type: ignore[attr-defined]
        at += n
    return made


def jacrev(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function that computes the Jacobian of `func` with respect to the arguments at `argnums`, by reverse mode.

    For each output of shape S and each such argument of shape T, a tensor of shape S + T, structured as the outputs, and in each as the
    arguments. `chunk_size`: so many rows at a time (1: one by one, without vmap).
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    def wrapper(*args: Any) -> Any:
        require_real("jacrev", args, "inputs")
        output, pull_back, aux = pullback(func, args, argnums, has_aux)
        flat, out_spec = tree_flatten(output)
        require_real("jacrev", flat, "outputs")
        primals, in_spec = tree_flatten(chosen(args, argnums))
        rows = [t.numel() for t in flat]
        found = _jacobian_rows(pull_back, flat, out_spec, sum(rows), chunk_size)
        per_input = [j.split(rows, 0) for j in found]
        jacobians = [[part.reshape((*o.shape, *p.shape)) for part, p in zip(parts, primals, strict=True)]
                     for o, parts in zip(flat, zip(*per_input, strict=True), strict=True)]  # fmt: skip
        trees = [tree_unflatten(row, in_spec) for row in jacobians]
        result = tree_unflatten([t[0] for t in trees] if isinstance(argnums, int) else trees, out_spec)
        return (result, aux) if has_aux else result

    return like(func, wrapper)


def _jacobian_rows(pull_back: _Pullback, outputs: list[Any], spec: TreeSpec, total: int, chunk: int | None) -> list[Any]:
    """For each input (rows of all outputs, *shape)."""
    from flambeau.ops.concatenated import cat

    if chunk is None or chunk >= total:
        return tree_flatten(vmap(pull_back)(tree_unflatten(standard_basis(outputs), spec)))[0]
    parts = []
    for start in range(0, total, chunk):
        basis = standard_basis(outputs, start, min(chunk, total - start))
        if chunk == 1:
            found = tree_flatten(pull_back(tree_unflatten([b.squeeze(0) for b in basis], spec)))[0]
            parts.append([g.unsqueeze(0) for g in found])
        else:
            parts.append(tree_flatten(vmap(pull_back)(tree_unflatten(basis, spec)))[0])
    return [cat(columns) for columns in zip(*parts, strict=True)]
