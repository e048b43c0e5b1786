"""torch.distributed.run (torchrun, `flambeau launch`): a script in several processes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.distributed.elastic.multiprocessing.api import SignalException
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from flambeau.distributed.launcher.arguments import config_from_args, determine_local_world_size, get_args_parser, parse_args, parse_min_max_nnodes

__all__ = ["command", "config_from_args", "determine_local_world_size", "get_args_parser", "main", "parse_args", "parse_min_max_nnodes", "run"]


def run(args: argparse.Namespace) -> None:
    """Start what the arguments say and wait for its end. ChildFailedError if a process failed and no restart was left."""
    from flambeau.distributed.launcher.agent import Agent
    from flambeau.distributed.launcher.api import _get_entrypoint_name, check, python_command

    config, program, arguments = config_from_args(args)
    check(config)
    command = python_command(arguments) if program == sys.executable else [program, *arguments]
    Agent(config, command, _get_entrypoint_name(program, arguments)).run()


@record
def main(args: Sequence[str] | None = None) -> None:
    """Start what the arguments say and wait for its end. ChildFailedError if a process failed and no restart was left."""
    run(parse_args(args))


def told(call: Callable[..., None], *arguments: Any) -> int:
    """Call a launcher as a command, and say what went wrong; its exit status: 1 where a process failed, 128 + N after signal N."""
    try:
        call(*arguments)
    except ChildFailedError as error:
        print(error.format_msg(), file=sys.stderr, flush=True)
        return 1
    except SignalException as signal:
        return 128 + int(signal.sigval)
    except (ValueError, RuntimeError, TimeoutError) as error:
        print(f"flambeau launch: {error}", file=sys.stderr)
        return 2
    return 0


def command() -> int:
    """What `torchrun` calls."""
    return told(main)


if __name__ == "__main__":
    sys.exit(command())
