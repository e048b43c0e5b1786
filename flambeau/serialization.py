"""torch.serialization: saving, loading, and the list of what a checkpoint may contain."""

from collections.abc import Callable
from typing import Any

from flambeau.devices import device
from flambeau.io.checkpoint import get_unsafe_globals_in_checkpoint, load, save
from flambeau.io.globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from flambeau.io.options import (
    MAP_PRIVATE,
    MAP_SHARED,
    LoadEndianness,
    SourceChangeWarning,
    check_module_version_greater_or_equal,
    default_restore_location,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    location_tag,
    mkdtemp,
    normalize_storage_type,
    register_package,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
    storage_to_tensor_type,
    validate_cuda_device,
    validate_hpu_device,
)  # fmt: skip
from flambeau.storage import LEGACY
from flambeau.types import Storage

MAP_LOCATION = Callable[[Storage, str], Storage] | device | str | dict[str, str] | None  # what `load` accepts as map_location
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
DEFAULT_PROTOCOL = 2


class StorageType:
    """What stands for a legacy storage class while a file is read: its name and dtype."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype = LEGACY[name].dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def _is_zipfile(f: Any) -> bool:
    """Whether a binary file object is at the beginning of what `save` writes today."""
    start = f.tell()
    head = f.read(4)
    f.seek(start)
    return bool(head == b"PK\x03\x04")


__all__ = [
    "MAP_PRIVATE", "MAP_SHARED",
    "LoadEndianness", "SourceChangeWarning", "StorageType", "add_safe_globals", "check_module_version_greater_or_equal", "clear_safe_globals",
    "default_restore_location", "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options", "get_safe_globals",
    "get_unsafe_globals_in_checkpoint", "load", "location_tag", "mkdtemp", "normalize_storage_type", "register_package", "safe_globals", "save",
    "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options", "skip_data", "storage_to_tensor_type",
    "validate_cuda_device", "validate_hpu_device",
]  # fmt: skip


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.serialization", globals())
