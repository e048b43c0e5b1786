"""torch.distributed.checkpoint.hf_storage: checkpoints as safetensors files with Hugging Face's names, as writers and readers that planners can be given to."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from flambeau.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from flambeau.distributed.checkpoint._files import _StorageInfo
from flambeau.distributed.checkpoint._hf_utils import SHARDED_DIR_NAME, _gen_file_name, _HFStorageInfo, offsets_in, safetensors_in, texts_of, write_index
from flambeau.distributed.checkpoint.default_planner import fill
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties, TensorStorageMetadata
from flambeau.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItem, WriteItemType
from flambeau.distributed.checkpoint.storage import WriteResult
from flambeau.futures import Future
from flambeau.io import safetensors
from flambeau.runtime.whole_files import replacing
from flambeau.trace.meta import Size


class HuggingFaceStorageWriter(FileSystemWriter):
    """A folder to write safetensors files to; tensors only.

    `fqn_to_index_mapping`: the number, from 1, of the file that each name is written to; all go to one file without it. `save_distributed`: every process
    writes its parts into files of its own, which with `enable_consolidation` lie in the folder `sharded`, and are then put together into files of whole
    tensors. Without it one process saves. `thread_count` and `thread_count_consolidation` are accepted.
    """

    def __init__(
        self, path: Any, fqn_to_index_mapping: dict[str, int] | None = None, thread_count: int = 1, save_distributed: bool = False,
        enable_consolidation: bool = False, thread_count_consolidation: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(path, thread_count=thread_count)
        self.fqn_to_index_mapping, self.save_distributed, self.enable_consolidation = fqn_to_index_mapping, save_distributed, enable_consolidation
        self.thread_count_consolidation = thread_count_consolidation
        self.consolidated_output_path: str | None = None
        self._aim(self.path)

    def _aim(self, path: str) -> None:
        self.consolidated_output_path = path if self.enable_consolidation else None
        self.path = os.path.join(path, SHARDED_DIR_NAME) if self.enable_consolidation else path

    def reset(self, checkpoint_id: Any = None) -> None:
        """A new checkpoint begins, in another folder if one is given."""
        super().reset(checkpoint_id)
        if checkpoint_id is not None:
            self._aim(self.path)

    def _number(self, name: str) -> int:
        if self.fqn_to_index_mapping is None:
            return 1
        if name not in self.fqn_to_index_mapping:
            raise KeyError(f"HuggingFaceStorageWriter: fqn_to_index_mapping says no file for {name!r}; give it the number of one")
        return self.fqn_to_index_mapping[name]

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan. ValueError for what is no tensor, KeyError for a name whose file is not known."""
        for item in plan.items:
            if item.type is WriteItemType.BYTE_IO:
                raise ValueError(
                    f"HuggingFaceStorageWriter: safetensors files hold tensors only, and {item.index.fqn!r} is none; save it with FileSystemWriter"
                )
            self._number(item.index.fqn)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Each plan with what the names of its files are made of. ValueError where two processes would write the same file."""
        if not self.save_distributed:
            writers: dict[int, int] = {}
            for rank, plan in enumerate(plans):
                for item in plan.items:
                    number = self._number(item.index.fqn)
                    if writers.setdefault(number, rank) != rank:
                        raise ValueError(
                            f"HuggingFaceStorageWriter: ranks {writers[number]} and {rank} would write the same file {number}; give save_distributed=True, or "
                            "let one process save the whole state, with no_dist=True"
                        )
        mapping = {} if self.fqn_to_index_mapping is None else {"fqn_to_index_mapping": self.fqn_to_index_mapping}
        shards: list[dict[str, Any]] = [{"shard_index": rank} if self.save_distributed else {} for rank in range(1, len(plans) + 1)]
        return [replace(plan, storage_data={**mapping, **shard}) for plan, shard in zip(plans, shards, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the tensors into this process's files."""
        files: dict[int, list[WriteItem]] = {}
        for item in plan.items:
            files.setdefault(self._number(item.index.fqn), []).append(item)
        largest = max(self.fqn_to_index_mapping.values()) if self.fqn_to_index_mapping else 1
        results = []
        for number, items in files.items():
            name = _gen_file_name(number, largest, plan.storage_data.get("shard_index"))
            tensors, offsets = {}, {}
            for item in items:
                assert item.tensor_data is not None
                if item.index.fqn in tensors:
                    raise ValueError(f"HuggingFaceStorageWriter: the plan has two parts of {item.index.fqn!r} for one file, which holds one of a name")
                tensor = tensors[item.index.fqn] = planner.resolve_data(item).detach()
                offsets[item.index.fqn] = item.tensor_data.chunk.offsets
                nbytes = tensor.numel() * tensor.element_size()
                results.append(WriteResult(item.index, nbytes, _StorageInfo(name, 0, nbytes)))
            with replacing(os.path.join(self.path, name)) as file:
                safetensors.write(file, tensors, texts_of(offsets))
                if self.sync_files:
                    file.flush()
                    os.fsync(file.fileno())
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Put the parts together, or write the index of one process's files. Parts that stay in files of their own have no index, as in PyTorch."""
        if self.save_distributed:
            if self.consolidated_output_path is not None:
                names = self.fqn_to_index_mapping or dict.fromkeys(metadata.state_dict_metadata, 1)
                consolidate_safetensors_files(self.path, self.consolidated_output_path, names, self.thread_count_consolidation)
            return
        written = [result for found in results for result in found]
        write_index(self.path, sum(r.storage_data.length for r in written), {r.index.fqn: r.storage_data.relative_path for r in written})


class HuggingFaceStorageReader(FileSystemReader):
    """A folder with safetensors files, of whole tensors or of parts. Each process reads the bytes of the tensors that it needs. `thread_count` is accepted."""

    def __init__(self, path: Any, thread_count: int = 1) -> None:
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the files hold. FileNotFoundError where there is none."""
        paths = safetensors_in(self.path)
        if not paths:
            raise FileNotFoundError(f"HuggingFaceStorageReader: {self.path} has no file that ends with .safetensors")
        found: dict[str, TensorStorageMetadata] = {}
        where = {}
        for path in paths:
            with safetensors.opened(path) as file:
                begins = offsets_in(file.metadata)
                for name in file.names():
                    kind, shape = file.kind(name)
                    offset = (0,) * len(shape) if begins is None else tuple(begins[name])
                    entry = found.setdefault(name, TensorStorageMetadata(TensorProperties(kind), Size((0,) * len(shape)), []))
                    entry.chunks.append(ChunkStorageMetadata(Size(offset), Size(shape)))
                    entry.size = Size([max(n, start + m) for n, start, m in zip(entry.size, offset, shape, strict=True)])
                    where[MetadataIndex(name, offset)] = _HFStorageInfo(path, Size(shape), kind)
        return Metadata(found, storage_data=where, storage_meta=StorageMeta())

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the planner's tensors. ValueError where one has another size."""
        files: dict[str, list[Any]] = {}
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                raise ValueError(f"HuggingFaceStorageReader: safetensors files hold tensors only, and {item.storage_index.fqn!r} is none")
            files.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        for path, items in files.items():
            with safetensors.opened(path) as file:
                for item in items:
                    fill(planner, item, file.tensor(item.storage_index.fqn))
        future: Future[None] = Future()
        future.set_result(None)
        return future
