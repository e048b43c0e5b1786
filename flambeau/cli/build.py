"""`flambeau build`: a library of a checkpoint or of an exported model, in a folder."""

from __future__ import annotations

import argparse
import sys

from flambeau.cli import networks
from flambeau.cli.export import FAILURES


def build(options: argparse.Namespace) -> int:
    """Make it, and say what is there; returns the exit status."""
    from flambeau.deploy import build as make
    from flambeau.deploy import check

    try:
        check(options.target)  # before the model is read
        trained = networks.read(options.model, options.network, options.input, options.range)
        name = trained.name if options.name is None else options.name
        files = make(trained.exported(), options.target, options.out, name=name, weights_inside=options.weights == "inside", report=print)
    except FAILURES as error:
        print(f"flambeau build: {error}", file=sys.stderr)
        return 1
    for path in files:
        print(f"{path.stat().st_size:>12,} bytes  {path}")
    return 0
