"""Files of PyTorch's own tests (of its repository, fetched to run) in one process, with PyTorch or with flambeau in its name.

`SOURCES` is a folder with PyTorch's `test` and `torch/testing`, which are read from there. Writes a line of JSON for each test: its file, class and name,
"passed", "skipped" or what went wrong, and seconds. A test that dies or takes longer than LIMIT seconds is one outcome; the others go on in another process.

    python tests/pytorch_suites/plain_files.py SOURCES OUT FILE [PART OF NAMES ...]                     with PyTorch
    python -m flambeau run tests/pytorch_suites/plain_files.py SOURCES OUT FILE [PART OF NAMES ...]     with flambeau

Environment: LIMIT, seconds for a test (60); EVERY, one test of so many (1); TOTAL, seconds for all; ORACLE, what this wrote with PyTorch: only what passed
there runs; APART=1: each test in a process of its own; tests with an outcome in OUT are left out, those that did not pass only without APART.
"""

import json
import multiprocessing
import os
import sys
import time
import traceback
import unittest
from pathlib import Path

SOURCES, OUT, FILE = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
PARTS = sys.argv[4:]
sys.argv = [str(FILE)]  # the tests' common module reads it
sys.path.insert(0, str(Path(__file__).parent))
LIMIT, TOTAL, EVERY = float(os.environ.get("LIMIT", "60")), float(os.environ.get("TOTAL", "inf")), int(os.environ.get("EVERY", "1"))
ORACLE, APART = os.environ.get("ORACLE"), os.environ.get("APART") == "1"
LONGEST = 2500  # letters of what went wrong
os.environ.update(PYTORCH_TESTING_DEVICE_ONLY_FOR="cpu", OMP_NUM_THREADS="1", PYTORCH_PRINT_REPRO_ON_FAILURE="0")

import torch  # noqa: E402
from absent_names import Absent, load, share, soften  # noqa: E402 - of this folder

OURS = "flambeau" in torch.__file__


def prepare():
    """Make the tests' common modules load."""
    share(SOURCES / "torch", OURS)
    if OURS:
        import torch._inductor.config
        import torch.ao.nn
        import torch.fx
        import torch.profiler

        for owner in (
            torch._C,
            torch.cuda,
            torch.profiler,
            torch.autograd,
            torch.fx,
            torch.nn,
            torch.ao.nn,
            torch.backends,
            torch._inductor.config,
            type(torch.ops.aten),
        ):
            soften(owner)
        soften(torch, lambda name: name.startswith("_") and not name.startswith("_foreach"))
        tensors = sys.modules["flambeau.tensor"]
        is_ours = tensors.is_ours  # subclasses of the tests are nobody's of flambeau
        tensors.is_ours = lambda module: is_ours(module) and not module.startswith("torch.testing._internal")
    import torch.testing._internal.common_utils as common

    common.open_source_signpost = lambda **facts: None
    common.run_tests = lambda *args, **kwargs: None


def outcome(cls, name):
    """What comes of one test."""
    result = unittest.TestResult()
    try:
        cls(name).run(result)
    except unittest.SkipTest:
        return "skipped"
    except BaseException:
        return traceback.format_exc()[-LONGEST:]
    bad = result.errors + result.failures
    if bad:
        return bad[0][1][-LONGEST:]
    return "skipped" if result.skipped else "passed"


def run_from(tests, first, pipe):
    """Run tests one after the other in this process; tell when each begins and what comes of it."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for i in range(first, first + 1 if APART else len(tests)):
        start = time.monotonic()
        pipe.send((i, None, 0.0))
        pipe.send((i, outcome(*tests[i]), round(time.monotonic() - start, 2)))
    os._exit(0)


def run_all(tests, note):
    """Run tests in processes. `note(test, outcome, seconds)` is told of each."""
    context, i, end = multiprocessing.get_context("fork"), 0, time.monotonic() + TOTAL
    while i < len(tests) and time.monotonic() < end:
        own, theirs = context.Pipe()
        process = context.Process(target=run_from, args=(tests, i, theirs))
        process.start()
        theirs.close()
        begun, running = time.monotonic(), True
        while running and time.monotonic() < end:
            try:
                if not own.poll(max(begun + LIMIT - time.monotonic(), 0.01)):
                    note(tests[i], "timed out", LIMIT)
                    i, running = i + 1, False
                    continue
                i, found, seconds = own.recv()
                begun = time.monotonic()
                if found is not None:
                    note(tests[i], found, seconds)
                    i += 1
                    running = not APART and i < len(tests)
            except (EOFError, OSError):
                process.join(LIMIT)
                note(tests[i], f"the process ended with {process.exitcode}", round(time.monotonic() - begun, 2))
                i, running = i + 1, False
        process.kill()
        process.join(LIMIT)
        own.close()


def read(path):
    """The last outcome of each test in a file that this has written."""
    return {tuple(found["test"]): found["outcome"] for found in map(json.loads, Path(path).read_text().splitlines())}


def main():
    """Run the tests of a file whose names have one of the parts."""
    prepare()
    module = load(FILE)
    Absent.loading = False
    done = {k for k, v in read(OUT).items() if not APART or v in ("passed", "skipped")} if OUT.exists() else set()
    wanted = None if ORACLE is None else {k for k, v in read(ORACLE).items() if v == "passed"}
    classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, unittest.TestCase)]
    tests = [(c, n) for c in classes for n in sorted(dir(c)) if n.startswith("test") and any(p in f"{c.__name__}.{n}" for p in PARTS or [""])][::EVERY]

    def key(test):
        return FILE.name, test[0].__name__, test[1]

    tests = [t for t in tests if key(t) not in done and (wanted is None or key(t) in wanted)]
    print(f"{FILE.name}: {len(tests)} tests", flush=True)
    with OUT.open("a") as out:

        def note(test, found, seconds):
            out.write(json.dumps({"test": key(test), "outcome": found, "seconds": seconds}) + "\n")
            out.flush()

        run_all(tests, note)


if __name__ == "__main__":
    main()
