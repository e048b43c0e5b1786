"""torch._subclasses: tensors without values: fake tensors, over the device `meta`."""

from __future__ import annotations

from flambeau._subclasses.fake_tensor import FakeTensor as FakeTensor
from flambeau._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
