"""torch.utils.flop_counter: counts of operations by what PyTorch's dispatcher sees, which is not there; flambeau.profiler counts its kernels'."""

from __future__ import annotations

from flambeau import absent as _absent

_refuse = _absent.refusal(
    NotImplementedError, "torch.utils.flop_counter is not there", "torch.profiler.profile(with_flops=True) counts operations of what has run"
)
_absent.define(globals(), "register_flop_formula(targets, get_raw=False) !", _refuse, "dispatcher: there is no")
_absent.classes(globals(), ["FlopCounterMode"], _refuse, "dispatcher: there is no")
