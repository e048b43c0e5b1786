"""torch.distributed.checkpoint._consolidate_hf_safetensors: the safetensors files of several processes' parts, put together into files of whole tensors."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import ExitStack
from typing import Any

import flambeau
from flambeau.distributed.checkpoint._hf_utils import FORMAT_KEY, FORMAT_VALUE, _gen_file_name, offsets_in, safetensors_in, write_index
from flambeau.distributed.checkpoint._planned import Ranks
from flambeau.distributed.checkpoint.default_planner import narrowed
from flambeau.io import safetensors


def _consolidate(input_dir: str, output_dir: str, mapping: dict[str, int], largest: int) -> dict[str, tuple[str, int]]:
    """Write the files of the tensors of a mapping, one after another; (file, bytes) of each tensor."""
    names_of: dict[int, list[str]] = defaultdict(list)
    for name, index in mapping.items():
        names_of[index].append(name)
    found = {}
    with ExitStack() as stack:
        parts: dict[str, list[tuple[safetensors.Opened, list[int]]]] = defaultdict(list)
        for path in safetensors_in(input_dir):
            file = stack.enter_context(safetensors.opened(path))
            offsets = offsets_in(file.metadata)
            if offsets is None:
                raise ValueError(f"No DCP custom metadata found in safetensors file {path}. The file must be saved with DCP to be consolidated.")
            for name in file.names():
                parts[name].append((file, offsets[name]))
        missing = [name for name in mapping if name not in parts]
        if missing:
            raise ValueError(f"consolidate_safetensors_files: no file in {input_dir} has {', '.join(missing[:8])}, which the mapping names")
        os.makedirs(output_dir, exist_ok=True)
        for index, names in names_of.items():
            tensors = {name: _whole(name, parts[name]) for name in names}
            file_name = _gen_file_name(index, largest)
            safetensors.save_file(tensors, os.path.join(output_dir, file_name), {FORMAT_KEY: FORMAT_VALUE})
            found.update({name: (file_name, t.numel() * t.element_size()) for name, t in tensors.items()})
    return found


def _whole(name: str, parts: list[tuple[safetensors.Opened, list[int]]]) -> Any:
    """A tensor from its parts."""
    kinds = [file.kind(name) for file, _ in parts]
    size = [max(offset[d] + shape[d] for (_, offset), (_, shape) in zip(parts, kinds, strict=True)) for d in range(len(parts[0][1]))]
    whole = flambeau.empty(size, dtype=kinds[0][0])
    for (file, offset), (_, shape) in zip(parts, kinds, strict=True):
        narrowed(whole, offset, shape).copy_(file.tensor(name))
    return whole


def _index(output_dir: str, found: dict[str, tuple[str, int]]) -> None:
    write_index(output_dir, sum(nbytes for _, nbytes in found.values()), {name: file for name, (file, _) in found.items()})


def consolidate_safetensors_files(input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int], num_threads: int = 1) -> None:
    """Write whole tensors from the parts in a folder's files: each into the file of its number, and an index. `num_threads` is accepted.

    ValueError where a file does not say where its parts begin, or a name of the mapping is in none.
    """
    _index(output_dir, _consolidate(input_dir, output_dir, fqn_to_index_mapping, max(fqn_to_index_mapping.values())))


def consolidate_safetensors_files_on_every_rank(
    input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int], num_threads: int = 1, process_group: Any = None
) -> None:
    """The same by all processes, each of which writes some of the files."""
    ranks = Ranks(process_group, False)
    mine = {name: index for name, index in fqn_to_index_mapping.items() if index % ranks.size == ranks.rank}
    largest = max(fqn_to_index_mapping.values())
    everyone = ranks.all("write", lambda: _consolidate(input_dir, output_dir, mine, largest))
    ranks.first("write", lambda: _index(output_dir, {name: entry for found in everyone for name, entry in found.items()}))
