"""`python -m tests.errors.sweep [SECTION ...] [--only TEXT]`: all wrong calls of the sections, beside PyTorch, and a report by class.

Each package runs in a process of its own, so that a call that hangs or crashes is one line of the report. PyTorch's outcomes are kept in a file (--keep).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.errors.calls import Call, Wrong, all_calls, wrong_calls
from tests.errors.outcome import Outcome, outcome, unlike

_PATIENCE = 8.0  # seconds for one call
_MEMORY = 12 << 30  # bytes that a process may map: huge sizes fail instead of filling the machine


def _chosen(sections: Sequence[str], only: str) -> Iterable[Call]:
    return (call for call in all_calls(*sections) if only in call.text)


def _work(package: str, sections: Sequence[str], only: str, start: int, theirs: dict[str, list[Any]], out: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.stdin.close()
    module = __import__(package)
    if package == "torch":
        module.set_num_threads(1)
    expected = module.tensor([2.0, 4.0, 6.0]).tolist()
    count = 0
    for call in _chosen(sections, only):
        valid = None
        for wrong in (Wrong(call, None, "valid"), *wrong_calls(call)):
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


def gathered(package: str, sections: Sequence[str], only: str, theirs: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The outcome of every call, by its key."""
    found: dict[str, list[Any]] = {}
    start = 0
    spawn = multiprocessing.get_context("spawn")
    while True:
        receive, send = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_work, args=(package, sections, only, start, theirs, send), daemon=True)
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


def main(arguments: Sequence[str]) -> int:
    """Print every difference and the counts; 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.errors.sweep")
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--only", default="", help="calls whose text has this in it")
    parser.add_argument("--keep", type=Path, help="a folder for PyTorch's outcomes, which are read from there the next time")
    parser.add_argument("--classes", default="", help="print only these, by comma")
    options = parser.parse_args(arguments)
    theirs: dict[str, list[Any]] = {}
    kept = None if options.keep is None else options.keep / ("-".join(options.sections) + ".json")
    if kept is not None and kept.exists():
        theirs = json.loads(kept.read_text())
    else:
        theirs = gathered("torch", options.sections, options.only, {})
        if kept is not None:
            kept.write_text(json.dumps(theirs))
    ours = gathered("flambeau", options.sections, options.only, theirs)
    shown = [c for c in options.classes.split(",") if c]
    classes: Counter[str] = Counter()
    for call in _chosen(options.sections, options.only):
        for wrong in (Wrong(call, None, "valid"), *wrong_calls(call)):
            if wrong.key in ours and wrong.key in theirs:
                mine, other = (Outcome(tuple(kinds), text) for kinds, text in (ours[wrong.key], theirs[wrong.key]))
                kind = unlike(wrong, other, mine) if wrong.how != "valid" else ("valid" if mine.failed and not other.failed else None)
                classes[kind or "equal"] += 1
                if kind is not None and (not shown or kind in shown):
                    print(f"{kind:9} {wrong.key[:150]}\n    {_line(mine)}\n    {_line(other)}")
        if f"{call.text} | after" in ours:
            classes["after"] += 1
            print(f"after     {call.text}: {ours[f'{call.text} | after'][1]}")
    print(", ".join(f"{kind} {n}" for kind, n in sorted(classes.items())))
    return int(set(classes) != {"equal"})


def _line(o: Outcome) -> str:
    return f"{o.kinds[0] if o.kinds else 'result'}: {o.text.splitlines()[0][:160] if o.text else ''}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
