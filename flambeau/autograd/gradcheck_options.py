"""What gradcheck looks at beside the numbers: inputs and outputs that it can take, gradients of zero and of nothing, and batches of them under vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.autograd.function import Function as CustomFunction
from flambeau.autograd.jacobians import Function, as_tuple, differentiable, is_number, is_sparse, is_tensor
from flambeau.trace.once import warn_here


class GradcheckError(RuntimeError):
    """The numeric and the analytic gradient differ, or something else of a gradient is wrong."""

    __module__ = "flambeau.autograd.gradcheck"  # where programs find it


def check_inputs(inputs: Sequence[Any]) -> None:
    """Refuse inputs whose numeric gradient cannot be found, and warn of what is no double."""
    import flambeau as torch

    some = False
    for i, x in enumerate(inputs):
        if not (is_tensor(x) and x.requires_grad):
            continue
        some = True
        if x.dtype not in (torch.float64, torch.complex128):
            warn_here(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will likely fail if all the inputs "
                "are not of double precision floating point or complex. "
            )
        content = x._values() if x.is_sparse else x.values() if is_sparse(x) else x
        if any(stride == 0 and size > 1 for stride, size in zip(content.stride(), content.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to compute the "
                "numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
            )
    if not some:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True.")


def check_outputs(outputs: Sequence[Any]) -> None:
    """Refuse sparse results."""
    if any(map(is_sparse, outputs)):
        raise ValueError("Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of fn for gradcheck.")


def multiplied_by_grad_output(outputs: Sequence[Any], inputs: Sequence[Any], masked: bool) -> None:
    """Gradients of zero are zeros, in the layout, dtype and sizes of their inputs."""
    import flambeau as torch

    if not outputs:
        return
    found = torch.autograd.grad(list(outputs), list(inputs), [torch.zeros_like(t).contiguous() for t in outputs], retain_graph=True, allow_unused=True)
    for g, x in zip(found, inputs, strict=True):
        if g is None:
            continue
        if g.layout is not torch.strided:
            if g.layout is not x.layout:
                raise GradcheckError(f"grad is incorrect layout ({g.layout} is not {x.layout})")
            kind = str(g.layout).replace("torch.", "").replace("_coo", "")
            for what in ("sparse_dim", "dense_dim"):
                n, wanted = getattr(g, what)(), getattr(x, what)()
                if n != wanted:
                    raise GradcheckError(f"grad is {kind} tensor, but has incorrect {what} {n}, expected {wanted}")
            g = g.to_dense()
        if not (torch.allclose(g, torch.zeros_like(g)) if masked else bool(g.eq(0).all())):
            raise GradcheckError("backward not multiplied by grad_output")
        for what in ("dtype", "device", "shape"):
            if getattr(g, what) != getattr(x, what):
                raise GradcheckError(f"grad is incorrect {dict(dtype='type', shape='size').get(what, what)}")


class _Undefined(CustomFunction):
    """The identity, whose gradient is nothing at all."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> None:
        return None


def undefined_backward(function: Function, inputs: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Gradients of results without a gradient are zeros or nothing: of all results, and of one at a time."""
    outputs = differentiable(function(*inputs))
    _without(outputs, set(range(len(outputs))), wanted)
    for i in range(len(outputs) if len(outputs) > 1 else 0):
        _without(differentiable(function(*inputs)), {i}, wanted)


def _without(outputs: Sequence[Any], undefined: set[int], wanted: Sequence[Any]) -> None:
    import flambeau as torch

    def advice() -> None:
        warn_here(
            "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may break existing callers of this "
            'function. If this is true for you, you can call this function with "check_undefined_grad=False" to disable the feature'
        )

    ends = [_Undefined.apply(t) if i in undefined else t for i, t in enumerate(outputs)]
    if not ends:
        return
    try:
        found = torch.autograd.grad(ends, list(wanted), [torch.zeros_like(t).contiguous() for t in ends], allow_unused=True)
    except RuntimeError as error:
        advice()
        raise GradcheckError(
            "Expected backward function to handle undefined output grads. A backward gets None, or zeros, for a result that has no gradient "
            "(ctx.set_materialize_grads)."
        ) from error
    if any(g is not None and not bool((g.to_dense() if is_sparse(g) else g).eq(0).all()) for g in found):
        advice()
        raise GradcheckError("Expected all input grads to be undefined or zero when all output grads are undefined or zero.")


def _duals(inputs: Sequence[Any], tangents: dict[int, Any]) -> list[Any]:
    from flambeau.autograd import forward_ad

    return [forward_ad.make_dual(x.detach(), tangents[i]) if i in tangents else x.detach() if is_tensor(x) else x for i, x in enumerate(inputs)]


def undefined_forward(function: Function, inputs: Sequence[Any]) -> None:
    """An input that has no tangent is one whose tangent is zero."""
    import flambeau as torch
    from flambeau.autograd import forward_ad

    generator = torch.Generator()
    wanted = [i for i, x in enumerate(inputs) if is_tensor(x) and x.requires_grad]
    with forward_ad.dual_level():
        random = {i: torch.rand(tuple(inputs[i].shape), dtype=torch.float64, generator=generator).to(inputs[i].dtype) for i in wanted}
        for i in wanted:
            found = []
            for tangents in ({**random, i: torch.zeros_like(inputs[i])}, {j: t for j, t in random.items() if j != i}):
                results = filter(is_number, as_tuple(function(*_duals(inputs, tangents))))
                found.append([forward_ad.unpack_dual(t)[1] for t in results])
            for o, (zero, none) in enumerate(zip(*found, strict=True)):
                if zero is not None and none is not None and not torch.allclose(zero, none):
                    raise GradcheckError(
                        f"Mismatch in tangent values for output with index: {o} when input {i} has an undefined tangent value. Got: {zero} but expected: {none}"
                    )


def _batched(one: Callable[[Any], Any], given: list[Any], what: str, output: int, switch: str) -> None:
    """Compare a function of each tensor with its vmap over all."""
    import flambeau as torch

    advice = (
        f"{what}. If this cannot be mended, `{switch}=False` leaves the check out: a function under vmap must not look at values, nor write to what is "
        "no part of it."
    )
    expected = [torch.stack(parts) for parts in zip(*[one(t) for t in given], strict=True)]
    try:
        result = torch.func.vmap(one)(torch.stack(given))
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{advice}") from error
    for i, (found, wanted) in enumerate(zip(result, expected, strict=True)):
        if not torch.allclose(found, wanted):
            raise GradcheckError(f"For output {output} and input {i}:\n\n{advice}\n\nGot:\n{found}\n\nExpected:\n{wanted}")


def batched_backward(output: Any, wanted: Sequence[Any], index: int) -> None:
    """A batch of gradients of one result under vmap is what each of them gives alone."""
    import flambeau as torch

    def one(v: Any) -> tuple[Any, ...]:
        found = torch.autograd.grad([output], list(wanted), [v], retain_graph=True, allow_unused=True)
        return tuple([torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)])

    what = "gradcheck or gradgradcheck failed while testing batched gradient computation"
    _batched(one, [torch.randn(tuple(output.shape), dtype=output.dtype) for _ in range(2)], what, index, "check_batched_grad")


def batched_forward(function: Function, inputs: Sequence[Any]) -> None:
    """A batch of tangents of one input under vmap is what each of them gives alone."""
    import flambeau as torch
    from flambeau.autograd import forward_ad

    for i, x in enumerate(inputs):
        if not (is_number(x) and x.requires_grad):
            continue

        def one(tangent: Any, i: int = i) -> tuple[Any, ...]:
            with forward_ad.dual_level():
                results = [t for t in as_tuple(function(*_duals(inputs, {i: tangent}))) if t is not None]
                pairs = [forward_ad.unpack_dual(t) for t in results]
                return tuple([torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs])

        what = "gradcheck failed while testing batched gradient computation with forward-mode AD"
        _batched(one, [torch.randn(tuple(x.shape), dtype=x.dtype) for _ in range(2)], what, i, "check_batched_forward_grad")
