"""torch.distributed.launcher: the start of several workers."""

from __future__ import annotations

from flambeau.distributed.launcher import api as api
from flambeau.distributed.launcher.api import LaunchConfig as LaunchConfig
from flambeau.distributed.launcher.api import elastic_launch as elastic_launch
from flambeau.distributed.launcher.api import launch_agent as launch_agent
