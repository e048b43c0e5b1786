"""flambeau.pipeline: steps of a TOML file, each run when its data, code or parameters have changed. `flambeau pipeline FILE`; docs/pipeline.md.

definition (the file), order, conditions (on metrics), hashes, records (what was run, on disk), runner; call (a function as a process), push (a model into the
folder of `flambeau serve`), tracking (MLflow, the extra flambeau[mlflow]).
"""

from __future__ import annotations

from flambeau.pipeline.definition import Pipeline as Pipeline
from flambeau.pipeline.definition import Step as Step
from flambeau.pipeline.definition import read as read
from flambeau.pipeline.runner import Result as Result
from flambeau.pipeline.runner import StepFailed as StepFailed
from flambeau.pipeline.runner import run as run

__all__ = ["Pipeline", "Result", "Step", "StepFailed", "read", "run"]
