"""torch.distributed.elastic.metrics: numbers that a launcher or a program writes down, and what becomes of them."""

from flambeau.distributed.elastic.metrics.api import (
    ConsoleMetricHandler,
    MetricData,
    MetricHandler,
    MetricsConfig,
    MetricStream,
    NullMetricHandler,
    configure,
    get_elapsed_time_ms,
    getStream,
    prof,
    profile,
    publish_metric,
    put_metric,
)


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """For programs that replace it."""


__all__ = [
    "ConsoleMetricHandler", "MetricData", "MetricHandler", "MetricStream", "MetricsConfig", "NullMetricHandler", "configure", "getStream",
    "get_elapsed_time_ms", "initialize_metrics", "prof", "profile", "publish_metric", "put_metric",
]  # fmt: skip
