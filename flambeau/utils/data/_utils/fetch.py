"""torch.utils.data._utils.fetch: how samples become a batch."""

from __future__ import annotations

from flambeau.utils.data.fetch import IterableFetcher as IterableFetcher
from flambeau.utils.data.fetch import MapFetcher as MapFetcher
from flambeau.utils.data.fetch import make_fetcher as make_fetcher
