"""The Python array API standard (data-apis.org, version 2024.12) over flambeau's tensors: `tensor.__array_namespace__()`.

The unsigned dtypes uint16, uint32 and uint64 are not there, as flambeau has none: sums of uint8 are int64.
"""

from flambeau import (
    bool,
    complex64,
    complex128,
    e,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
)
from flambeau.array_api import elementwise, fft, linalg
from flambeau.array_api.creation import *
from flambeau.array_api.elementwise import *
from flambeau.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from flambeau.array_api.manipulation import *
from flambeau.array_api.statistics import *
from flambeau.array_api.types import *
from flambeau.array_api.types import __array_namespace_info__

__array_api_version__ = "2024.12"

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.array_api", globals())
