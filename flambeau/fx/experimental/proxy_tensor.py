"""torch.fx.experimental.proxy_tensor: functions as graphs of aten's operators, by tensors that stand for nodes."""

from __future__ import annotations

from flambeau.export.make_fx import ProxyTorchDispatchMode, disable_proxy_modes_tracing, get_isolated_graphmodule, get_proxy_mode, make_fx

__all__ = ["ProxyTorchDispatchMode", "disable_proxy_modes_tracing", "get_isolated_graphmodule", "get_proxy_mode", "make_fx"]
