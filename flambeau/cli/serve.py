"""`flambeau serve DIR`: the models of a folder over HTTP and gRPC."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def serve(options: argparse.Namespace) -> int:
    """Serve until SIGTERM; 2 if something that was given is wrong."""
    try:
        from flambeau.serve import logs
        from flambeau.serve.server import serve as run
        from flambeau.serve.settings import ServerSettings

        tokens = () if options.tokens is None else tuple([t for line in Path(options.tokens).read_text().splitlines() if (t := line.strip())])
        if options.tokens is not None and not tokens:
            raise ValueError(f"flambeau serve: {options.tokens} has no token")
        settings = ServerSettings(
            Path(options.folder), options.host, options.port, options.grpc_port, options.workers, options.threads, options.allow_code, options.poll,
            options.max_body, drain_timeout=options.drain, certificate=options.certificate, key=options.key, tokens=tokens, log_requests=options.log_requests,
        )  # fmt: skip
        logs.start()
        return run(settings)
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
