"""`python -m tests.errors.sweep [SECTION ...] [--only TEXT]`: all wrong calls of the sections, beside PyTorch, and a report by class.

Each package runs in a process of its own, so that a call that hangs or crashes is one line of the report. PyTorch's outcomes are kept in a file (--keep).
`--sample N --seed S`: N of them, by chance. `--decide internal,hang`: the classes that make it fail; all, unless it is given.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.errors.calls import Call, Wrong, all_calls, wrong_calls
from tests.errors.outcome import Outcome, outcome, unlike

_PATIENCE = 8.0  # seconds for one call
_MEMORY = 12 << 30  # bytes that a process may map: huge sizes fail instead of filling the machine


class Choice(NamedTuple):
    """Which wrong calls are made: of some sections, with a text in theirs, `sample` of them by chance (0: all)."""

    sections: Sequence[str]
    only: str = ""
    sample: int = 0
    seed: int = 0

    def calls(self) -> Iterable[tuple[Call, list[Wrong]]]:
        """Each call with its wrong ones; the valid one is their first."""
        found = [(call, list(wrong_calls(call))) for call in all_calls(*self.sections) if self.only in call.text]
        if self.sample:
            # By their names, so that every process chooses the same ones.
            places = sorted([wrong.key for _, wrongs in found for wrong in wrongs], key=lambda key: zlib.crc32(f"{self.seed} {key}".encode()))
            kept = set(places[: self.sample])
            chosen = [(call, [wrong for wrong in wrongs if wrong.key in kept]) for call, wrongs in found]
            found = [(call, wrongs) for call, wrongs in chosen if wrongs]
        return ((call, [Wrong(call, None, "valid"), *wrongs]) for call, wrongs in found)


def _work(package: str, choice: Choice, start: int, theirs: dict[str, list[Any]], out: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.stdin.close()
    module = __import__(package)
    if package == "torch":
        module.set_num_threads(1)
    expected = module.tensor([2.0, 4.0, 6.0]).tolist()
    count = 0
    for call, wrongs in choice.calls():
        valid = None
        for wrong in wrongs:
            count += 1
            if count <= start:
                continue
            out.send((wrong.key, None))
            read = package == "flambeau" and bool(theirs.get(wrong.key, [[]])[0])
            found = outcome(wrong, module, read)
            if wrong.how == "valid":
                valid = found
            out.send((wrong.key, (found.kinds, found.text)))
            if valid is not None and valid.failed:
                break  # not one that the package has
        after = outcome(Wrong(_GOOD, None, "valid"), module, True)
        if after.failed or (_GOOD.function({"torch": module})() + 0).tolist() != expected:  # type: ignore[arg-type]
            out.send((f"{call.text} | after", (("After",), after.text)))
    out.send(None)


def _double(scope: Any) -> Any:
    torch = scope["torch"]
    return lambda: torch.tensor([1.0, 2.0, 3.0]) * 2


_GOOD = Call("", "after ", _double, (), {})


def gathered(package: str, choice: Choice, theirs: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The outcome of every call, by its key."""
    found: dict[str, list[Any]] = {}
    start = 0
    spawn = multiprocessing.get_context("spawn")
    while True:
        receive, send = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_work, args=(package, choice, start, theirs, send), daemon=True)
        process.start()
        send.close()
        last: str | None = None
        first = True
        while True:
            try:
                message = receive.recv() if receive.poll(600.0 if first else _PATIENCE) else TimeoutError
            except EOFError:
                message = EOFError
            first = False
            if message is None:
                process.join(10)
                return found
            if message is TimeoutError or message is EOFError:
                process.kill()
                if last is not None:
                    found[last] = [["Hang" if message is TimeoutError else "Crash"], ""]
                elif message is EOFError:
                    raise RuntimeError(f"{package}: the process ended before its first call")
                break
            key, answer = message
            if answer is None:
                last = key
                start += 1
            else:
                found[key] = [list(answer[0]), answer[1]]


def differences(choice: Choice, theirs: dict[str, list[Any]], ours: dict[str, list[Any]]) -> Iterator[tuple[str, str, str]]:
    """(class, call, what came of it here and there) of each wrong call; the class "equal" has no text."""
    for call, wrongs in choice.calls():
        for wrong in wrongs:
            if wrong.key in ours and wrong.key in theirs:
                mine, other = (Outcome(tuple(kinds), text) for kinds, text in (ours[wrong.key], theirs[wrong.key]))
                if wrong.how == "valid":
                    kind = None if other.failed or mine.text == other.text else "valid"
                else:
                    kind = unlike(wrong, other, mine)
                yield kind or "equal", wrong.key, "" if kind is None else f"{_line(mine)}\n    {_line(other)}"
        after = f"{call.text} | after"
        if after in ours:
            yield "after", after, ours[after][1]


def main(arguments: Sequence[str]) -> int:
    """Print every difference and the counts; 1 if there is one of the classes that decide."""
    parser = argparse.ArgumentParser(prog="python -m tests.errors.sweep")
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--only", default="", help="calls whose text has this in it")
    parser.add_argument("--keep", type=Path, help="a folder for PyTorch's outcomes, which are read from there the next time")
    parser.add_argument("--sample", type=int, default=0, help="so many wrong calls, by chance")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--decide", default="", help="only these classes make it fail, by comma")
    parser.add_argument("--classes", default="", help="print only these, by comma")
    options = parser.parse_args(arguments)
    choice = Choice(options.sections, options.only, options.sample, options.seed)
    theirs: dict[str, list[Any]] = {}
    kept = None if options.keep is None else options.keep / ("-".join(options.sections) + ".json")
    if kept is not None and kept.exists():
        theirs = json.loads(kept.read_text())
    else:
        theirs = gathered("torch", choice, {})
        if kept is not None:
            kept.write_text(json.dumps(theirs))
    ours = gathered("flambeau", choice, theirs)
    shown, deciding = ([c for c in text.split(",") if c] for text in (options.classes, options.decide))
    classes: Counter[str] = Counter()
    for kind, key, text in differences(choice, theirs, ours):
        classes[kind] += 1
        if kind != "equal" and (not shown or kind in shown):
            print(f"{kind:9} {key[:150]}\n    {text}")
    print(", ".join(f"{kind} {n}" for kind, n in sorted(classes.items())))
    return int(any(classes[kind] for kind in deciding) if deciding else set(classes) != {"equal"})


def _line(o: Outcome) -> str:
    return f"{o.kinds[0] if o.kinds else 'result'}: {o.text.splitlines()[0][:160] if o.text else ''}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
