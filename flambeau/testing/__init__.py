"""torch.testing: closeness with PyTorch's tolerances and texts, test tensors; and the differential tester (compare.py)."""

from flambeau.testing import _utils as _utils
from flambeau.testing.close import assert_allclose, assert_close
from flambeau.testing.compare import Difference, Input, compare, describe
from flambeau.testing.creation import make_tensor
from flambeau.testing.file_check import FileCheck

__all__ = ["Difference", "FileCheck", "Input", "assert_allclose", "assert_close", "compare", "describe", "make_tensor"]

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.testing", globals())
