"""torch.export.graph_signature: what the inputs and outputs of an exported graph are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


@dataclass
class TensorArgument:
    """A tensor, by the name of its node."""

    name: str


@dataclass
class SymIntArgument:
    """A size, by the name of its node."""

    name: str


@dataclass
class ConstantArgument:
    """A value that is part of the program."""

    name: str
    value: Any


class InputKind(Enum):
    """What an input is."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    """What an output is."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclass
class InputSpec:
    """One input: its kind, its node, and of what the module holds the name there."""

    kind: InputKind
    arg: Any
    target: str | None = None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass
class OutputSpec:
    """One output."""

    kind: OutputKind
    arg: Any
    target: str | None = None

    def __str__(self) -> str:
        return f"{self.arg.name}: {self.kind.name}{'' if self.target is None else f' target={self.target!r}'}"


@dataclass
class ExportGraphSignature:
    """All inputs and outputs of an exported graph, in order."""

    input_specs: list[InputSpec] = field(default_factory=list)
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _of(self, kind: InputKind) -> dict[str, str]:
        return {s.arg.name: str(s.target) for s in self.input_specs if s.kind is kind}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters in the module."""
        return tuple(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of the buffers in the module."""
        return tuple(self.inputs_to_buffers.values())

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """The names of the buffers that are not saved with the state."""
        return tuple([str(s.target) for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False])

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of the tensors that the program holds otherwise."""
        return tuple(self._of(InputKind.CONSTANT_TENSOR).values())

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """The parameter of each input that is one."""
        return self._of(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        """The buffer of each input that is one."""
        return self._of(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        """The constant of each input that is one."""
        return self._of(InputKind.CONSTANT_TENSOR)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """What the caller gives, by the names of nodes; constants by their values."""
        return tuple([s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in self.input_specs if s.kind is InputKind.USER_INPUT])

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """What the caller gets."""
        return tuple([s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT])

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        """The buffer that each output is the new value of."""
        return {s.arg.name: str(s.target) for s in self.output_specs if s.kind is OutputKind.BUFFER_MUTATION}

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        """The input that each output is the new value of."""
        return {s.arg.name: str(s.target) for s in self.output_specs if s.kind is OutputKind.USER_INPUT_MUTATION}

    def __str__(self) -> str:
        return "\n".join(["# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs), ""])
