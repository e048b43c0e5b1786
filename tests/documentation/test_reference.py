"""Docstrings in full: what each public name's has, that their examples print what they say, and that they are added once."""

from __future__ import annotations

import inspect
import pydoc
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import flambeau
from flambeau import documentation
from tests import processes
from tests.documentation.compare import same_text
from tests.documentation.execute import execute
from tests.documentation.reference import LACKING, Name, dirty, names, short_of

SHARE = 8  # one example of so many, by default


def examples() -> Iterator[tuple[Name, list[tuple[str, str]]]]:
    """(name, [(statement, what it prints)]) of each docstring."""
    for name in names():
        text = inspect.getdoc(name.found) or ""
        if "\nExample:\n" not in text:
            continue
        pairs: list[tuple[str, str]] = []
        for line in inspect.cleandoc(text.split("\nExample:\n")[1]).split("\n"):
            if line.startswith(">>> "):
                pairs.append((line[4:], ""))
            elif pairs:
                pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]}{line}\n")
        yield name, pairs


def wrong(pairs: list[tuple[str, str]]) -> str:
    """The first statement that prints something else; empty if there is none."""
    scope = {"torch": flambeau}
    dirty(3.75)
    flambeau.manual_seed(0)
    for statement, expected in pairs:
        outcome = execute(statement, scope)
        if outcome.error:
            return f"{statement}: {outcome.error}: {outcome.message}"
        if expected.rstrip().endswith("..."):
            lines = expected.rstrip().split("\n")[:-1]
            shown = "\n".join(outcome.text.split("\n")[: len(lines)])
            if not same_text("\n".join(lines), shown):
                return f"{statement}: {shown}"
        elif " at 0x..." not in expected and not same_text(expected, outcome.text):
            return f"{statement}: {outcome.text}"
    return ""


def check(share: int) -> None:
    """`compare` in a process of its own: other tests change settings that an example may print."""
    call = [sys.executable, "-W", "ignore", "-c", f"from tests.documentation.test_reference import compare; compare({share})"]
    done = processes.run(call, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def compare(share: int) -> None:
    """One example of so many prints what it says."""
    done, found = 0, {}
    for name, pairs in examples():
        if zlib.crc32(name.full.encode()) % share == 0:
            done += 1
            if text := wrong(pairs):
                found[name.full] = text
    assert done > 1000 // share and not found, found


def test_examples_print_what_they_say() -> None:
    check(SHARE)


@pytest.mark.slow
def test_all_examples_print_what_they_say() -> None:
    check(1)


def test_public_names_have_arguments_results_errors_examples() -> None:
    """New names come with all of it; of the older ones the list of what is missing only becomes shorter."""
    listed = {line for line in LACKING.read_text().splitlines() if not line.startswith("#")}
    now = short_of()
    assert now - listed == set(), "python -m tests.documentation.reference, then --lacking"
    assert listed - now == set(), "these lack nothing any more: python -m tests.documentation.reference --lacking"


@pytest.mark.parametrize("name", ["softmax", "nn.Linear", "Tensor.add_", "nn.functional.conv2d", "optim.AdamW", "linalg.svd", "conv2d", "func.grad"])
def test_help_shows_everything(name: str) -> None:
    found: object = flambeau
    for part in name.split("."):
        found = getattr(found, part)
    shown = pydoc.plain(pydoc.render_doc(found))
    for words in ("Args:", "Raises:", "Example:", ">>> ", *([] if isinstance(found, type) else ["Returns:"])):
        assert shown.count(words) >= 1, shown
    assert (inspect.getdoc(found) or "").count("\nArgs:\n") == 1  # added once, whatever names lead to it


def test_own_words_stay_apart() -> None:
    text = flambeau.softmax.__doc__
    assert documentation.own_words(flambeau.softmax) in text and "Args:" not in documentation.own_words(flambeau.softmax)
    documentation.document("torch", {"softmax": flambeau.softmax})
    assert flambeau.softmax.__doc__ == text


def test_without_docstrings_nothing_is_read() -> None:
    code = "import flambeau, flambeau.documentation as d; print(d.entries.cache_info().currsize, flambeau.sum.__doc__)"  # -OO leaves out asserts
    done = processes.python("-OO", "-c", code)
    assert done.stdout.split() == ["0", "None"], done.stdout + done.stderr
