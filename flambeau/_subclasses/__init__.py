"""torch._subclasses: tensors without values: there are none here."""

from __future__ import annotations

from flambeau._subclasses.fake_tensor import FakeTensor as FakeTensor
from flambeau._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
