"""torch.utils.data."""

from typing import Any

from flambeau.utils.data import dataloader, dataset, distributed, sampler
from flambeau.utils.data.collate import default_collate, default_convert
from flambeau.utils.data.dataloader import DataLoader
from flambeau.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)  # fmt: skip
from flambeau.utils.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)  # fmt: skip
from flambeau.utils.data.serialized import SerializedList
from flambeau.utils.data.worker import get_worker_info

_PIPES = (
    "DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation functional_datapipe guaranteed_datapipes_determinism "
    "non_deterministic runtime_validation runtime_validation_disabled"
).split()

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DFIterDataPipe", "DataChunk", "DataLoader", "Dataset", "DistributedSampler", "IterDataPipe",
    "IterableDataset", "MapDataPipe", "RandomSampler", "Sampler", "SequentialSampler", "SerializedList", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "argument_validation", "dataloader", "dataset", "default_collate",
    "default_convert", "distributed", "functional_datapipe", "get_worker_info", "guaranteed_datapipes_determinism", "non_deterministic",
    "random_split", "runtime_validation", "runtime_validation_disabled", "sampler",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *_PIPES, "datapipes", "graph_settings"})


def __getattr__(name: str) -> Any:
    """Data pipes and inner modules, when they are first asked for."""
    from importlib import import_module

    if name in _PIPES:
        return getattr(import_module("flambeau.utils.data.datapipes.datapipe"), name)
    if name in ("_utils", "datapipes", "graph_settings"):
        return import_module(f"flambeau.utils.data.{name}")
    from flambeau.names import otherwise

    return otherwise("torch.utils.data", name, globals())


from flambeau.documentation import document as _document
from flambeau.ops.guard import guard as _guard

_guard("utils.data", globals())
_document("torch.utils.data", globals())
