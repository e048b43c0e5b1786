"""PyTorch's own tests of torch.distributed (distributed_test.py, which ships with PyTorch) that need no GPU, with PyTorch or with flambeau in its name.

`FOLDER` is where PyTorch is installed. Each test runs in forked ranks. Writes a line of JSON for each: its name, and "passed", "skipped", or what went wrong.

    python tests/distributed/scripts/pytorch_suite.py FOLDER OUT [NAMES ...]                     with PyTorch
    python -m flambeau run tests/distributed/scripts/pytorch_suite.py FOLDER OUT [NAMES ...]     with flambeau
"""

import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
import types
from pathlib import Path

FOLDER, OUT = Path(sys.argv[1]), Path(sys.argv[2])
LIMIT = 40.0  # seconds for a test
os.environ.update(BACKEND="gloo", WORLD_SIZE=os.environ.get("WORLD_SIZE", "2"), INIT_METHOD="file://", OMP_NUM_THREADS="1", TORCH_DISTRIBUTED_DEBUG="OFF")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from forked_ranks import outcome  # noqa: E402 - of this folder

OURS = "flambeau" in torch.__file__


class Absent:
    """A name that is not there: the tests that use it fail."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self.__name__} is not there")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __mro_entries__(self, bases):
        return ()


def module(name, **names):
    """A module that the tests import: what is there of it, and these names where it has them not."""
    try:
        found = importlib.import_module(name)
    except ImportError:
        found = types.ModuleType(name)
        found.__path__ = []
        sys.modules[name] = found
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], last, found)
    for key, value in names.items():
        if not hasattr(found, key):
            setattr(found, key, value)
    return found


def source(name, path):
    """A module of PyTorch's tests, from its file."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def absent(names):
    return {name: Absent(name) for name in names.split()}


def stand_ins():
    """What the files import of PyTorch's own testing, and of its internals."""
    import unittest
    from contextlib import contextmanager

    @contextmanager
    def temporary_file_name(*args, **kwargs):
        with tempfile.TemporaryDirectory() as folder:
            yield os.path.join(folder, "file")

    def plain(function):
        return function

    def skipper(reason):
        return unittest.skip(reason)

    def skipper_if(condition, reason):
        return unittest.skipIf(condition, reason)

    class Lazy:
        def __init__(self, function):
            self.function = function

        def __bool__(self):
            return bool(self.function())

    def instantiate(cls):
        return cls

    flags = dict.fromkeys("IS_FBCODE IS_MACOS IS_SANDCASTLE IS_WINDOWS TEST_WITH_ROCM TEST_WITH_TSAN TEST_CUDA TEST_HPU TEST_XPU".split(), False)
    testing = module("torch.testing._internal.common_utils")
    module(
        "torch.testing._internal.common_utils", IS_LINUX=True, FILE_SCHEMA="file://", TemporaryFileName=temporary_file_name, LazyVal=Lazy,
        retry_on_connect_failures=plain, skip_but_pass_in_sandcastle=skipper, skip_but_pass_in_sandcastle_if=skipper_if,
        instantiate_parametrized_tests=instantiate, find_free_port=lambda: 0, **flags,
    )  # fmt: skip
    module("torch.testing._internal").common_utils = testing
    module("torch._utils_internal", TEST_MASTER_ADDR="127.0.0.1", TEST_MASTER_PORT=29500)
    module("torch._dynamo.test_case", TestCase=testing.TestCase)
    torch._C._set_print_stack_traces_on_fatal_signal = lambda on: None
    module("torch._C._autograd", DeviceType=Absent("DeviceType"))
    module("torch._C._distributed_c10d", **absent("_SymmetricMemory"))
    module("torch._logging")
    module("torch._logging._internal", trace_log=__import__("logging").getLogger("trace"))
    module("torch.testing._internal.distributed")
    module("torch.testing._internal.distributed.multi_threaded_pg", **absent("_install_threaded_pg _uninstall_threaded_pg ProcessLocalGroup"))
    module("torch.autograd", **absent("DeviceType"))
    module("torch.distributed.algorithms.model_averaging")
    for part in ("hierarchical_model_averager", "utils"):
        module(f"torch.distributed.algorithms.model_averaging.{part}", **absent("HierarchicalModelAverager average_parameters get_params_to_average"))
    module("torch.distributed.optim.post_localSGD_optimizer", **absent("PostLocalSGDOptimizer"))
    module("torch.distributed.algorithms.ddp_comm_hooks")
    for part in ("default_hooks", "post_localSGD_hook", "powerSGD_hook", "quantization"):
        module(f"torch.distributed.algorithms.ddp_comm_hooks.{part}")
    module("torch.distributed.distributed_c10d", _TORCHCOMM_AVAILABLE=False, **absent("_get_pg_config _get_default_group get_world_size"))
    module("torch.distributed.optim", **absent("_apply_optimizer_in_backward"))
    module("torch.distributed.utils", **absent("_sync_module_states _verify_param_shape_across_processes"))
    module(
        "torch.nn.parallel.distributed",
        **absent("_BucketCapacityConfig _DEFAULT_BUCKET_CAP_MB _dump_DDP_relevant_env_vars _MB_TO_BYTES _MixedPrecision"),
    )
    module("torch.profiler", **absent("ExecutionTraceObserver ProfilerActivity"))
    module("torch.utils._python_dispatch", TorchDispatchMode=object)


def run_rank(cls, name, file, rank, pipe):
    """One rank of a test."""
    sys.stdout = sys.stderr = open(os.environ.get("RANK_OUTPUT", os.devnull), "a")  # noqa: SIM115
    cls._run(rank, name, file, pipe)


def run_test(suite, cls, name):
    """A test's outcome."""
    skips = {skip.exit_code for skip in suite.TEST_SKIPS.values()}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEMP_DIR"] = folder
        for part in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(folder, part))
        return outcome(int(os.environ["WORLD_SIZE"]), run_rank, (cls, name, os.path.join(folder, "init_dir", "shared")), LIMIT, skips, 1500)


def main():
    if OURS:
        stand_ins()
        common = source("torch.testing._internal.common_distributed", "testing/_internal/common_distributed.py")
        common.create_device = lambda *a, **k: None
        suite = source("pytorch_distributed_test", "testing/_internal/distributed/distributed_test.py")
    else:
        suite = importlib.import_module("torch.testing._internal.distributed.distributed_test")
    if not dist.is_available():
        raise SystemExit("no torch.distributed")

    class Tests(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        pass

    wanted = sys.argv[3:] or sorted(n for n in dir(Tests) if n.startswith("test_"))
    done = {json.loads(line)["test"] for line in OUT.read_text().splitlines()} if OUT.exists() else set()
    for name in wanted:
        if name in done:
            continue
        method = getattr(Tests, name, None)
        start = time.monotonic()
        if getattr(method, "__unittest_skip__", False):
            found = "skipped"
        else:
            found = run_test(suite, Tests, name)
        with OUT.open("a") as file:
            file.write(json.dumps({"test": name, "outcome": found, "seconds": round(time.monotonic() - start, 2)}) + "\n")


if __name__ == "__main__":
    main()
