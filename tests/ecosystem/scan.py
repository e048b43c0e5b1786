"""`scripts/ecosystem scan`: which `torch.*` names the installed packages' sources use and flambeau lacks, by number of packages.

Sources are read, not executed. A name counts where it is imported from torch, reached from an imported module of torch by attributes, or asked of itself
by a class that derives from one of torch's. Names that PyTorch (`--torch PYTHON`, an interpreter that has it) lacks too are left out: packages ask for
older and newer ones behind `hasattr`.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests import processes
from tests.ecosystem import names

SKIPPED = ("test", "tests", "testing", "examples", "benchmarks")


class _Uses(ast.NodeVisitor):
    """The dotted names under torch that one file uses."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}  # the file's name -> torch's
        self.found: set[str] = set()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self.found.add(alias.name)
                self.known[alias.asname or "torch"] = alias.name if alias.asname else "torch"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module is not None and node.module.split(".")[0] == "torch":
            self.found.add(node.module)
            for alias in node.names:
                if alias.name != "*":
                    self.found.add(f"{node.module}.{alias.name}")
                    self.known[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name, inner = self._dotted(node)
        if name is not None:
            self.found.add(name)
        else:
            self.visit(inner)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """What a class asks of itself (`self.x`, `super().x`) it may have from its bases in torch."""
        bases = [name for name, _ in map(self._dotted, node.bases) if name is not None]
        for inner in ast.walk(node) if bases else ():
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load) and _is_self(inner.value):
                self.found.update(f"{base}.{inner.attr}" for base in bases)
        self.generic_visit(node)

    def _dotted(self, node: ast.expr) -> tuple[str | None, ast.expr]:
        """The dotted name under torch, if it is one; and the expression that its attributes are of."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        known = self.known.get(node.id) if isinstance(node, ast.Name) else None
        return None if known is None else ".".join([known, *reversed(parts)]), node


def _is_self(node: ast.expr) -> bool:
    """Whether an expression is `self` or `super()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id == "self"


def uses(source: str) -> set[str]:
    """The dotted names under torch that a source uses; imports count wherever they stand, before what comes above them."""
    tree = ast.parse(source)
    visitor = _Uses()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            visitor.visit(node)
    visitor.visit(tree)
    return visitor.found


def _files(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    for file in distribution.files or ():
        if file.suffix == ".py" and not set(file.parts[:-1]) & set(SKIPPED):
            yield Path(str(distribution.locate_file(file)))


def of_packages(packages: Iterable[str]) -> dict[str, set[str]]:
    """Name -> the packages that use it."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in packages:
        for file in _files(importlib.metadata.distribution(package)):
            try:
                used = uses(file.read_text(encoding="utf-8"))
            except (SyntaxError, UnicodeDecodeError, OSError, RecursionError):  # a table written as one long sum
                continue
            for name in used:
                found[name].add(package)
    return found


def users() -> list[str]:
    """The installed packages whose sources import torch."""
    found = set()
    for distribution in importlib.metadata.distributions():
        package = distribution.metadata["Name"]
        if package is None or package.lower() in ("torch", "flambeau", "triton"):
            continue
        for file in _files(distribution):
            try:
                text = file.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue
            if "import torch" in text or "from torch" in text:
                found.add(package)
                break
    return sorted(found, key=str.lower)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/ecosystem scan", description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", help="installed packages; all that import torch by default")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch: names that it lacks too are left out")
    parser.add_argument("--least", type=int, default=1, help="leave out names of fewer packages")
    options = parser.parse_args(arguments)
    found = of_packages(options.packages or users())
    lacking = names.lacking(sorted(found), "flambeau")
    if options.torch is not None:
        done = processes.run([options.torch, names.__file__, "torch"], input="\n".join(lacking), capture_output=True, text=True, check=True)
        theirs = set(done.stdout.split())
        lacking = [name for name in lacking if name not in theirs]
    shown = set(lacking)
    # What lies in a module that is missing is told by the module.
    for name in lacking:
        if any(".".join(name.split(".")[:n]) in shown for n in range(2, len(name.split(".")))):
            inner = next(".".join(name.split(".")[:n]) for n in range(2, len(name.split("."))) if ".".join(name.split(".")[:n]) in shown)
            found[inner] |= found[name]
    for name in sorted(lacking, key=lambda n: (-len(found[n]), n)):
        if len(found[name]) >= options.least:
            print(f"{len(found[name]):3} {name}: {', '.join(sorted(found[name], key=str.lower))}")
    print(f"{len(found)} names are used, {len(lacking)} of them lacking", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
