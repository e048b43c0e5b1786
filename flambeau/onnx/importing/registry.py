"""ONNX's operators by their names, and what a node says to the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import flambeau
from flambeau.onnx.importing import values
from flambeau.tensor import Tensor

OPERATORS: Final[dict[tuple[str, str], Operator]] = {}
ML: Final = "ai.onnx.ml"
TRAINING: Final = "ai.onnx.preview.training"


class Operator:
    """A function that runs nodes: `run(node, *inputs)`. `raw`: it takes host arrays as they are; else they come as tensors."""

    def __init__(self, run: Callable[..., Any], raw: bool) -> None:
        self.run, self.raw = run, raw


class Call:
    """One node as its operator sees it: its name, the opset, its attributes by name, and which of its outputs have names."""

    def __init__(self, op: str, domain: str, version: int, attributes: dict[str, Any], outputs: list[str], name: str = "") -> None:
        self.op, self.domain, self.version, self.attributes, self.outputs, self.name = op, domain, version, attributes, outputs, name
        self.kept: dict[Any, Any] = {}  # what the operator has found out once
        self.proto: Any = None
        self.owner: Any = None  # the graph that the node is in

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def dtype(self, name: str, default: int | None = None) -> Any:
        """The dtype that an attribute names."""
        number = self.get(name, default)
        return None if number is None else values.dtype_of(number)

    def wants(self, i: int) -> bool:
        """Whether the model uses the output of this place."""
        return i < len(self.outputs) and bool(self.outputs[i])

    def ints(self, name: str, given: Any = None) -> list[int] | None:
        """Integers that older opsets have as an attribute and newer ones as an input; None if neither is there."""
        if given is not None:
            return values.ints(given)
        held = self.get(name)
        return None if held is None else [held] if isinstance(held, int) else list(held)

    def once(self, tensors: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What follows from tensors alone: made again if one of them is another or was written to, and where gradients are recorded."""
        if flambeau.is_grad_enabled():
            return make()
        now = state_of(tensors)
        kept = self.kept.get("once")
        if kept is None or kept[0] != now:
            kept = self.kept["once"] = (now, make(), tensors)  # the tensors are kept, so that no other gets their ids
        return kept[1]

    def refuse(self, what: str) -> NotImplementedError:
        """An error that says which node asks for something that is not there."""
        return NotImplementedError(f"flambeau.onnx: {self.op}{f' (node {self.name!r})' if self.name else ''}: {what}")


def state_of(tensors: Any) -> tuple[Any, ...]:
    """What tells whether tensors are the same and hold the same values."""
    return tuple([(id(t), t._version if isinstance(t, Tensor) and not t.is_inference() else 0) for t in tensors])


def operator(*names: str, domain: str = "", raw: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function runs the operators of these names."""

    def enter(run: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            OPERATORS[domain, name] = Operator(run, raw)
        return run

    return enter
