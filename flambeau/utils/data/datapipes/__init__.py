"""torch.utils.data.datapipes: pipelines of datasets, one wrapped around the other."""

from flambeau.utils.data.datapipes import datapipe, iter, map
from flambeau.utils.data.datapipes.datapipe import DataChunk, DFIterDataPipe, IterDataPipe, MapDataPipe

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "datapipe", "iter", "map"]
