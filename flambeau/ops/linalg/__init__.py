"""Linear algebra: decompositions and solutions as host calls, norms and products as compositions, with gradients."""

from flambeau.ops.linalg.checks import LinAlgError as LinAlgError
from flambeau.ops.linalg.norms import matrix_norm as matrix_norm
