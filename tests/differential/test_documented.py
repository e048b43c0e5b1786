"""The table of documented variants: its headings exist, name their operators, and its entries are of operators that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.differential.documented import entries
from tests.differential.samples import OPERATORS
from tests.differential.variants import FORMS, Variant, main

TEXT = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
SECTIONS = {head.strip(): body for head, body in re.findall(r"^##+ (.*)\n((?:(?!##).*\n?)*)", TEXT, re.MULTILINE)}


@pytest.mark.parametrize(("label", "entry"), entries(), ids=lambda x: x if isinstance(x, str) else "")
def test_an_entry_is_documented(label: str, entry: Any) -> None:
    assert entry.heading in SECTIONS
    assert label in OPERATORS and set(entry.forms) <= set(FORMS) and 0 < entry.share <= 1
    name = label.partition("/")[0]
    named = re.findall(r"`([^`]*)`", SECTIONS[entry.heading])
    assert any(n.rstrip("_") in (name, name.rpartition(".")[2]) or n.startswith(name + "(") for n in named) or name.startswith("__r"), named


def test_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Documented differences are apart, and only as long as they are no greater than documented."""
    log = tmp_path / "log"
    made = [Variant("sort", "function", 40, 10, ["x"]), Variant("sort", "method", 40, 30, ["y"]), Variant("add", "function", 40, 0, []),
            Variant("add", "out", 40, 1, ["z"]), Variant("add", "method", 100, 1, ["z"])]  # fmt: skip
    made += [Variant(label, form, 0, 0, []) for label in ("sort", "add") for form in FORMS if (label, form) not in {(v.label, v.form) for v in made}]
    log.write_text("".join([json.dumps(v) + "\n" for v in made]))
    assert main(["sort", "add", "--log", str(log)]) == 1
    told = capsys.readouterr().out
    assert "5 variants: 2 passed, 1 documented, 2 differing; of those not documented 50.0% pass" in told
    assert "documented: More than one answer is right: sort (function)" in told and "sort (function)" not in told.partition("documented:")[0]
