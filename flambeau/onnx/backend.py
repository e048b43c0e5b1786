"""flambeau as a backend of the `onnx` package: prepare, run_model, run_node, as its own test suite calls them."""

from __future__ import annotations

from typing import Any

from flambeau.onnx.importing.module import Model, load, run
from flambeau.onnx.package import onnx


class Prepared:
    """A model that is ready to run."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """The outputs, as arrays, of inputs by place or by name."""
        return tuple(run(self.model, inputs if isinstance(inputs, dict) else list(inputs)))


class Backend:
    """The functions that the package asks of a backend."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **options: Any) -> bool:
        """True: what is not there is an error that says so."""
        return True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> Prepared:
        """A model, checked and made ready."""
        onnx("flambeau.onnx.backend").checker.check_model(model)
        return Prepared(load(model).eval())

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """The outputs of a model."""
        return cls.prepare(model, device, **options).run(inputs)


prepare, run_model, supports_device, is_compatible = Backend.prepare, Backend.run_model, Backend.supports_device, Backend.is_compatible
