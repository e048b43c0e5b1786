"""`scripts/ecosystem suites`: packages' own tests with PyTorch and with flambeau; those that pass with the first are run with the second.

Each suite's sources are looked for in a folder (`--sources`), and cloned there if they are not. Only the tests are taken from them: the package under
test is the installed one. Two interpreters, as for `scripts/ecosystem page`. The results become a section of docs/ecosystem.md.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import processes
from tests.ecosystem import compare
from tests.ecosystem.suite_table import SUITES, Suite

PLUGIN = Path(__file__).parent / "plugin"
PASSED = ("passed", "xpassed")


@dataclass
class Outcomes:
    """How the tests of a suite ended with one interpreter: test -> its line of JSON, in order; and the seconds of the whole."""

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0
    output: str = ""

    def passed(self) -> list[str]:
        """The tests that passed."""
        return [test for test, found in self.tests.items() if found["outcome"] in PASSED]


def checkout(suite: Suite, sources: Path) -> Path:
    """The folder of a suite's repository under `sources`, cloned at the suite's tag if it is not there."""
    folder = sources / suite.repository.split("/")[1]
    if not folder.exists():
        processes.run(["git", "clone", "--quiet", "--depth", "1", "--branch", suite.tag, f"https://github.com/{suite.repository}", str(folder)], check=True)
    return folder


def read(file: Path) -> dict[str, dict[str, Any]]:
    """The outcomes in a file of the plugin; a test that has begun and not ended took the process with it, or was the last when time was up."""
    found: dict[str, dict[str, Any]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        entry = json.loads(line)
        if "test" in entry and not (entry["outcome"] == "passed" and found.get(entry["test"], {}).get("outcome") == "failed"):
            found[entry["test"]] = entry
    return found


def run(python: str, suite: Suite, folder: Path, only: list[str] | None, limit: float, each: int) -> Outcomes:
    """Run a suite's selection in `folder`; again without what is done, if a test ends the process. `limit` seconds in all, `each` for a test."""
    outcomes, start = Outcomes(), time.perf_counter()
    environment = {
        **os.environ, "PYTHONPATH": str(PLUGIN), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg", **suite.environment,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        file, names = Path(scratch) / "outcomes", Path(scratch) / "names"
        for _ in range(20):
            left = limit - (time.perf_counter() - start)
            command = [python, "-W", "ignore", "-m", "pytest", "-q", "-p", "suite_outcomes", "-p", "no:cacheprovider", "--continue-on-collection-errors",
                       "--rootdir", ".", f"--outcomes={file}", f"--each={each}", *suite.arguments.split()]  # fmt: skip
            if only is not None:
                remaining = [test for test in only if test not in outcomes.tests]
                if not remaining:
                    break
                names.write_text("\n".join(remaining))
                command.append(f"--only={names}")
            for test in outcomes.tests if only is None else ():
                command += ["--deselect", test]
            process = processes.popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            timed_out = False
            try:
                outcomes.output, _ = process.communicate(timeout=max(left, 1))
            except subprocess.TimeoutExpired:
                timed_out = True
                outcomes.output, _ = processes.end(process)
            outcomes.tests = read(file)
            begun = [test for test, found in outcomes.tests.items() if found["outcome"] == "begun"]
            if timed_out:
                for test in begun:
                    del outcomes.tests[test]
                break
            for test in begun:
                outcomes.tests[test] = {"test": test, "outcome": "crashed", "why": f"the process ended with status {process.returncode}"}
                with file.open("a") as out:
                    out.write(json.dumps(outcomes.tests[test]) + "\n")
            if not begun:
                break
    outcomes.seconds = time.perf_counter() - start
    return outcomes


def reason(suite: Suite, test: str) -> str | None:
    """Why a test is known to differ, if it is."""
    return next((why for pattern, why in suite.differ.items() if fnmatch.fnmatchcase(test, pattern)), None)


def judge(suite: Suite, options: argparse.Namespace) -> dict[str, Any]:
    """Run a suite with both interpreters: what goes into the table, and every test that differs with its error."""
    source = checkout(suite, Path(options.sources))
    with tempfile.TemporaryDirectory() as scratch:
        for part in suite.folders.split():
            (Path(scratch) / part).parent.mkdir(parents=True, exist_ok=True)
            if (source / part).is_dir():
                shutil.copytree(source / part, Path(scratch) / part, ignore_dangling_symlinks=True)  # a link to what only its writer has
            else:
                shutil.copy(source / part, Path(scratch) / part)
        theirs = run(options.torch, suite, Path(scratch), None, options.limit, options.each)
        wanted = theirs.passed()
        ours = run(options.flambeau, suite, Path(scratch), wanted, options.limit * options.patience, options.each * options.patience)
    reached = [test for test in wanted if test in ours.tests]
    passed = set(ours.passed())
    missing = {"outcome": "not collected", "why": ours.output[-2000:]}
    if ours.seconds < options.limit * options.patience:
        reached = wanted
    differing = {test: {**ours.tests.get(test, missing), "reason": reason(suite, test)} for test in reached if test not in passed}
    return {
        "package": suite.package, "repository": suite.repository, "what": suite.what, "passed_with_pytorch": len(reached), "passed": len(set(reached) & passed),
        "seconds": [round(ours.seconds, 1), round(theirs.seconds, 1)], "differing": differing, "not_reached": len(wanted) - len(reached),
        "slow": {t: [ours.tests[t]["seconds"], theirs.tests[t]["seconds"]] for t in reached
                 if t in passed and ours.tests[t]["seconds"] > max(1.0, 5 * theirs.tests[t]["seconds"])},
        "theirs": dict(Counter(found["outcome"] for found in theirs.tests.values())),
        "outputs": [ours.output[-3000:], theirs.output[-3000:]],
    }  # fmt: skip


def _standing(page: str, results: list[dict[str, Any]]) -> tuple[dict[tuple[str, str], str], list[str]]:
    """What a page says of suites that these results do not have: rows by (package, what was run), and reasons."""
    done = {(r["package"], r["what"]) for r in results}
    rows = {}
    for line in page.partition(compare.SUITES_HEADING)[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 6 and cells[0] != "package":
            rows[cells[0].rpartition(" ")[0], cells[1]] = line
    rows = {key: line for key, line in rows.items() if key not in done}
    left = {package for package, _ in rows}
    reasons = [line for line in page.splitlines() if re.match(r"- [\w-]+, \d+ tests?: ", line)]
    return rows, [line for line in reasons if line[2:].partition(",")[0] in left]


def section(results: list[dict[str, Any]], versions: dict[str, str], before: str = "") -> str:
    """The results as Markdown: a table, and for each test that differs its reason; suites without a result stay as the page `before` has them."""
    lines = [
        compare.SUITES_HEADING, "",
        "Made by `scripts/ecosystem suites`: each package's own tests, from its repository, against the installed package. Those of the selection that pass",
        "with PyTorch in the time given (40 to 240 s) are run with flambeau in four times that; what it did not reach is counted apart. Seconds are of the",
        "whole processes, on a machine of two processors that had five times as much to do; flambeau begins with what its cache of kernels happens to have.",
        "A suite's tag is the newest that could be had, at most some releases older than the package. PyTorch ran torchvision's operators in C++, which were",
        "built from its sources for PyTorch's CPU package.", "",
        "| package | what was run | pass with PyTorch | of them with flambeau | not reached | seconds: flambeau, PyTorch |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    standing, reasons = _standing(before, results)
    known = {(r["package"], r["what"]): r for r in results}
    order = list(dict.fromkeys([(s.package, s.what) for s in SUITES] + list(known) + list(standing)))
    for key in order:
        if key in standing:
            lines.append(standing[key])
        if key not in known:
            continue
        r = known[key]
        share = 100 * r["passed"] / max(r["passed_with_pytorch"], 1)
        lines.append(
            f"| {r['package']} {versions.get(r['package'].lower().replace('_', '-'), '?')} | {r['what']} | {r['passed_with_pytorch']} | "
            f"{r['passed']} ({share:.1f} %) | {r['not_reached']} | {r['seconds'][0]:.0f}, {r['seconds'][1]:.0f} |"
        )
        for why, count in Counter(found["reason"] or "not looked into" for found in r["differing"].values()).items():
            reasons.append(f"- {r['package']}, {count} test{'s' * (count > 1)}: {why}")
    return "\n".join([*lines, "", "What differs, and why:", "", *(reasons or ["nothing."])]) + "\n"


def replaced(page: str, made: str) -> str:
    """A page with its section of suites made anew; what stands before and after it stays."""
    head, _, rest = page.partition(compare.SUITES_HEADING)
    _, following, tail = rest.partition("\n## ")
    return head.rstrip() + "\n\n" + made + following + tail


def main(arguments: list[str] | None = None) -> int:
    """The command; returns how many tests differ without a reason."""
    parser = argparse.ArgumentParser(prog="scripts/ecosystem suites", description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", help="names of packages; all by default")
    parser.add_argument("--flambeau", metavar="PYTHON", default=sys.executable, help="where flambeau is torch")
    parser.add_argument("--torch", metavar="PYTHON", default=sys.executable, help="where PyTorch is, with the same packages")
    parser.add_argument("--sources", metavar="FOLDER", default=".ecosystem/sources", help="where the packages' repositories are, or are cloned to")
    parser.add_argument("--results", metavar="FOLDER", default=".ecosystem/suites", help="where each suite's outcome is kept")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a suite with PyTorch")
    parser.add_argument("--each", type=int, default=30, help="seconds for a test with PyTorch")
    parser.add_argument("--patience", type=int, default=4, help="how many times as long flambeau may take")
    parser.add_argument("--kept", action="store_true", help="run nothing: write the page of the results that are kept")
    parser.add_argument("--out", metavar="FILE", help="write the kept results of all suites as the section of this page")
    options = parser.parse_args(arguments)
    kept, wrong = Path(options.results), 0
    kept.mkdir(parents=True, exist_ok=True)
    for suite in SUITES:
        if options.kept or (options.suites and suite.name not in options.suites):
            continue
        result = judge(suite, options)
        (kept / f"{suite.name}.json").write_text(json.dumps(result, indent=1))
        unknown = {test: found for test, found in result["differing"].items() if found["reason"] is None}
        wrong += len(unknown)
        seconds = ", PyTorch ".join(f"{s:.0f} s" for s in result["seconds"])
        print(f"{suite.name}: {result['passed']} of {result['passed_with_pytorch']} ({result['not_reached']} not reached; {seconds})", flush=True)
        for test, found in unknown.items():
            print(f"    {test}: {found['outcome']}: {(found.get('why') or '').strip()[:200]!r}")
        for test, (mine, others) in result["slow"].items():
            print(f"    slow: {test}: {mine:.1f} s, PyTorch {others:.1f} s")
    if options.out is not None:
        page = Path(options.out)
        done = processes.run([options.flambeau, "-c", compare.VERSIONS], capture_output=True, text=True, check=True)
        results = []
        for suite in SUITES:
            if (kept / f"{suite.name}.json").exists():
                results.append(json.loads((kept / f"{suite.name}.json").read_text()))
                for test, found in results[-1]["differing"].items():  # the table may know more reasons by now
                    found["reason"] = reason(suite, test)
        before = page.read_text()
        page.write_text(replaced(before, section(results, json.loads(done.stdout), before)))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
