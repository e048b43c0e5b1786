"""torch.fx.experimental.proxy_tensor: tracing by tensors that stand for nodes, which is not there: no such mode is active."""

from __future__ import annotations

from flambeau import absent as _absent

_refuse = _absent.refusal(NotImplementedError, "there are no proxy tensors", "torch.fx.symbolic_trace gives a program's graph")


def get_proxy_mode() -> None:
    """None: no such mode is active."""
    return


_absent.define(globals(), "make_fx(f, *args, **options) !", _refuse, "such tracer: there is no")
_absent.classes(globals(), ["ProxyTorchDispatchMode"], _refuse, "such tracer: there is no")
