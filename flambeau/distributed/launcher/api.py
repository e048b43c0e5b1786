"""torch.distributed.launcher.api: the start of several workers, which are not there."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), "launch_agent(*args, **options) !", "LaunchConfig elastic_launch")
