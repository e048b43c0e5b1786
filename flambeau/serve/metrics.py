"""Prometheus metrics. With several workers they are added up over files, as prometheus_client does it (PROMETHEUS_MULTIPROC_DIR)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from flambeau.serve.packages import package

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The server's counters. Children by labels are kept, so that counting costs no look-up in the library."""

    def __init__(self) -> None:
        client: Any = package("prometheus_client", "flambeau serve")
        self._client = client
        self.shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self.registry = client.CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self._requests = client.Counter("flambeau_requests", "Requests answered.", ["model", "version", "protocol", "code"], **options)
        self._seconds = client.Histogram("flambeau_request_seconds", "From the whole request to its answer.", ["model"], buckets=_SECONDS, **options)
        self._runs = client.Histogram("flambeau_run_seconds", "One run of a model.", ["model", "version"], buckets=_SECONDS, **options)
        self._waits = client.Histogram("flambeau_queue_seconds", "How long the oldest request of a batch waited.", ["model"], buckets=_SECONDS, **options)
        self._rows = client.Histogram("flambeau_batch_rows", "Rows of a run.", ["model"], buckets=_ROWS, **options)
        self._loads = client.Counter("flambeau_loads", "Versions loaded, and those that could not be.", ["model", "version", "result"], **options)
        self.cancelled = client.Counter("flambeau_cancelled", "Requests whose client left before the answer.", **options)
        self.connections = client.Gauge("flambeau_connections", "Open connections.", multiprocess_mode="livesum", **options)
        self.tokens = client.Counter("flambeau_tokens", "Tokens that language models have written.", ["model"], **options)
        self._counts: dict[tuple[str, int, str, int], Any] = {}
        self._times: dict[str, Any] = {}

    def answered(self, model: str, version: int, protocol: str, code: int, seconds: float) -> None:
        """A request to a model has its answer."""
        key = model, version, protocol, code
        try:
            count, time = self._counts[key]
        except KeyError:
            count, time = self._counts[key] = self._requests.labels(model, str(version), protocol, str(code)).inc, self._seconds.labels(model).observe
        count()
        time(seconds)

    def run_observer(self, model: str, version: int) -> Callable[[int, float, float], None]:
        """What a batcher tells of its runs."""
        runs, waits, sizes = self._runs.labels(model, str(version)).observe, self._waits.labels(model).observe, self._rows.labels(model).observe

        def observe(rows: int, seconds: float, waited: float) -> None:
            runs(seconds)
            waits(waited)
            sizes(rows)

        return observe

    def loaded(self, model: str, version: int, done: bool) -> None:
        """A version has been loaded, or could not be."""
        self._loads.labels(model, str(version), "loaded" if done else "refused").inc()

    def page(self) -> tuple[bytes, str]:
        """The text of /metrics and its content type."""
        registry: Any = self.registry
        if self.shared:
            multiprocess: Any = package("prometheus_client.multiprocess", "flambeau serve")
            registry = self._client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, path=self.shared)
        text: bytes = self._client.generate_latest(registry)
        return text, "text/plain; version=0.0.4; charset=utf-8"
