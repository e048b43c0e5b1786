"""A pipeline's run as a run of MLflow: parameters, metrics and files of metrics. The extra flambeau[mlflow]."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class MlflowRun:
    """One run of an MLflow experiment. `uri`: of the tracking server or store; MLflow's own settings where it is None."""

    def __init__(self, experiment: str, uri: str | None, name: str) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] != "mlflow":
                raise
            raise ImportError("[mlflow] of a pipeline needs the package mlflow-skinny, or mlflow: pip install 'flambeau[mlflow]'", name="mlflow") from None
        with _refusals(uri):
            self._client: Any = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(experiment)
            number = self._client.create_experiment(experiment) if found is None else found.experiment_id
            self.run_id: str = self._client.create_run(number, run_name=name).info.run_id
        self._uri = uri

    def parameters(self, values: dict[str, Any]) -> None:
        """Log the pipeline's parameters."""
        with _refusals(self._uri):
            for name, value in values.items():
                self._client.log_param(self.run_id, name, value)

    def step(self, name: str, skipped: bool, seconds: float, metrics: dict[str, float], file: Path | None) -> None:
        """Log what a step gave: metrics as STEP.NAME, whether it was skipped, its time, the file of its metrics."""
        with _refusals(self._uri):
            for metric, value in metrics.items():
                self._client.log_metric(self.run_id, f"{name}.{metric}", value)
            self._client.log_metric(self.run_id, f"{name}.seconds", seconds)
            self._client.set_tag(self.run_id, f"flambeau.{name}", "skipped" if skipped else "run")
            if file is not None:
                self._client.log_artifact(self.run_id, str(file), name)

    def end(self, failed: bool) -> None:
        """The run is over."""
        with _refusals(self._uri):
            self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


@contextmanager
def _refusals(uri: str | None) -> Iterator[None]:
    """What MLflow says no to, as a RuntimeError that names where it was."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise RuntimeError(f"flambeau pipeline: MLflow at {uri or 'its own settings'} refuses: {error}") from error
