"""Quantized tensors: integers with a scale and a zero point, over which all operations are recorded compositions.

    q = torch.quantize_per_tensor(x, scale=0.1, zero_point=10, dtype=torch.quint8)
    q.int_repr()                     # the integers
    (q.int_repr() - 10) * 0.1        # what q.dequantize() is

`affine.py` has the arithmetic, `tensor.py` the class, `functions.py` what functions of torch make of it, `construct.py` torch's functions that
make and read quantized tensors, `operators.py` and `packed.py` what is torch.ops.quantized.
"""

from __future__ import annotations
