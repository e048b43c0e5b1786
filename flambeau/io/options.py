"""Settings of saving and loading, and the places that storages come from: the parts of torch.serialization that are no reading or writing."""

from __future__ import annotations

import mmap
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

from flambeau import devices
from flambeau.devices import Device

MAP_SHARED, MAP_PRIVATE = mmap.MAP_SHARED, mmap.MAP_PRIVATE


class LoadEndianness(Enum):
    """The byte order of files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class SourceChangeWarning(Warning):
    """PyTorch's category for modules whose source has changed since they were saved; never given here."""


class _Settings(threading.local):
    endianness: LoadEndianness | None = None
    crc32 = True
    mmap_flags: int = MAP_PRIVATE
    skips_data = False


SETTINGS = _Settings()


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order of files that do not say theirs; None: this machine's."""
    return SETTINGS.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order of files that do not say theirs."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    SETTINGS.endianness = endianness


def get_crc32_options() -> bool:
    """Whether records get checksums."""
    return SETTINGS.crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Accepted; checksums are always written."""
    SETTINGS.crc32 = compute_crc32


def get_default_mmap_options() -> int | None:
    """The flags with which `load(mmap=True)` maps files: MAP_PRIVATE (changes stay in memory) or MAP_SHARED."""
    return SETTINGS.mmap_flags


class set_default_mmap_options:
    """Set the flags with which `load(mmap=True)` maps files; as a context manager, for a while."""

    def __init__(self, flags: int) -> None:
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError(f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}")
        self.prev = SETTINGS.mmap_flags
        SETTINGS.mmap_flags = flags

    def __enter__(self) -> None:
        return None

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        SETTINGS.mmap_flags = self.prev


class skip_data:
    """Inside, `save` writes zeros in the place of elements (their places can be filled later), and `load` leaves them uninitialised."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = SETTINGS.skips_data
        SETTINGS.skips_data = True

    def __exit__(self, type: Any, value: Any, tb: Any) -> None:
        SETTINGS.skips_data = self._before


# -- locations --------------------------------------------------------------------------------------------------------
_Tagger = Callable[[Any], str | None]
_Deserializer = Callable[[Any, str], Any]
_packages: list[tuple[int, _Tagger, _Deserializer]] = []


def register_package(priority: int, tagger: _Tagger, deserializer: _Deserializer) -> None:
    """Add a kind of location: `tagger(storage)` names it, `deserializer(storage, location)` moves a loaded storage; None: not theirs."""
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def location_tag(storage: Any) -> str:
    """The location that a storage is saved with: "cpu", unless a registered package says otherwise."""
    for _, tagger, _ in _packages:
        found = tagger(storage)
        if found:
            return found
    return "cpu"


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage where it belongs: on the CPU, wherever it was, unless that is `meta`, or a registered package moves it."""
    for _, _, deserializer in _packages:
        found = deserializer(storage, location)
        if found is not None:
            return found
    return storage.to(device=location) if location == "meta" else storage


def restorer(map_location: Any) -> Callable[[Any, str], Any]:
    """`(storage, location) -> storage` for the `map_location` of load: None, a device or its name, a dict, or a function."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, bytes):
        map_location = map_location.decode()
    if isinstance(map_location, (str, Device)):
        devices.check(map_location)
        return lambda storage, location: default_restore_location(storage, str(map_location))
    if isinstance(map_location, dict):

        def mapped(storage: Any, location: str) -> Any:
            if location in map_location:
                location = map_location[location]
                devices.check(location)
            return default_restore_location(storage, str(location))

        return mapped
    if not callable(map_location):
        raise TypeError(f"load: map_location must be a device, a string, a dict, a function or None, not {type(map_location).__name__}")

    def called(storage: Any, location: str) -> Any:
        found = map_location(storage, location)
        return default_restore_location(storage, location) if found is None else found

    return called


def validate_cuda_device(location: Any) -> int:
    """Always raises RuntimeError: there is no CUDA device."""
    raise RuntimeError(
        f"Attempting to deserialize object on a CUDA device ({location}) but torch.cuda.is_available() is False. If you are running on a "
        "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
    )


def validate_hpu_device(location: Any) -> int:
    """Always raises RuntimeError: there is no HPU."""
    raise RuntimeError(f"Attempting to deserialize object on a HPU device ({location}) but there is none; use map_location='cpu'.")


# -- small public helpers ---------------------------------------------------------------------------------------------
def normalize_storage_type(storage_type: Any) -> Any:
    """torch.FloatStorage for itself or for a class of that name."""
    import flambeau

    return getattr(flambeau, storage_type.__name__)


def storage_to_tensor_type(storage: Any) -> Any:
    """torch.FloatTensor for a FloatStorage."""
    import flambeau

    return getattr(flambeau, storage.pickle_storage_type().replace("Storage", "Tensor"))


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True) -> bool:
    """Whether `module.__version__` is at least this tuple; a malformed one raises RuntimeError, or counts as enough."""
    try:
        pairs = zip(req_version_tuple, module.__version__.split("."), strict=False)
        found = tuple(type(required)(part) for required, part in pairs)
    except Exception as error:
        text = f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be compared with {req_version_tuple}"
        if error_if_malformed:
            raise RuntimeError(text) from error
        return True
    return found >= tuple(req_version_tuple)


@contextmanager
def mkdtemp() -> Iterator[str]:
    """A temporary folder that goes away at the end of the block."""
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        with suppress(OSError):
            shutil.rmtree(path)
