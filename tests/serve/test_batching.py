"""Batches by size and deadline, bounded queues, requests that are cancelled, fail or come too late."""

import asyncio
import threading
import time

import numpy as np
import pytest

import tests.serve.running  # skips where a package is missing  # noqa: F401
from flambeau.serve.batching import Batcher, Job
from flambeau.serve.datatypes import TensorSpec
from flambeau.serve.errors import DeadlineExceeded, QueueFull, ServeError, Unavailable
from flambeau.serve.programs import Program
from flambeau.serve.settings import ModelSettings
from flambeau.serve.versions import Model, Version


class Doubling(Program):
    """Doubles; 13 is refused, a negative number waits until `go`."""

    def __init__(self):
        spec = TensorSpec("x", "FP64", (-1, 1))
        super().__init__([spec], [spec], True, None)
        self.runs, self.go, self.closed = [], threading.Event(), 0

    def run(self, arrays):
        self.runs.append([float(v) for v in arrays[0].ravel()])
        if (arrays[0] < 0).any():
            assert self.go.wait(20)
        if (arrays[0] == 13).any():
            raise ValueError("13 is unlucky")
        return [arrays[0] * 2]

    def close(self):
        self.closed += 1


def _job(value, done, seconds=10.0, rows=1):
    return Job([np.full((rows, 1), float(value))], rows, time.monotonic() + seconds, done)


def _with_batcher(body, **options):
    async def main():
        program = Doubling()
        batcher = Batcher(program, asyncio.get_running_loop(), **options)
        await body(batcher, program)
        program.go.set()
        ended = asyncio.Event()
        batcher.close(lambda: (program.close(), ended.set()))
        await asyncio.wait_for(ended.wait(), 20)
        assert program.closed == 1

    asyncio.run(main())


async def _until(true):
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it has not come to that")


@pytest.mark.parametrize("inline", [True, False])
def test_what_has_come_is_one_batch_and_each_gets_its_own_rows(inline):
    async def body(batcher, program):
        done = []
        jobs = [_job(i, done.append, rows=1 + i % 2) for i in range(10)]
        for j in jobs:
            batcher.submit(j)
        await _until(lambda: len(done) == 10)
        assert all((j.outputs[0] == 2 * i).all() and j.outputs[0].shape == (1 + i % 2, 1) for i, j in enumerate(jobs))
        assert all(len(r) <= 8 for r in program.runs) and sum(map(len, program.runs)) == 15 and len(program.runs) <= 4

    _with_batcher(body, inline=inline, most=8)


def test_a_batch_waits_for_its_delay_or_its_size():
    async def body(batcher, program):
        done = []
        begun = time.monotonic()
        batcher.submit(_job(1, done.append))
        batcher.submit(_job(2, done.append))
        await asyncio.sleep(0.02)
        assert not done
        await _until(lambda: len(done) == 2)
        assert time.monotonic() - begun >= 0.1 and program.runs == [[1, 2]]
        for i in range(4):
            batcher.submit(_job(i, done.append))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert program.runs[1:] == [[0, 1, 2, 3]]  # full: it did not wait

    _with_batcher(body, inline=True, most=4, delay=0.1)


@pytest.mark.parametrize("inline", [True, False])
def test_one_request_that_fails_does_not_fail_the_others(inline):
    async def body(batcher, program):
        done = []
        jobs = [_job(v, done.append) for v in (1, 13, 2)]
        for j in jobs:
            batcher.submit(j)
        await _until(lambda: len(done) == 3)
        assert [j.outputs[0].item() for j in jobs if j.error is None] == [2, 4]
        assert isinstance(jobs[1].error, ServeError) and jobs[1].error.status == 400 and "unlucky" in str(jobs[1].error)

    _with_batcher(body, inline=inline, most=8)


def test_a_full_queue_refuses_and_cancelled_jobs_are_not_run():
    async def body(batcher, program):
        done = []
        batcher.submit(_job(-1, done.append))
        await _until(lambda: program.runs)
        waiting = [_job(i, done.append) for i in range(3)]
        for j in waiting:
            batcher.submit(j)
        with pytest.raises(QueueFull):
            batcher.submit(_job(9, done.append))
        waiting[1].cancel()
        program.go.set()
        await _until(lambda: len(done) == 3)
        assert waiting[1] not in done and program.runs == [[-1], [0, 2]]

    _with_batcher(body, most=8, room=3)


def test_deadlines_in_the_queue_and_while_the_model_runs():
    async def body(batcher, program):
        done = []
        running, waiting, patient = _job(-1, done.append, 0.1), _job(1, done.append, 0.05), _job(2, done.append)
        batcher.submit(running)
        await _until(lambda: program.runs)
        batcher.submit(patient)
        batcher.submit(waiting)
        await _until(lambda: len(done) == 2)
        assert done == [waiting, running] and all(isinstance(j.error, DeadlineExceeded) for j in done)
        assert "queue" in str(waiting.error) and "ran" in str(running.error)
        program.go.set()
        await _until(lambda: len(done) == 3)
        assert program.runs == [[-1], [2]] and patient.outputs[0].item() == 4

    _with_batcher(body, most=8)


def test_closing_answers_what_was_taken_and_takes_nothing_new():
    async def body(batcher, program):
        done = []
        batcher.submit(_job(-1, done.append))
        await _until(lambda: program.runs)
        batcher.submit(_job(3, done.append))
        batcher.close()
        with pytest.raises(Unavailable):
            batcher.submit(_job(4, done.append))
        assert not done
        program.go.set()
        await _until(lambda: len(done) == 2)

    async def main():
        program = Doubling()
        await body(Batcher(program, asyncio.get_running_loop(), most=8), program)

    asyncio.run(main())


def test_other_shapes_wait_for_their_own_batch_in_order():
    async def body(batcher, program):
        done = []
        jobs = [Job([np.full((1, 1 + i % 2), float(i))], 1, time.monotonic() + 10, done.append) for i in range(6)]
        for j in jobs:
            batcher.submit(j)
        await _until(lambda: len(done) == 6)
        assert program.runs == [[0, 2, 4], [1, 1, 3, 3, 5, 5]]

    _with_batcher(body, inline=True, most=8)


def test_canaries_get_exactly_their_share():
    model = Model("m", ModelSettings(versions="all", weights={"1": 0.9, "2": 0.1}))
    model.versions = {n: Version("m", n, None) for n in (1, 2)}
    taken = [model.version().number for _ in range(1000)]
    assert taken.count(2) == 100
    assert max(map(len, "".join(map(str, taken)).split("2"))) <= 10  # spread evenly
    assert model.version("2").number == 2
    model.settings = ModelSettings()
    assert model.version().number == 2
