"""ONNXProgram: an exported model with its protobuf, which can be saved, checked and run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

import flambeau
from flambeau.export.program import ExportedProgram
from flambeau.onnx.errors import OnnxExporterError
from flambeau.onnx.importing import values
from flambeau.onnx.importing.module import Model, load
from flambeau.onnx.package import onnx
from flambeau.tensor import Tensor
from flambeau.utils._pytree import tree_leaves

LARGEST: Final = (1 << 31) - (1 << 20)  # bytes: the protobuf ends at 2 GiB


class ONNXProgram:
    """What torch.onnx.export returns."""

    def __init__(self, model_proto: Any, exported_program: ExportedProgram | None) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program
        self._loaded: Model | None = None

    @property
    def model(self) -> Any:
        """The protobuf."""
        return self.model_proto

    def __call__(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """Run the model with flambeau's own operations, from the protobuf."""
        if self._loaded is None:
            self._loaded = load(self.model_proto)
        flat = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        names = self._loaded.input_names
        if len(flat) != len(names):
            raise ValueError(f"ONNXProgram: the model takes {len(names)} tensors ({', '.join(names)}), got {len(flat)}")
        with flambeau.no_grad():
            return [x.detach() if isinstance(x, Tensor) else x for x in self._loaded.run_list(self._loaded._arguments(tuple(flat), {}))]

    def call_reference(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """The same by the `onnx` package's reference implementation, which is slow."""
        from flambeau.onnx.package import part

        run = part("reference", "ONNXProgram.call_reference").ReferenceEvaluator(self.model_proto)
        flat = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        return [values.from_array(a) for a in run.run(None, dict(zip(run.input_names, [values.to_array(x) for x in flat], strict=True)))]

    def check(self, *args: Any, rtol: float = 1e-4, atol: float = 1e-5, **kwargs: Any) -> None:
        """OnnxExporterError unless the model gives what the exported program gives for these arguments."""
        assert self.exported_program is not None
        with flambeau.no_grad():
            made = tree_leaves(self.exported_program.module()(*args, **kwargs))
            wanted = [x if isinstance(x, Tensor) else flambeau.tensor(x) for x in made if x is not None]
        for name, ours, theirs in zip([o.name for o in self.model_proto.graph.output], self(*args, **kwargs), wanted, strict=True):
            if ours.shape != theirs.shape or ours.dtype is not theirs.dtype or not flambeau.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True):
                raise OnnxExporterError(f"torch.onnx.export: the output {name!r} of the model differs from the program's")

    def apply_weights(self, state_dict: Mapping[str, Any]) -> None:
        """Other values for initializers, by their names."""
        from flambeau.onnx.package import part

        held = {t.name: t for t in self.model_proto.graph.initializer}
        for name, t in state_dict.items():
            if name not in held:
                raise KeyError(f"ONNXProgram.apply_weights: the model has no initializer {name!r}")
            new = part("numpy_helper", "ONNXProgram").from_array(values.to_array(t), name)
            if list(new.dims) != list(held[name].dims) or new.data_type != held[name].data_type:
                raise ValueError(f"ONNXProgram.apply_weights: {name!r} is of shape {list(held[name].dims)}, got {t.dtype} of shape {list(t.shape)}")
            held[name].CopyFrom(new)
        self._loaded = None

    def optimize(self) -> None:
        """Nothing: constants are known when the model is written."""

    def release(self) -> None:
        """Let go of what running the model has made."""
        self._loaded = None

    def initialize_inference_session(self, *args: Any, **kwargs: Any) -> None:
        """Make the model ready to be called."""
        self._loaded = load(self.model_proto)

    def save(
        self, destination: str | os.PathLike[str], *, include_initializers: bool = True, keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:  # fmt: skip
        """Write the model; the tensors beside it as `NAME.data` if `external_data` is true or they have more than 2 GB.

        The path gets its content at the end, by a rename.
        """
        package = onnx("ONNXProgram.save")
        proto = self.model_proto
        if not include_initializers or keep_initializers_as_inputs:
            proto = package.ModelProto()
            proto.CopyFrom(self.model_proto)
            if keep_initializers_as_inputs:
                for t in self.model_proto.graph.initializer:
                    proto.graph.input.append(package.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
            if not include_initializers:
                del proto.graph.initializer[:]
        path = os.path.abspath(os.fspath(destination))
        apart = external_data or sum([len(t.raw_data) for t in proto.graph.initializer]) > LARGEST
        with tempfile.TemporaryDirectory(dir=os.path.dirname(path), prefix=".onnx-") as folder:
            made = os.path.join(folder, os.path.basename(path))
            beside = os.path.basename(path) + ".data"
            if apart:
                copy = package.ModelProto()
                copy.CopyFrom(proto)
                package.save_model(copy, made, save_as_external_data=True, all_tensors_to_one_file=True, location=beside, size_threshold=256)
            else:
                package.save_model(proto, made)
            if os.path.exists(os.path.join(folder, beside)):
                os.replace(os.path.join(folder, beside), os.path.join(os.path.dirname(path), beside))
            with open(made, "rb") as file:
                os.fsync(file.fileno())
            os.replace(made, path)

    def __repr__(self) -> str:
        return f"ONNXProgram(\n    model={onnx('ONNXProgram').printer.to_text(self.model_proto.graph)}\n)"
