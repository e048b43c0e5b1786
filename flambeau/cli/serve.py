"""`flambeau serve DIR`: the models of a folder, or one model, over HTTP and gRPC."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flambeau.cli import networks
from flambeau.cli.export import FAILURES


def serve(options: argparse.Namespace) -> int:
    """Serve until SIGTERM; 2 if something that was given is wrong."""
    try:
        from flambeau.serve import logs
        from flambeau.serve.server import serve as run
        from flambeau.serve.settings import ServerSettings

        tokens = () if options.tokens is None else tuple([t for line in Path(options.tokens).read_text().splitlines() if (t := line.strip())])
        if options.tokens is not None and not tokens:
            raise ValueError(f"flambeau serve: {options.tokens} has no token")
        with _folder(options) as folder:
            settings = ServerSettings(
                folder, options.host, options.port, options.grpc_port, options.workers, options.threads, options.allow_code, options.poll,
                options.max_body, drain_timeout=options.drain, certificate=options.certificate, key=options.key, tokens=tokens,
                log_requests=options.log_requests,
            )  # fmt: skip
            logs.start()
            return run(settings)
    except FAILURES as error:
        print(error if str(error).startswith("flambeau serve") else f"flambeau serve: {error}", file=sys.stderr)
        return 2


@contextlib.contextmanager
def _folder(options: argparse.Namespace) -> Iterator[Path]:
    """The folder of models that is given; of one file a temporary one, which has it."""
    given = Path(options.folder)
    if not given.is_file():
        if options.network or options.input or options.range:
            raise ValueError("--network, --input and --range belong to a checkpoint, which is a file")
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="flambeau-serve-") as temporary:
        if given.suffix == ".onnx":
            at = Path(temporary) / networks.name_of(given) / "1"
            at.mkdir(parents=True)
            shutil.copy(given, at / "model.onnx")
            if (data := given.with_name(given.name + ".data")).is_file():
                shutil.copy(data, at / data.name)
        else:
            trained = networks.read(str(given), options.network, options.input, options.range)
            at = Path(temporary) / trained.name / "1"
            at.mkdir(parents=True)
            trained.save(trained.exported(), at / "model.pt2")
        yield Path(temporary)
