"""torch.ao.quantization.backend_config: the names of backends; what a backend can do is not set here but in fx.roles."""

from __future__ import annotations

from typing import Any, Final, NoReturn

_NAMES: Final = ("native", "fbgemm", "x86", "qnnpack", "onednn")


class BackendConfig:
    """The name of a backend, for the argument `backend_config`; patterns of one's own are refused."""

    def __init__(self, name: str = "native") -> None:
        if name not in _NAMES:
            raise NotImplementedError(f"BackendConfig: there is one set of operations in flambeau, under the names {list(_NAMES)}; got {name!r}")
        self.name = name

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "BackendConfig: patterns of one's own are not supported in flambeau; a QConfigMapping says which parts are quantized (None for those that are not)"
        )

    set_backend_pattern_config = set_backend_pattern_configs = from_dict = _refuse

    def set_name(self, name: str) -> BackendConfig:
        """Another of the names."""
        self.__init__(name)  # type: ignore[misc]
        return self


def get_native_backend_config() -> BackendConfig:
    """The only one."""
    return BackendConfig("native")


def get_fbgemm_backend_config() -> BackendConfig:
    """As get_native_backend_config."""
    return BackendConfig("fbgemm")


def taken(given: Any, function: str) -> None:
    """TypeError for what is no BackendConfig."""
    if given is not None and not isinstance(given, BackendConfig):
        raise TypeError(f"{function}: backend_config: expected a BackendConfig or None, got {type(given).__name__}; leave it out")
