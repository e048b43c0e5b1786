"""torch.distributed.run (torchrun): a script in several processes, which are not there: it is refused for more than one."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), "main(args=None) !\nrun(args) !\nget_args_parser() !\nconfig_from_args(args) !")
