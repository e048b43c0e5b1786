"""`scripts/ecosystem exports`: models of torchvision, timm and transformers as `.pt2` files, each exported by flambeau and by PyTorch and run by both.

Two interpreters, as for `scripts/ecosystem page`; what each of them runs is export_models.py, in processes of their own. `--out` writes the table into a
page, where models that were not run again keep their lines. The status is the number of models that do not give equal outputs in all ways.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests import processes
from tests.ecosystem import compare, export_models

PROGRAM = Path(__file__).parent / "export_models.py"
TOLERANCE = 1e-4
BEGIN, END = "<!-- models: made by scripts/ecosystem exports -->", "<!-- end of models -->"
SIDES = ("flambeau", "torch")


def command(side: str, python: str) -> list[str]:
    """How export_models.py is started with one of the two as torch."""
    return [python, "-W", "ignore", *(["-m", "flambeau", "run"] if side == "flambeau" else []), str(PROGRAM)]


def child(side: str, python: str, action: str, folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """One process: what it prints, by name; a model that it did not come to has an error."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    if side == "flambeau":
        environment["PYTHONPATH"] = os.pathsep.join([str(compare.ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    done = processes.run([*command(side, python), action, str(folder), *names], capture_output=True, text=True, env=environment)
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    found = {entry["name"]: entry for entry in map(json.loads, [line for line in done.stdout.splitlines() if line.startswith('{"name"')])}
    return {name: found.get(name, {"error": f"the process ended before: {last}"}) for name in names}


def judge(name: str, results: dict[Any, dict[str, dict[str, Any]]]) -> dict[Any, Any]:
    """A model's row of the table: its size, and how far outputs are from those of the model that was exported; `wrong` says what failed."""
    row: dict[Any, Any] = {"name": name, "wrong": []}
    for (action, exporter, *reader), found in results.items():
        part = found[name]
        what = " ".join((action, exporter, *reader))
        if "error" in part:
            row["wrong"].append(f"{what}: {part['error']}")
        elif action == "save":
            row[exporter] = part
            if part.get("core_error") and exporter == "flambeau":
                row["wrong"].append(f"{what}: in core operators: {part['core_error']}")
        else:
            row[exporter, reader[0]] = pair = [d for d in (part["program"], part["core"]) if d is not None]
            if not all(d <= TOLERANCE for d in pair):  # NaN is wrong too
                row["wrong"].append(f"{what}: outputs differ by {', in core operators '.join(f'{d:.1e}' for d in pair)}")
    return row


def _difference(pair: list[float] | None) -> str:
    if pair is None:
        return "fails"
    if not all(d <= TOLERANCE for d in pair):
        return "fails: " + ", ".join(f"{d:.0e}" for d in pair)
    return ("equal" if max(pair) == 0 else f"{max(pair):.0e}") + " (no core)" * (len(pair) == 1)


def cells(row: dict[Any, Any]) -> str:
    """A model's line of the table."""
    own = row.get("flambeau")
    size = f"{own['parameters']:,} | {own['nodes']}, {own['core'] or 'fails'}" if own else "? | fails"
    ways = (("flambeau", "torch"), ("flambeau", "flambeau"), ("torch", "flambeau"), ("torch", "torch"))
    return f"| {row['name']} | {size} | {' | '.join(_difference(row.get(pair)) for pair in ways)} |"


def table(lines: dict[str, str], versions: dict[str, str]) -> list[str]:
    """The table of models' lines, by name."""
    packages = ", ".join(f"{p} {versions.get(p, '?')}" for p in ("torchvision", "timm", "transformers"))
    equal = sum(["fails" not in line for line in lines.values()])
    return [
        f"{len(lines)} models of {packages}, random weights: {equal} give equal outputs (within {TOLERANCE:.0e} of the greatest output) in all four ways, as",
        'exported and in core operators. Numbers are the greater difference of the two; "(no core)": PyTorch cannot decompose its own program.',
        "",
        "| model | parameters | nodes, core | flambeau to PyTorch | flambeau to flambeau | PyTorch to flambeau | PyTorch to PyTorch |",
        "|---|---|---|---|---|---|---|",
        *lines.values(),
    ]


def kept(page: str) -> dict[str, str]:
    """The models' lines that a page has."""
    block = page.partition(BEGIN)[2].partition(END)[0]
    found = {line.split("|")[1].strip(): line for line in block.splitlines() if line.startswith("| ")}
    return {name: found[name] for name in export_models.NAMES if name in found}


def insert(page: str, lines: list[str]) -> str:
    """A page with the table in its place, or at its end."""
    block = "\n".join([BEGIN, *lines, END])
    if BEGIN in page:
        return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, page, flags=re.DOTALL)
    return f"{page.rstrip()}\n\n## Models\n\n{block}\n"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns how many models fail."""
    parser = argparse.ArgumentParser(prog="scripts/ecosystem exports", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help='models ("timm/resnet10t") or packages ("timm"); all by default')
    parser.add_argument("--flambeau", metavar="PYTHON", default=sys.executable, help="where flambeau is, with the packages")
    parser.add_argument("--torch", metavar="PYTHON", default=sys.executable, help="where PyTorch is, with the same packages")
    parser.add_argument("--out", metavar="FILE", help="write the table into this page")
    options = parser.parse_args(arguments)
    names = [n for n in export_models.NAMES if not options.names or n in options.names or n.split("/")[0] in options.names]
    if unknown := [n for n in options.names if not any(n in (name, name.split("/")[0]) for name in export_models.NAMES)]:
        parser.error(f"no such models: {', '.join(unknown)}; there are {', '.join(export_models.NAMES)}")
    pythons = {"flambeau": options.flambeau, "torch": options.torch}
    results: dict[Any, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for exporter in SIDES:
            folder = Path(scratch) / exporter
            folder.mkdir()
            results["save", exporter] = child(exporter, pythons[exporter], "save", folder, names)
            for reader in SIDES:
                results["read", exporter, reader] = child(reader, pythons[reader], "read", folder, names)
    rows = [judge(name, results) for name in names]
    versions = json.loads(processes.run([options.flambeau, "-c", compare.VERSIONS], capture_output=True, text=True, check=True).stdout)
    page = Path(options.out) if options.out is not None else None
    made = {row["name"]: cells(row) for row in rows}
    known = (kept(page.read_text()) if page is not None else {}) | made
    lines = table({name: known[name] for name in export_models.NAMES if name in known}, versions)
    print("\n".join(lines))
    for row in rows:
        for wrong in row["wrong"]:
            print(f"{row['name']}: {wrong}")
    if page is not None:
        temporary = page.with_suffix(".part")
        temporary.write_text(insert(page.read_text(), lines))
        temporary.replace(page)
    return sum([bool(row["wrong"]) for row in rows])


if __name__ == "__main__":
    sys.exit(main())
