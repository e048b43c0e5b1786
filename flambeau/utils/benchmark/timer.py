"""Timer: runs a statement many times.

Operations are recorded and run later, and results that nobody keeps are never computed. So the value of the statement's last expression
is kept, and after every run everything that is pending is run: a time is that of results that exist.
"""

from __future__ import annotations

import ast
import enum
import textwrap
import time
from collections.abc import Callable
from typing import Any, NoReturn

from flambeau.utils.benchmark.measurement import Measurement, TaskSpec, set_torch_threads

_RESULT = "_result_of_the_statement"


def timer() -> float:
    """Seconds, after everything that is pending in this thread has run."""
    from flambeau.trace.evaluate import synchronize

    synchronize()
    return time.perf_counter()


class Language(enum.Enum):
    """What a statement is written in."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Times `stmt`, Python source or a function without arguments, after `setup`, with the names in `globals`.

    `num_threads` threads are used meanwhile. RuntimeError for language="c++".
    """

    def __init__(
        self, stmt: str | Callable[[], Any] = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None, description: str | None = None,
        env: str | None = None, num_threads: int = 1, language: Language | str = Language.PYTHON,
    ) -> None:  # fmt: skip
        if language not in (Language.PYTHON, "py", "python"):
            raise RuntimeError("torch.utils.benchmark.Timer: only Python statements can be timed: flambeau has no C++ interface")
        if global_setup:
            raise ValueError(f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to `setup`.")
        scope = dict(globals or {})
        import flambeau

        scope.setdefault("torch", flambeau)
        if callable(stmt):
            scope["_statement"] = stmt
            text, shown = "_statement()", getattr(stmt, "__name__", "stmt")
        else:
            text = shown = textwrap.dedent(stmt).strip("\n").rstrip()
        setup = textwrap.dedent(setup).strip("\n").rstrip()
        self._timer = timer
        self._task_spec = TaskSpec(shown, setup, "", label, sub_label, description, env, num_threads)
        self._loop = self._compile(text, setup, scope)

    @staticmethod
    def _compile(stmt: str, setup: str, scope: dict[str, Any]) -> Callable[[int, Callable[[], float]], float]:
        """`loop(number, timer)`: seconds of so many runs."""
        from flambeau.trace.evaluate import synchronize

        body = ast.parse(stmt or "pass").body
        if isinstance(body[-1], ast.Expr):
            last = body[-1]
            body[-1] = ast.copy_location(ast.Assign([ast.Name(_RESULT, ast.Store())], last.value), last)
        lines = f"def loop(_number, _timer):\n{textwrap.indent(setup or 'pass', '    ')}\n"
        lines += "    _start = _timer()\n    for _ in range(_number):\n        pass\n    return _timer() - _start\n"
        module = ast.parse(lines)
        function = module.body[0]
        assert isinstance(function, ast.FunctionDef)
        loop = next(n for n in reversed(function.body) if isinstance(n, ast.For))
        loop.body = [*body, ast.Expr(ast.Call(ast.Name("_synchronize", ast.Load()), [], []))]
        ast.fix_missing_locations(module)
        scope["_synchronize"] = synchronize
        made: dict[str, Any] = scope
        exec(compile(module, "<timeit-src>", "exec"), made)
        return made["loop"]  # type: ignore[no-any-return]

    def _time(self, number: int) -> float:
        return max(self._loop(number, self._timer), 1e-9)

    def _measurement(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One block of `number` runs, after a short one."""
        with set_torch_threads(self._task_spec.num_threads):
            self._time(max(number // 100, 2))
            return self._measurement(number, [self._time(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """Not offered, as in PyTorch: see blocked_autorange."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], NoReturn] | None = None) -> NoReturn:
        """Not offered, as in PyTorch: see blocked_autorange."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """So many runs a block that the clock's own time is below a thousandth of it."""
        overhead = sorted(self._loop(0, self._timer) for _ in range(5))[2]
        number = 1
        while True:
            taken = self._time(number)
            if number > 1 and overhead / taken <= 1e-3 and taken >= min_run_time / 1000:
                return number
            if taken > min_run_time:
                return number
            number *= 10

    def blocked_autorange(self, callback: Callable[[int, float], NoReturn] | None = None, min_run_time: float = 0.2) -> Measurement:
        """Blocks until `min_run_time` seconds are over, each so long that the clock does not matter."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time:
                times.append(self._time(number))
                if callback is not None:
                    callback(number, times[-1])
            return self._measurement(number, times)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Callable[[int, float], NoReturn] | None = None
    ) -> Measurement:
        """Blocks until the quartiles lie within `threshold` of the median, or `max_run_time` seconds are over."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(0.05)
            times: list[float] = []
            while True:
                times.append(self._time(number))
                if callback is not None:
                    callback(number, times[-1])
                total = sum(times)
                enough = total >= min_run_time and len(times) > 3 and self._measurement(number, times).meets_confidence(threshold)
                if enough or total >= max_run_time:
                    return self._measurement(number, times)

    def collect_callgrind(self, number: int = 100, *, repeats: int | None = None, collect_baseline: bool = True, retain_out_file: bool = False) -> NoReturn:
        """RuntimeError: instructions are not counted here."""
        raise RuntimeError("Timer.collect_callgrind: instructions are not counted here; use blocked_autorange, or `flambeau explain` for bytes and operations")
