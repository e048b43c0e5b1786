"""torch.testing.FileCheck: checks that texts stand in a text in their order, as LLVM's tool of that name."""

from __future__ import annotations

import re
from typing import NamedTuple


class _Check(NamedTuple):
    kind: str  # "check", "next", "same", "not", "dag", "count", "regex", "highlighted"
    text: str
    count: int = 1
    exactly: bool = False


class FileCheck:
    """Collects checks; `run(text)` makes them, in order, and raises RuntimeError at the first that fails.

    `check_not` holds between what stands before and after it; neighbouring `check_dag` stand in any order.
    """

    def __init__(self) -> None:
        self._checks: list[_Check] = []
        self._end_before = 0

    def _add(self, *check: object) -> FileCheck:
        self._checks.append(_Check(*check))  # type: ignore[arg-type]
        return self

    def check(self, text: str) -> FileCheck:
        """The text comes after what was found last."""
        return self._add("check", text)

    def check_next(self, text: str) -> FileCheck:
        """The text is on the next line."""
        return self._add("next", text)

    def check_same(self, text: str) -> FileCheck:
        """The text is on the same line."""
        return self._add("same", text)

    def check_not(self, text: str) -> FileCheck:
        """The text does not come before the next check's."""
        return self._add("not", text)

    def check_dag(self, text: str) -> FileCheck:
        """The text comes after what was found before this check and its neighbours of this kind."""
        return self._add("dag", text)

    def check_count(self, text: str, count: int, exactly: bool = False) -> FileCheck:
        """The text comes so many times (and with `exactly` no more)."""
        return self._add("count", text, count, exactly)

    def check_regex(self, text: str) -> FileCheck:
        """The regular expression matches after what was found last."""
        return self._add("regex", text)

    def check_source_highlighted(self, text: str) -> FileCheck:
        """The text comes, underlined by ~~~ on the line below."""
        return self._add("highlighted", text)

    def run(self, test_file: str) -> None:
        """Make the checks on a text."""
        at, group_start, absent, previous = 0, 0, [], ""  # where the last match ended, and where the group of check_dag began
        for c in self._checks:
            if c.kind == "not":
                absent.append(c.text)
                previous = c.kind
                continue
            if c.kind == "dag":
                group_start = group_start if previous == "dag" else at
                start, end = self._find(c, test_file, group_start)
                first, at = min(start, at) if previous == "dag" else start, max(at, end)
            else:
                first, at = self._matched(c, test_file, at)
            self._refuse(absent, test_file, group_start if c.kind == "dag" else self._end_before, first)
            absent, previous = [], c.kind
        self._refuse(absent, test_file, at, len(test_file))

    def _matched(self, c: _Check, text: str, at: int) -> tuple[int, int]:
        """Where the match of a check begins and ends."""
        self._end_before = at
        if c.kind == "count":
            first = -1
            for _ in range(c.count):
                start, at = self._find(c, text, at)
                first = start if first < 0 else first
            if c.exactly and c.text in text[at:]:
                raise self._failure(c, text, at, f"is there more than {c.count} times")
            return max(first, 0), at
        start, end = self._find(c, text, at)
        lines = text.count("\n", at, start)
        if (c.kind == "same" and lines) or (c.kind == "next" and lines != 1):
            raise self._failure(c, text, at, "is not on the " + ("same line" if c.kind == "same" else "next line"))
        while c.kind == "highlighted" and not self._underlined(c.text, text, start, end):
            start, end = self._find(c, text, end)
        return start, end

    @staticmethod
    def _underlined(wanted: str, text: str, start: int, end: int) -> bool:
        column = start - (text.rfind("\n", 0, start) + 1)
        below = text[end:].split("\n", 2)[1:2]
        return bool(below) and below[0][column : column + len(wanted)].strip() == "~" * len(wanted.strip())

    def _find(self, c: _Check, text: str, at: int) -> tuple[int, int]:
        match = re.compile(c.text if c.kind == "regex" else re.escape(c.text)).search(text, at)
        if match is None:
            raise self._failure(c, text, at, "was not found")
        return match.span()

    def _refuse(self, absent: list[str], text: str, start: int, end: int) -> None:
        for unwanted in absent:
            if unwanted in text[start:end]:
                raise self._failure(_Check("not", unwanted), text, start, "was found")

    def _failure(self, c: _Check, text: str, at: int, what: str) -> RuntimeError:
        name = "CHECK" + ("" if c.kind == "check" else "-" + c.kind.upper())
        return RuntimeError(f'FileCheck: "{c.text}" {what} (from {name}: {c.text}); searched from here on:\n{text[at : at + 400]}')
