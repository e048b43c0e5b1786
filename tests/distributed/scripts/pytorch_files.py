"""Files of PyTorch's own tests of torch.distributed (of its repository) that need no GPU, with PyTorch or with flambeau in its name.

`FOLDER` is where PyTorch is installed: what its tests share comes from there. Each test runs in forked ranks, those for ranks that are threads too. Writes a
line of JSON for each: its file, class and name, and "passed", "skipped", or what went wrong. Names that flambeau does not have stand for an error at their use.

    python tests/distributed/scripts/pytorch_files.py FOLDER OUT FILE [PART OF NAMES ...]                     with PyTorch
    python -m flambeau run tests/distributed/scripts/pytorch_files.py FOLDER OUT FILE [PART OF NAMES ...]     with flambeau
"""

import json
import os
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path

FOLDER, OUT, FILE = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
LIMIT = float(os.environ.get("LIMIT", "60"))  # seconds for a test
os.environ.update(BACKEND="gloo", OMP_NUM_THREADS="1", TORCH_DISTRIBUTED_DEBUG="OFF")
sys.path.append(str(Path(__file__).parents[2] / "pytorch_suites"))

import torch  # noqa: E402
from absent_names import Absent, load, share  # noqa: E402 - of tests/pytorch_suites
from forked_ranks import outcome  # noqa: E402 - of this folder

OURS = "flambeau" in torch.__file__


def run_rank(common, cls, size, name, file, rank, pipe):
    """One rank of a test."""
    log = open(os.environ.get("RANK_OUTPUT", os.devnull), "a")  # noqa: SIM115
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    if issubclass(cls, common.MultiProcessTestCase):
        cls._run(rank, name, file, pipe)
        return
    import torch.distributed as dist

    try:
        if issubclass(cls, common.MultiThreadedTestCase):
            test = cls(name)
            test.rank = rank
            dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
            test.perThreadSetUp()
            getattr(test, name)()
            test.perThreadTearDown()
            dist.barrier()
            dist.destroy_process_group()
        else:
            result = unittest.TestResult()
            cls(name).run(result)
            bad = result.errors + result.failures
            if bad:
                pipe.send(bad[0][1])
                os._exit(1)
            if result.skipped:
                pipe.send("skipped")
    except unittest.SkipTest:
        pipe.send("skipped")
    except BaseException:
        pipe.send(traceback.format_exc())
        os._exit(1)


def run_test(common, cls, name):
    """A test's outcome."""
    many = issubclass(cls, (common.MultiProcessTestCase, common.MultiThreadedTestCase))
    size = cls(name).world_size if many else 1
    skips = {skip.exit_code for skip in common.TEST_SKIPS.values()}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEMP_DIR"] = folder
        return outcome(size, run_rank, (common, cls, size, name, os.path.join(folder, "shared")), LIMIT, skips, 2500)


def main():
    """Run the tests of a file whose names have one of the parts; those that have an outcome already are left out."""
    share(FOLDER, OURS)
    if OURS:
        import torch.distributed as dist

        own_init = dist.init_process_group
        dist.init_process_group = lambda backend=None, *args, **kwargs: own_init("fake" if backend == "mock_process_group" else backend, *args, **kwargs)
        torch._C._len_torch_function_stack = torch._C._get_torch_function_state = lambda: 0
    import torch.testing._internal.common_distributed as common

    if OURS:
        sys.modules["torch.testing._internal.common_utils"].open_source_signpost = lambda **facts: None
    module = load(FILE)
    Absent.loading = False
    done = {tuple(json.loads(line)["test"]) for line in OUT.read_text().splitlines()} if OUT.exists() else set()
    for cls in [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, unittest.TestCase) and c.__module__ == module.__name__]:
        for name in sorted(n for n in dir(cls) if n.startswith("test")):
            test = (str(FILE.name), cls.__name__, name)
            if test in done or not (len(sys.argv) < 5 or any(part in f"{cls.__name__}.{name}" for part in sys.argv[4:])):
                continue
            start = time.monotonic()
            skipped = getattr(getattr(cls, name), "__unittest_skip__", False) or getattr(cls, "__unittest_skip__", False)
            try:
                found = "skipped" if skipped else run_test(common, cls, name)
            except Exception:
                found = traceback.format_exc()
            with OUT.open("a") as file:
                file.write(json.dumps({"test": test, "outcome": found, "seconds": round(time.monotonic() - start, 2)}) + "\n")


if __name__ == "__main__":
    main()
