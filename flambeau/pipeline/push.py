"""`python -m flambeau.pipeline.push MODEL DIR`: a model as the next version in a folder of `flambeau serve`, DIR/VERSION/model.pt2, by one rename."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flambeau.pipeline import hashes

_UNFINISHED: Final = ".push-"


def push(model: Path, folder: Path) -> Path:
    """Copy a model's file into a new version, and return that version's folder; the newest one if it has the same bytes already.

    A reader of the folder sees the whole version or nothing of it. OSError as of the copy.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{_UNFINISHED}*"):  # of pushes that were killed
        shutil.rmtree(old, ignore_errors=True)
    digest = hashes.of_path(model)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    try:
        unfinished.chmod(0o755)
        shutil.copyfile(model, unfinished / f"model{model.suffix}")
        while True:
            versions = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
            newest = folder / str(max(versions, default=0))
            if (same := newest / f"model{model.suffix}").is_file() and hashes.of_path(same) == digest:
                return newest
            version = folder / str(max(versions, default=0) + 1)
            try:
                os.rename(unfinished, version)
            except OSError:
                if not version.exists():
                    raise
                continue  # somebody has pushed at the same time
            return version
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Push, and print the version; 2 if it cannot be."""
    words = sys.argv[1:] if argv is None else list(argv)
    if len(words) != 2:
        print("usage: python -m flambeau.pipeline.push MODEL DIR", file=sys.stderr)
        return 2
    try:
        print(push(Path(words[0]), Path(words[1])))
    except OSError as error:
        print(f"flambeau.pipeline.push: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
