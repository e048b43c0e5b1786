"""One of PyTorch's distributed tests in forked ranks, and what came of it: for pytorch_suite.py and pytorch_files.py beside it."""

import multiprocessing
import time


def outcome(size, target, arguments, limit, skips, longest):
    """ "passed", "skipped", or what went wrong, in at most `longest` letters.

    `target(*arguments, rank, pipe)` is what a rank runs; a text that it sends by the pipe is what went wrong. `limit`: seconds for all of it. `skips`: exit
    codes of ranks that have skipped the test.
    """
    context = multiprocessing.get_context("fork")
    processes, pipes = [], []
    for rank in range(size):
        own, theirs = context.Pipe()
        process = context.Process(target=target, args=(*arguments, rank, theirs))
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(own)
    texts = []
    end = time.monotonic() + limit
    while any(p.is_alive() for p in processes) and time.monotonic() < end:
        texts += _received(pipes, 0.01)
        if texts:
            end = min(end, time.monotonic() + 2)
    late = [rank for rank, p in enumerate(processes) if p.is_alive()]
    for process in processes:
        process.kill()
        process.join()
    texts += _received(pipes, 0)
    if texts:
        return texts[0][-longest:]
    if late:
        return f"timed out: ranks {late}"
    codes = [p.exitcode for p in processes]
    if all(code in skips for code in codes):
        return "skipped"
    return "passed" if codes == [0] * len(codes) else f"exit codes {codes}"


def _received(pipes, patience):
    """The texts that wait in pipes, for which it waits that many seconds each."""
    found = []
    for pipe in pipes:
        try:
            while pipe.poll(patience):
                found.append(pipe.recv())
        except (EOFError, OSError):
            pass
    return [text for text in found if isinstance(text, str)]
