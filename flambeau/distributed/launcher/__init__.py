"""torch.distributed.launcher: the start of several workers."""

from __future__ import annotations

from flambeau.distributed.launcher import api as api

LaunchConfig, elastic_launch = vars(api)["LaunchConfig"], vars(api)["elastic_launch"]
