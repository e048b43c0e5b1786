"""torch._dynamo.exc: errors of PyTorch's reader of bytecode; none is raised here."""

from __future__ import annotations


class TorchDynamoException(RuntimeError):
    """The base of them."""


class Unsupported(TorchDynamoException):
    """Bytecode that cannot be read."""


class InternalTorchDynamoError(TorchDynamoException):
    """A fault of the reader."""


class BackendCompilerFailed(TorchDynamoException):
    """An error of a backend."""


class TensorifyScalarRestartAnalysis(TorchDynamoException):
    """A number is to become a tensor."""
