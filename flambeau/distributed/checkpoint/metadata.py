"""torch.distributed.checkpoint.metadata: what a checkpoint of several processes holds, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.tensor_properties import _MEM_FORMAT_ENCODING as _MEM_FORMAT_ENCODING
from flambeau.distributed.tensor_properties import TensorProperties as TensorProperties
from flambeau.trace.meta import Size


@dataclass
class ChunkStorageMetadata:
    """A part of a tensor: where it begins and how large it is."""

    offsets: Any
    sizes: Any


@dataclass
class TensorStorageMetadata:
    """A tensor: its whole size, and its parts."""

    properties: TensorProperties
    size: Any
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """Something else than a tensor."""


@dataclass
class StorageMeta:
    """Which checkpoint it is."""

    checkpoint_id: Any = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """A checkpoint: names, where each part lies in files, and the names' paths in the nested state."""

    state_dict_metadata: dict[str, Any]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


class MetadataIndex:
    """The name of a part: of which tensor, and where it begins."""

    offset: Any = None  # PyTorch's files leave out what is None
    index: int | None = None

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        self.fqn, self.offset, self.index = fqn, None if offset is None else Size(tuple(offset)), index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetadataIndex) and (self.fqn, self.offset) == (other.fqn, other.offset)

    def __hash__(self) -> int:
        return hash((self.fqn, self.offset))

    def __repr__(self) -> str:
        return f"MetadataIndex(fqn={self.fqn!r}, offset={self.offset}, index={self.index})"
