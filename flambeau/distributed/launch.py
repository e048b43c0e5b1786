"""torch.distributed.launch, torchrun's older form: a script also gets `--local-rank=N`, unless --use-env says that it looks at LOCAL_RANK."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flambeau.distributed.elastic.multiprocessing.errors import record
from flambeau.distributed.launcher.arguments import get_args_parser
from flambeau.distributed.run import run, told
from flambeau.trace.once import warn_here


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """torchrun's arguments, and --use-env."""
    parser = get_args_parser()
    parser.add_argument("--use-env", "--use_env", default=False, action="store_true", help="the script looks at LOCAL_RANK, and gets no --local-rank")
    return parser.parse_args(args)


def launch(args: argparse.Namespace) -> None:
    """Start what the arguments say and wait for its end."""
    if args.no_python and not args.use_env:
        raise ValueError("When using the '--no-python' flag, you must also set the '--use-env' flag.")
    run(args)


@record
def main(args: Sequence[str] | None = None) -> None:
    """Start what the arguments say and wait for its end. ChildFailedError if a process failed and no restart was left."""
    warn_here(
        "The module torch.distributed.launch is deprecated\nand will be removed in future. Use torchrun.\nNote that --use-env is set by default in torchrun.\n"
        "If your script expects `--local-rank` argument to be set, please\nchange it to read from `os.environ['LOCAL_RANK']` instead.",
        FutureWarning,
    )
    launch(parse_args(args))


if __name__ == "__main__":
    sys.exit(told(main))
