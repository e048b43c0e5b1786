"""torch.utils.data.datapipes.map: pipes by index."""

from flambeau.utils.data.datapipes.map.callable import MapperMapDataPipe as Mapper
from flambeau.utils.data.datapipes.map.combinatorics import ShufflerIterDataPipe as Shuffler
from flambeau.utils.data.datapipes.map.combining import ConcaterMapDataPipe as Concater
from flambeau.utils.data.datapipes.map.combining import ZipperMapDataPipe as Zipper
from flambeau.utils.data.datapipes.map.grouping import BatcherMapDataPipe as Batcher
from flambeau.utils.data.datapipes.map.utils import SequenceWrapperMapDataPipe as SequenceWrapper

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
