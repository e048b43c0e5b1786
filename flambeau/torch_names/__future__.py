"""torch.__future__: what conversions of modules (`.to`, `.float`, ...) do with parameters: change them, replace them, or swap them."""

from __future__ import annotations

_overwrite = _swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """True: conversions put new Parameter objects into the module, in place of changing those that are there."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What was set; False at first."""
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """True: conversions exchange the whole tensor under the Parameter object (torch.utils.swap_tensors), its class and attributes too."""
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """What was set; False at first."""
    return _swap
