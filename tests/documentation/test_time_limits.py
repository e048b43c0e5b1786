"""No test waits for ever: processes and threads of tests are started and waited for by tests/processes.py and tests/threads.py, or with a time limit."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.threads import Thread, beside, join

TESTS = Path(__file__).parents[1]
HELPERS = {"processes.py", "threads.py"}
# Programs that tests start, which have the limit of who starts them; and two commands that search for hours, if asked to.
ELSEWHERE = ("programs/", "differential/", "ecosystem/programs/", "distributed/scripts/", "engine/generated_programs.py", "engine/test_whole_programs.py")
STARTS = {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "Popen")} | {
    "os.system",
    "threading.Thread",
}
WAITS = {"communicate", "wait", "join"}  # of processes, threads, events and conditions: without a limit, if without arguments
NOT_WAITS = {"tests/modules/test_utils.py", "tests/modules/test_devices.py"}  # futures and works that have ended, in one thread


def without_limit(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a source that wait without a limit, and what they call."""
    tree = ast.parse(text)
    limited = {id(a) for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "asyncio.wait_for" for a in n.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in limited:
            called = ast.unparse(node.func)
            bare = not node.args and not node.keywords
            for_ever = called == "os.waitpid" and "WNOHANG" not in ast.unparse(node)
            if called in STARTS or for_ever or (bare and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS):
                yield node.lineno, called


def test_nothing_waits_without_a_limit() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        if name not in HELPERS and not name.startswith(ELSEWHERE) and f"tests/{name}" not in NOT_WAITS:
            found += [f"tests/{name}:{line}: {called}" for line, called in without_limit(path.read_text())]
    assert not found, "use tests/processes.py, tests/threads.py or a time limit:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "refused"),
    [("subprocess.run(['x'], timeout=3)", True), ("p.communicate()", True), ("p.communicate(timeout=3)", False), ("t.join()", True), ("t.join(3)", False),
     ("','.join(a)", False), ("await asyncio.wait_for(e.wait(), 3)", False), ("os.waitpid(child, 0)", True), ("os.waitpid(child, os.WNOHANG)", False),
     ("processes.run(['x'])", False)],
)  # fmt: skip
def test_what_waits(text: str, refused: bool) -> None:
    assert bool(list(without_limit(text))) == refused


# A process that starts another one, which has its pipes, and waits for it.
_WAITS = "import subprocess, sys, time\nprint('begun', flush=True)\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(100)'])"


@pytest.mark.parametrize("how", ["run", "outputs"])
def test_a_late_process_ends_with_all_it_has_started(how: str) -> None:
    start = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match=r"did not end in 2 s[^$]*begun[^$]*File ") as caught:
        if how == "run":
            processes.python("-c", _WAITS, timeout=2)
        else:
            pipe = subprocess.PIPE
            processes.outputs([processes.popen([sys.executable, "-c", _WAITS], stdout=pipe, stderr=pipe, text=True) for _ in range(2)], timeout=2)
    assert time.monotonic() - start < 60 and "in wait" in str(caught.value)


def test_the_first_line_is_waited_for_with_a_limit() -> None:
    pipe, sleeping = subprocess.PIPE, [sys.executable, "-c", "import time; time.sleep(100)"]
    with processes.started(sleeping, stdout=pipe, text=True) as process, pytest.raises(pytest.fail.Exception, match="printed nothing in 1 s"):
        processes.line_of(process, timeout=1)


def test_full_pipes_of_several_processes_are_read_at_once(tmp_path: Path) -> None:
    """The first one ends when the second has written more than a pipe takes."""
    first = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    second = "import pathlib, sys\nprint('x' * 300_000, flush=True)\npathlib.Path(sys.argv[1]).touch()"
    pipe = subprocess.PIPE
    group = [processes.popen([sys.executable, "-c", code, str(tmp_path / "done")], stdout=pipe, stderr=pipe, text=True) for code in (first, second)]
    assert [len(output) for output, _ in processes.outputs(group, timeout=60)] == [0, 300_001]


def test_late_threads_and_errors_of_threads() -> None:
    release = threading.Event()
    late = Thread(release.wait, (60,))
    late.start()
    with pytest.raises(pytest.fail.Exception, match=r"1 of 1 threads did not end in 0\.1 s[^$]*File "):
        join(late, timeout=0.1)
    release.set()
    assert join(late) == [True]
    ended: list[bool] = []
    with pytest.raises(ZeroDivisionError), beside(lambda event: ended.append(event.wait(60))):
        1 / 0
    assert ended == [True]
    with pytest.raises(ZeroDivisionError), beside(lambda event: 1 / 0):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("late", [False, True])
def test_forked_children(late: bool) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(100 if late else 0)
        os._exit(7)
    if not late:
        assert processes.exit_code_of_child(child) == 7
        return
    with pytest.raises(pytest.fail.Exception, match=r"the forked child did not end in 0\.1 s"):
        processes.exit_code_of_child(child, 0.1)
