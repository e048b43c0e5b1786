"""Gradients over traces, and PyTorch's `torch.autograd` namespace.

differentiate (one region of nodes) -> segment (what outlives its trace) -> engine (backward, grad); function (custom
gradients), checkpoint, modes, hooks, gradcheck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MappingView
from typing import TYPE_CHECKING, Any

from flambeau.ops.signatures import flag
from flambeau.tracebacks import shorten

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def _list(x: Any) -> list[Any]:
    """Tensors, those of graph.GradientEdge among them: one, or any iterable of them (`model.parameters()`, `params.values()`)."""
    several = isinstance(x, (tuple, list, Iterator, MappingView)) and not hasattr(x, "ownership_token")
    items = list(x) if several else [x]
    return [_tensor_of(item) if hasattr(item, "ownership_token") else item for item in items]


def _tensor_of(edge: Any) -> Any:
    from flambeau.autograd.node import tensor_of

    return tensor_of(edge)


def _wrong(name: str, argument: str, tensors: Any, inputs: Any) -> Exception | None:
    """What a failed call was given that no tensor is, as an error of PyTorch's type."""
    from flambeau.tensor import Tensor

    if not isinstance(tensors, (Tensor, Iterable)) and not hasattr(tensors, "ownership_token"):
        return TypeError(f"{name}(): argument '{argument}' must be a Tensor or several, not {type(tensors).__name__}")
    for x in _list(tensors):
        if not isinstance(x, Tensor):
            return AssertionError(f"{name}(): Expected output to be a torch.Tensor: argument '{argument}' holds {type(x).__name__}")
    for x in () if inputs is None else _list(inputs):
        if not isinstance(x, Tensor):
            return RuntimeError(f"{name}(): all inputs have to be Tensors or GradientEdges, but got {type(x).__name__} in argument 'inputs'")
    return None


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:  # fmt: skip
    """Accumulate the gradients of `tensors`, weighted by `grad_tensors`, into the leaves' `.grad`."""
    try:
        from flambeau.autograd import engine

        roots = _list(tensors)
        grads = [None] * len(roots) if grad_tensors is None else _list(grad_tensors)
        retain = retain_graph is not None and flag("backward", "retain_graph", retain_graph)
        engine.backward(roots, grads, retain, flag("backward", "create_graph", create_graph), None if inputs is None else _list(inputs))
    except BaseException as error:
        shorten(error)
        told = _wrong("backward", "tensors", tensors, inputs)
        if told is None:
            raise
        raise told from None


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of the sum of `outputs` (weighted by `grad_outputs`) with respect to `inputs`; touches no `.grad`."""
    try:
        from flambeau.autograd import engine
        from flambeau.layouts import strided
        from flambeau.ops.creation import zeros_like

        roots, wanted = _list(outputs), _list(inputs)
        if not wanted:
            raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
        grads = [None] * len(roots) if grad_outputs is None else _list(grad_outputs)
        create_graph = flag("grad", "create_graph", create_graph)
        retain = create_graph if retain_graph is None else flag("grad", "retain_graph", retain_graph)
        if flag("grad", "materialize_grads", materialize_grads) and allow_unused is False:
            raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
        unused = materialize_grads or (allow_unused is not None and flag("grad", "allow_unused", allow_unused))
        sparse = [t if t.layout is not strided else None for t in wanted]  # what is differentiated of these are their values
        values = [t if s is None else s._data for t, s in zip(wanted, sparse, strict=True)]
        found = engine.grad(roots, values, grads, retain, create_graph, unused, is_grads_batched)
        if any(s is not None for s in sparse):
            found = tuple([g if s is None or g is None else s._with(g) for g, s in zip(found, sparse, strict=True)])
        if materialize_grads:
            if any(g is None and t._storage is None and t._history is not None for g, t in zip(found, wanted, strict=True)):
                raise RuntimeError(
                    "materialize_grads cannot be used when the given input is a GradientEdge that has no gradient: it has no shape to make one of"
                )
            return tuple([zeros_like(t, requires_grad=create_graph) if g is None else g for g, t in zip(found, wanted, strict=True)])
        return found
    except BaseException as error:
        shorten(error)
        told = _wrong("grad", "outputs", outputs, inputs)
        if told is None and inputs is None:
            told = TypeError("grad(): argument 'inputs' must be a Tensor or several, not NoneType")
        if told is None:
            raise
        raise told from None


_HOMES = {  # relative to this package
    "Function": ".function", "FunctionCtx": ".function", "no_grad": "..grad_modes", "enable_grad": "..grad_modes", "set_grad_enabled": "..grad_modes",
    "inference_mode": "..grad_modes", "is_view_replay_enabled": "..grad_modes", "gradcheck": ".gradcheck", "gradgradcheck": ".gradcheck",
    "detect_anomaly": ".anomaly_mode", "set_detect_anomaly": ".anomaly_mode", "NestedIOFunction": ".older", "enforce_grad_layout_policy": ".older",
    "set_multithreading_enabled": ".older", "is_multithreading_enabled": ".older", "Variable": ".variable",
}  # fmt: skip
_MODULES = ("anomaly_mode", "forward_ad", "functional", "grad_mode", "graph", "profiler", "variable")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name], __package__), name)
        globals()[name] = found
        _document("torch.autograd", {name: found})
        return found
    if name in _MODULES:
        return importlib.import_module(f"flambeau.autograd.{name}")
    from flambeau.names import otherwise

    return otherwise("torch.autograd", name, globals())


from flambeau.documentation import document as _document
from flambeau.lazy_package import keep_lazy_names as _keep_lazy_names
from flambeau.ops.guard import guard as _guard

_keep_lazy_names(__name__)
_guard("autograd", globals())
_document("torch.autograd", globals())
