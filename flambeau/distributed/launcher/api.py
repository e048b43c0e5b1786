"""torch.distributed.launcher.api: the start of several workers from a program."""

from __future__ import annotations

from flambeau.distributed.launcher.arguments import LaunchConfig as LaunchConfig
from flambeau.distributed.several import define as _define

_define(globals(), "launch_agent(*args, **options) !", "elastic_launch")
