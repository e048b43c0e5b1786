"""torch.autograd.functional: products with Jacobians and Hessians, and the matrices, of a function of tensors.

`inputs` is a tensor or a tuple of them, and so is what the function returns. `create_graph`: the results can be differentiated again.
`strict`: RuntimeError where an output or a derivative does not depend on an input, instead of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import autograd
from flambeau.grad_modes import enable_grad, is_grad_enabled, set_grad_enabled
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = Any  # a tensor, or a tuple of tensors


@upward
def tracking_scope(follows: bool) -> Any:
    """One grad or vjp: the leaves that it made (func/tracking.py)."""
    raise NotImplementedError


@upward
def standard_basis(tensors: Sequence[Any]) -> list[Any]:
    """The rows of the identity over all elements of all tensors (func/reverse.py)."""
    raise NotImplementedError


@upward
def jacfwd(func: Callable[..., Any], argnums: int | tuple[int, ...]) -> Callable[..., Any]:
    """The Jacobian by forward mode (func/forward_mode.py)."""
    raise NotImplementedError


def _as_tuple(x: Any, what: str, name: str) -> tuple[bool, tuple[Tensor, ...]]:
    """(whether it was a tuple, the tensors)."""
    from flambeau.tensor import Tensor

    is_tuple = isinstance(x, tuple)
    found = x if is_tuple else (x,)
    for i, t in enumerate(found):
        if not isinstance(t, Tensor):
            which = f"value at index {i}" if is_tuple else f"given {what}"
            raise TypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the {which} has type {type(t)}.")
    return is_tuple, found


def _tracked(inputs: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    """New names of the inputs, which differ from the same tensors where the function has them from elsewhere."""
    scope = tracking_scope(create_graph)
    return tuple([scope.track(t) for t in inputs])


def _results(res: Any, create_graph: bool) -> Any:
    if isinstance(res, tuple):
        return tuple([_results(r, create_graph) for r in res])
    return res if create_graph else res.detach()


def _unpacked(res: tuple[Any, ...], is_tuple: bool) -> Any:
    return res if is_tuple else res[0]


def _directions(v: Any, like: Sequence[Any], is_tuple: bool, name: str, missing: str, create_graph: bool) -> list[Any]:
    """The vector of a product: given, or one for a single element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(missing)
        return [None]
    _, found = _as_tuple(v, "v", name)
    if len(found) != len(like):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(found)}." if is_tuple else "The given v should contain a single Tensor."
        )
    for i, (a, b) in enumerate(zip(found, like, strict=True)):
        if tuple(a.shape) != tuple(b.shape):
            raise RuntimeError(f"{f'Entry {i} in ' if is_tuple else ''}v has invalid size: should be {b.shape} but got {a.shape}.")
    return [t if create_graph else t.detach() for t in found]


_OF_INPUT = "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."

_STRICT = {
    "outputs": "Output {i} of the user-provided function does not require gradients. The outputs must be computed in a differentiable manner from "
    "the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {i} is independent of the inputs of the user-provided function. This is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to input {i} is independent of "
    "the input. This is not allowed in strict mode. You should ensure that your function is twice differentiable and that the jacobian depends on "
    "the inputs (this would be violated by a linear function for example).",
    "hessian": "The hessian of the user-provided function with respect to input {i} is independent of the input. This is not allowed in strict "
    "mode. You should ensure that your function is thrice differentiable and that the hessian depends on the inputs.",
}


def _check(tensors: Sequence[Any], stage: str, strict: bool) -> None:
    """In strict mode every tensor exists and requires gradients."""
    for i, t in enumerate(tensors if strict else ()):
        if t is None:
            raise RuntimeError(f"The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.")
        if not t.requires_grad:
            raise RuntimeError(_STRICT[stage].format(i=i))


_INDEPENDENT = {
    "back": "The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using the double backward trick to "
    "compute forward mode gradients. This is not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {i}. This is not allowed in strict mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {i} in the grad_jacobian. This is not allowed in strict "
    "mode as it prevents from using the double backward trick to replace forward mode AD.",
}


def _filled(gradients: Sequence[Any], like: Sequence[Any], strict: bool, create_graph: bool, stage: str) -> tuple[Any, ...]:
    """Zeros where there is no gradient; in strict mode an error."""
    from flambeau.ops.creation import zeros_like

    made = []
    for i, (g, t) in enumerate(zip(gradients, like, strict=True)):
        if g is None:
            if strict:
                raise RuntimeError(_INDEPENDENT[stage].format(i=i))
            g = zeros_like(t.detach())
        elif strict and create_graph and not g.requires_grad:
            what = "hessian" if "double" in stage else "jacobian"
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {i}. This is not allowed in strict mode when create_graph=True."
            )
        made.append(g)
    return tuple(made)


def _gradients(
    outputs: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any] | None, create_graph: bool, retain: bool | None = None, batched: bool = False
) -> tuple[Any, ...]:
    """autograd.grad of those outputs that can be differentiated; None where there is no gradient."""
    pairs = [(o, w) for o, w in zip(outputs, weights or [None] * len(outputs), strict=True) if o is not None and o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return autograd.grad([o for o, _ in pairs], list(inputs), [w for _, w in pairs], retain, create_graph, allow_unused=True, is_grads_batched=batched)


def _outputs(func: Callable[..., Any], inputs: Sequence[Any], name: str, strict: bool) -> tuple[bool, tuple[Any, ...]]:
    is_tuple, outputs = _as_tuple(func(*inputs), "outputs of the user-provided function", name)
    _check(outputs, "outputs", strict)
    return is_tuple, outputs


def vjp(func: Callable[..., Tensors], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), v^T J): the product of `v`, of the outputs' shapes, with the Jacobian; of the inputs' shapes."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "vjp")
        tracked = _tracked(given, create_graph)
        out_tuple, outputs = _outputs(func, tracked, "vjp", strict)
        missing = "The vector v can only be None if the user-provided function returns a single Tensor with a single element."
        weights = _directions(v, outputs, out_tuple, "vjp", missing, create_graph)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        found = _filled(_gradients(outputs, tracked, weights, create_graph), tracked, strict, create_graph, "back")
    return _unpacked(_results(outputs, create_graph), out_tuple), _unpacked(_results(found, create_graph), is_tuple)


def _transposed(results: Sequence[Any], weights: Sequence[Any], v: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    """The double-backward trick: `results` are linear in `weights`; the transpose of that map at `v`."""
    with set_grad_enabled(create_graph or is_grad_enabled()):
        return _gradients(results, weights, v, create_graph)


def jvp(func: Callable[..., Tensors], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), J v): the product of the Jacobian with `v`, of the inputs' shapes; of the outputs' shapes."""
    from flambeau.ops.creation import zeros_like

    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "jvp")
        tracked = _tracked(given, create_graph)
        directions = _directions(v, tracked, is_tuple, "jvp", _OF_INPUT, create_graph)
        out_tuple, outputs = _outputs(func, tracked, "jvp", strict)
        weights = _tracked([zeros_like(o.detach()) for o in outputs], False)
        gradients = _gradients(outputs, tracked, weights, True)
        _check(gradients, "grad_inputs", strict)
    found = _filled(_transposed(gradients, weights, directions, create_graph), outputs, strict, create_graph, "back_trick")
    return _unpacked(_results(outputs, create_graph), out_tuple), _unpacked(_results(found, create_graph), out_tuple)


def jacobian(
    func: Callable[..., Tensors], inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian: for an output of shape S and an input of shape T a tensor of shape S + T; tuples of them where there are several.

    `vectorize`: all rows in one backward pass. `strategy`: "forward-mode" goes column by column, which needs `vectorize`.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than inputs, "forward-mode" '
            'tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet). Please '
                'either set `create_graph=False` or `strategy="reverse-mode"`.'
            )
        return _forward_jacobian(func, inputs, strict, vectorize)
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "jacobian")
        tracked = _tracked(given, create_graph)
        out_tuple, outputs = _outputs(func, tracked, "jacobian", strict)
        if vectorize:
            if strict:
                raise RuntimeError(
                    "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either set "
                    "`strict=False` or `vectorize=False`."
                )
            rows = _all_rows(outputs, tracked, create_graph)
        else:
            rows = tuple([_rows_of(i, o, tracked, strict, create_graph) for i, o in enumerate(outputs)])
        found = tuple([tuple([j.reshape((*o.shape, *t.shape)) for j, t in zip(row, tracked, strict=True)]) for row, o in zip(rows, outputs, strict=True)])
    found = _results(found, create_graph)
    return _unpacked(tuple([_unpacked(row, is_tuple) for row in found]), out_tuple)


def _all_rows(outputs: Sequence[Any], inputs: Sequence[Any], create_graph: bool) -> tuple[tuple[Any, ...], ...]:
    """For each output and input the rows of the Jacobian, from one batched pass."""
    from flambeau.ops.creation import zeros_like

    sizes = [o.numel() for o in outputs]
    found = _gradients(outputs, inputs, standard_basis(outputs), create_graph, create_graph, True)
    whole = [zeros_like(t.detach()).expand(sum(sizes), *t.shape) if g is None else g for g, t in zip(found, inputs, strict=True)]  # type: ignore[attr-defined]
    return tuple(zip(*[g.split(sizes, 0) for g in whole], strict=True))


def _rows_of(number: int, output: Any, inputs: Sequence[Any], strict: bool, create_graph: bool) -> tuple[Any, ...]:
    """The rows of one output, one pass each."""
    from flambeau.ops.concatenated import stack
    from flambeau.ops.creation import zeros_like

    columns: list[list[Any]] = [[] for _ in inputs]
    flat = output.reshape(-1)
    for j in range(output.numel()):
        for i, (g, t) in enumerate(zip(_gradients([flat[j]], inputs, None, create_graph, True), inputs, strict=True)):
            if g is None and strict:
                raise RuntimeError(f"Output {number} of the user-provided function is independent of input {i}. This is not allowed in strict mode.")
            if g is not None and strict and create_graph and not g.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input {number}. This is not allowed in strict mode when create_graph=True."
                )
            columns[i].append(zeros_like(t.detach()) if g is None else g)
    return tuple([stack(c) if c else t.new_zeros((0, *t.shape)) for c, t in zip(columns, inputs, strict=True)])


def _forward_jacobian(func: Callable[..., Any], inputs: Any, strict: bool, vectorize: bool) -> Any:
    if strict:
        raise RuntimeError(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either set '
            '`strict=False` or `strategy="reverse-mode"`.'
        )
    is_tuple, given = _as_tuple(inputs, "inputs", "jacobian")
    if not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for `vectorize=True`.")
    return jacfwd(func, tuple(range(len(given))) if is_tuple else 0)(*given)


def hessian(
    func: Callable[..., Any], inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function with one value: the Jacobian of its Jacobian."""
    is_tuple, given = _as_tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def single(*xs: Any) -> Any:
        return _single(func, xs, "hessian", strict).squeeze()

    def jacobians(*xs: Any) -> Any:
        found = jacobian(single, xs, create_graph=True)
        if outer_jacobian_strategy == "reverse-mode":
            _check(found, "jacobian", strict)
        return found

    found = jacobian(jacobians, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return _unpacked(tuple([_unpacked(row, is_tuple) for row in found]), is_tuple)


def _single(func: Callable[..., Any], inputs: Sequence[Any], name: str, strict: bool) -> Any:
    """The one value of a function."""
    is_tuple, outputs = _outputs(func, inputs, name, strict)
    if is_tuple:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
    return outputs[0]


def vhp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), v^T H): the product of `v`, of the inputs' shapes, with the Hessian."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "vhp")
        tracked = _tracked(given, create_graph)
        directions = _directions(v, tracked, is_tuple, "vhp", _OF_INPUT, create_graph)
        output = _single(func, tracked, "vhp", strict)
        first = _gradients([output], tracked, None, True)
        _check(first, "jacobian", strict)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        found = _filled(_gradients(first, tracked, directions, create_graph), tracked, strict, create_graph, "double_back")
    return _results(output, create_graph), _unpacked(_results(found, create_graph), is_tuple)


def hvp(func: Callable[..., Any], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), H v): the product of the Hessian with `v`, of the inputs' shapes."""
    from flambeau.ops.creation import zeros_like

    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "hvp")
        tracked = _tracked(given, create_graph)
        directions = _directions(v, tracked, is_tuple, "hvp", _OF_INPUT, create_graph)
        output = _single(func, tracked, "hvp", strict)
        first = _gradients([output], tracked, None, True)
        _check(first, "jacobian", strict)
        weights = _tracked([zeros_like(t.detach()) for t in tracked], False)
        second = _gradients(first, tracked, weights, True)
        _check(second, "hessian", strict)
    found = _filled(_transposed(second, weights, directions, create_graph), tracked, strict, create_graph, "double_back_trick")
    return _results(output, create_graph), _unpacked(_results(found, create_graph), is_tuple)


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("autograd.functional", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.autograd.functional", globals())
