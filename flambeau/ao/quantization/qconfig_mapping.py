"""QConfigMapping: which parts of a model are quantized how."""

from __future__ import annotations

from typing import Any

from flambeau.ao.quantization.qconfig import get_default_qat_qconfig, get_default_qconfig


class QConfigMapping:
    """QConfigs for everything (`set_global`), for classes and functions (`set_object_type`), and for names; a later one of these wins."""

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: dict[Any, Any] = {}
        self.module_name_regex_qconfigs: dict[str, Any] = {}
        self.module_name_qconfigs: dict[str, Any] = {}

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        """The default."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: Any) -> QConfigMapping:
        """Of a class of modules, or a function."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        """Of modules whose names match."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        """Of one module and those inside."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def to_dict(self) -> dict[str, Any]:
        """As a dict: "", object_type, module_name_regex, module_name."""
        return {
            "": self.global_qconfig, "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()), "module_name": list(self.module_name_qconfigs.items()),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """The inverse of to_dict."""
        made = cls().set_global(qconfig_dict.get(""))
        for name in ("object_type", "module_name_regex", "module_name"):
            getattr(made, f"{name}_qconfigs").update(dict(qconfig_dict.get(name, ())))
        return made

    def of(self, name: str, kind: Any) -> Any:
        """The QConfig of a module or function."""
        import re

        at = name
        while at:
            if at in self.module_name_qconfigs:
                return self.module_name_qconfigs[at]
            at = at.rpartition(".")[0]
        for pattern, found in self.module_name_regex_qconfigs.items():
            if re.match(pattern, name):
                return found
        return self.object_type_qconfigs.get(kind, self.global_qconfig)


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """get_default_qconfig for everything."""
    return QConfigMapping().set_global(get_default_qconfig(backend, version))


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """get_default_qat_qconfig for everything."""
    return QConfigMapping().set_global(get_default_qat_qconfig(backend, version))
