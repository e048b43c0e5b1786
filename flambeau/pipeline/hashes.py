"""Hashes of what a step depends on: the contents of files and folders, and the code of a program with the modules beside it that it imports."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path


def of_path(path: Path) -> str:
    """SHA-256 of a file's bytes, or of a folder's names and contents (hidden entries left out). FileNotFoundError if it is not there."""
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256(b"folder")
    for entry in sorted(path.iterdir()):
        if not entry.name.startswith("."):
            digest.update(f"\0{entry.name}\0{of_path(entry)}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def code_files(programs: Iterable[Path]) -> list[Path]:
    """Programs, and the Python files that they import, directly or not, from the folder that each program lies in."""
    found: dict[Path, None] = {}
    for program in programs:
        open_files = [program]
        while open_files:
            current = open_files.pop()
            if current not in found:
                found[current] = None
                if current.suffix == ".py":
                    open_files += _imported(current, program.parent)
    return sorted(found)


def _imported(file: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return  # it says so when it is run
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = root if not node.level else file.parents[node.level - 1]
            module = node.module or ""
            yield from _modules(base, module)
            for alias in node.names:
                yield from _modules(base, f"{module}.{alias.name}".lstrip("."))


def _modules(base: Path, name: str) -> Iterator[Path]:
    """The files that an import of a dotted name runs, as far as they lie under `base`."""
    place = base
    for part in name.split(".") if name else ():
        place = place / part
        for file in (place.with_name(f"{part}.py"), place / "__init__.py"):
            if file.is_file():
                yield file
