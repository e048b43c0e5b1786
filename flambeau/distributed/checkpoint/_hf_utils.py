"""torch.distributed.checkpoint._hf_utils: names, and what is written beside the tensors, of checkpoints in safetensors files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Final

from flambeau.runtime.whole_files import replacing

_metadata_fn: Final = "model.safetensors.index.json"
SUFFIX: Final = ".safetensors"
CUSTOM_METADATA_KEY: Final = "DCP_SHARDING_INFO"
SAVED_OFFSETS_KEY: Final = "saved_offsets"
DCP_VERSION_KEY: Final = "DCP_VERSION"
HF_DCP_VERSION: Final = 1.0
FORMAT_KEY: Final = "format"
FORMAT_VALUE: Final = "pt"
SHARDED_DIR_NAME: Final = "sharded"


@dataclass
class _HFStorageInfo:
    """Where a part lies: in which file, and of which shape and dtype it is."""

    relative_path: str
    shape: Any
    dtype: Any


def _gen_file_name(index: int, largest_index: int, shard_index: int | None = None) -> str:
    """The name of the file `index` of `largest_index`, of all processes or of one."""
    shard = "" if shard_index is None else f"shard-{shard_index:05}-"
    return f"{shard}model-{index:05}-of-{largest_index:05}{SUFFIX}"


def safetensors_in(folder: str) -> list[str]:
    """The paths of the safetensors files of a folder."""
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(SUFFIX))


def offsets_in(texts: dict[str, str]) -> dict[str, list[int]] | None:
    """Where the parts in a file begin, by their names, if its texts say so."""
    if not texts.get(CUSTOM_METADATA_KEY):
        return None
    return {name: list(entry[SAVED_OFFSETS_KEY]) for name, entry in json.loads(texts[CUSTOM_METADATA_KEY]).items()}


def texts_of(offsets: dict[str, Any]) -> dict[str, str]:
    """The texts of a file whose parts begin there."""
    told = {name: {SAVED_OFFSETS_KEY: list(offset)} for name, offset in offsets.items()}
    return {CUSTOM_METADATA_KEY: json.dumps(told), DCP_VERSION_KEY: str(HF_DCP_VERSION), FORMAT_KEY: FORMAT_VALUE}


def write_index(folder: str, nbytes: int, files: dict[str, str]) -> None:
    """The index: in which file each tensor is."""
    with replacing(os.path.join(folder, _metadata_fn)) as file:
        file.write(json.dumps({"metadata": {"total_size": nbytes}, "weight_map": files}, indent=2).encode())
