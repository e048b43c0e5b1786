"""How fast `flambeau serve` answers: the digits' network on the loopback, by wrk where it is installed, else by threads; processor time per request, too.

`python benchmarks/serving.py [--workers N] [--seconds S] [--connections C]`. The server and the load share the machine; nothing but 127.0.0.1 is asked.
`--text` instead has a small GPT write for so many clients: tokens a second, and processor time each.
`--soak SECONDS` instead runs the server under reloads, kills of workers, malformed bodies, slow and vanishing clients, and checks each answer.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import flambeau as torch
from flambeau.cli.demo import DigitNet
from flambeau.cli.demo_gpt import GPT
from flambeau.export.archive import VOCABULARY

SCRIPT = """local f=io.open("{body}"); local b=f:read("*a"); f:close()
wrk.method="POST"; wrk.body=b; wrk.headers["Content-Type"]="application/json"
"""


def export(folder: Path, version: int, seed: int = 0) -> torch.nn.Module:
    """The digits' network as a version of the model `digits`, which appears whole."""
    torch.manual_seed(seed)
    model = DigitNet().eval()
    batch = torch.export.Dim("batch", min=1, max=256)
    program = torch.export.export(model, (torch.randn(4, 1, 8, 8),), dynamic_shapes={"x": {0: batch}})
    at = folder / "digits" / str(version)
    at.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, str(at / "part.tmp.pt2"))
    os.replace(at / "part.tmp.pt2", at / "model.pt2")
    return model


def request(pixels: list[float]) -> bytes:
    """An infer request of one image."""
    return json.dumps({"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": pixels}]}).encode()


@contextlib.contextmanager
def serving(folder: Path, workers: int, *options: str):
    """The command, ready: (process, port)."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    words = [sys.executable, "-m", "flambeau", "serve", str(folder), "--port", str(port), "--workers", str(workers), *options]
    if workers == 1:
        words += ["--threads", "1"]
    with (folder.parent / "server.log").open("w") as log:
        process = subprocess.Popen(words, stderr=log)
        try:
            while True:
                with contextlib.suppress(OSError):
                    c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                    c.request("GET", "/v2/health/ready")
                    if c.getresponse().status == 200:
                        break
                if process.poll() is not None:
                    raise SystemExit((folder.parent / "server.log").read_text())
                time.sleep(0.1)
            yield process, port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def family(pid: int) -> list[int]:
    """A process and its children."""
    with contextlib.suppress(OSError):
        return [pid, *[int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]]
    return [pid]


def seconds_used(pid: int) -> float:
    """Processor time of a process and its children."""
    total = 0
    for p in family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Bytes that a process and its children have for themselves."""
    total = 0
    for p in family(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{p}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Private_Dirty", "Private_Clean")):
                    total += 1024 * int(line.split()[1])
    return total


def by_wrk(port: int, body: Path, connections: int, seconds: float) -> tuple[float, str, str, int]:
    """(requests per second, median, 99th percentile, requests that failed)."""
    script = body.with_suffix(".lua")
    script.write_text(SCRIPT.format(body=body))
    url = f"http://127.0.0.1:{port}/v2/models/digits/infer"
    words = ["wrk", "-t1", f"-c{connections}", f"-d{int(seconds)}", "--latency", "-s", str(script), url]
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    find = lambda pattern: (re.search(pattern, made) or [None, "0"])[1]  # noqa: E731
    return float(find(r"Requests/sec:\s+([\d.]+)")), find(r"50%\s+(\S+)"), find(r"99%\s+(\S+)"), int(find(r"Non-2xx or 3xx responses: (\d+)"))


def by_threads(port: int, body: Path, connections: int, seconds: float) -> tuple[float, str, str, int]:
    """The same by threads of this process, which are slower than the server: a lower bound."""
    times: list[float] = []
    failed: list[int] = []
    until = time.monotonic() + seconds

    def ask() -> None:
        c = http.client.HTTPConnection("127.0.0.1", port)
        data = body.read_bytes()
        while (begun := time.monotonic()) < until:
            c.request("POST", "/v2/models/digits/infer", data)
            answer = c.getresponse()
            answer.read()
            if answer.status != 200:
                failed.append(answer.status)
            times.append(time.monotonic() - begun)

    threads = [threading.Thread(target=ask) for _ in range(connections)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    times.sort()
    return len(times) / seconds, f"{times[len(times) // 2] * 1000:.2f}ms", f"{times[len(times) * 99 // 100] * 1000:.2f}ms", len(failed)


def load(folder: Path, workers: int, connections: int, seconds: float) -> None:
    """One row of the table."""
    export(folder, 1)
    body = folder.parent / "body.json"
    body.write_bytes(request([i % 17 / 16 for i in range(64)]))
    measure = by_wrk if shutil.which("wrk") else by_threads
    with serving(folder, workers, "--poll", "0") as (process, port):
        measure(port, body, connections, min(seconds, 3))
        before, begun = seconds_used(process.pid), time.monotonic()
        rate, median, last, failed = measure(port, body, connections, seconds)
        used, took = seconds_used(process.pid) - before, time.monotonic() - begun
        each = used / max(rate * seconds, 1) * 1e6
        print(f"| {measure.__name__[3:]} | {workers} | {connections} | {rate:,.0f} | {median} | {last} | {each:.0f} | {used / took:.2f} | {failed} | "
              f"{os.getloadavg()[0]:.1f} |", flush=True)  # fmt: skip


def write(folder: Path, connections: int) -> None:
    """One row of the table of language models: every client has three answers of 60 tokens, after a first one that is not measured."""
    torch.manual_seed(0)
    letters, context = [chr(40 + i) for i in range(70)], 96
    dims = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=1, max=context)}
    program = torch.export.export(GPT(len(letters), 96, 4, 3, context).eval(), (torch.randint(0, 70, (3, 7)),), dynamic_shapes=(dims,))
    at = folder / "gpt" / "1"
    at.mkdir(parents=True)
    torch.export.save(program, str(at / "model.pt2"), extra_files={VOCABULARY: json.dumps({"tokens": letters})})
    (folder / "gpt" / "config.toml").write_text("max_batch_size = 16\n")
    made: list[int] = []

    def ask(port: int, client: int, rounds: int) -> None:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for turn in range(rounds):
            prompt = "".join([letters[(client * 7 + k * 3 + turn) % len(letters)] for k in range(10 + client % 16)])
            c.request("POST", "/v1/completions", json.dumps({"model": "gpt", "prompt": prompt, "max_tokens": 60, "temperature": 0}))
            made.append(json.loads(c.getresponse().read())["usage"]["completion_tokens"])

    with serving(folder, 1, "--poll", "0") as (process, port):
        for rounds in (1, 3):
            made.clear()
            before, begun = seconds_used(process.pid), time.monotonic()
            threads = [threading.Thread(target=ask, args=(port, i, rounds)) for i in range(connections)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        used, took, count = seconds_used(process.pid) - before, time.monotonic() - begun, sum(made)
    print(f"| {connections} | {count} | {count / took:,.0f} | {used / count * 1e6:.0f} | {os.getloadavg()[0]:.1f} |", flush=True)


def soak(folder: Path, seconds: float, workers: int = 2) -> int:
    """Everything at once; 0 if no answer was wrong, no request was lost without an error, and memory did not grow."""
    models = {1: export(folder, 1, 1)}
    images = [[random.Random(i).randrange(17) / 16 for _ in range(64)] for i in range(20)]
    expected: dict[int, list[list[float]]] = {}

    def expect(version: int) -> None:
        with torch.no_grad():
            expected[version] = models[version](torch.tensor(images).reshape(-1, 1, 8, 8)).tolist()

    expect(1)
    counts = dict.fromkeys(("right", "wrong", "refused", "broken", "malformed", "vanished", "slow", "reloads", "kills", "hung"), 0)
    lock, stop = threading.Lock(), threading.Event()

    def count(what: str) -> None:
        with lock:
            counts[what] += 1

    with serving(folder, workers, "--poll", "0.5") as (process, port):

        def ask() -> None:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            while not stop.is_set():
                i = random.randrange(len(images))
                try:
                    c.request("POST", "/v2/models/digits/infer", request(images[i]))
                    answer = c.getresponse()
                    content = answer.read()
                except TimeoutError:
                    count("hung")
                    c.close()
                    continue
                except (OSError, http.client.HTTPException):  # its worker was killed
                    count("broken")
                    c.close()
                    continue
                if answer.status != 200:
                    count("refused")
                    continue
                found = json.loads(content)
                wanted = expected[int(found["model_version"])][i]
                near = all(abs(a - b) < 1e-4 for a, b in zip(found["outputs"][0]["data"], wanted, strict=True))
                count("right" if near else "wrong")

        def annoy() -> None:
            whole = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
            while not stop.is_set():
                kind = random.choice(("malformed", "vanished", "slow"))
                body = request(images[0])
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as s:
                    if kind == "malformed":
                        body = bytes([b if random.random() > 0.05 else random.randrange(256) for b in body])
                        s.sendall(whole % (len(body), body))
                        s.recv(1000)
                    elif kind == "vanished":
                        s.sendall((whole % (len(body), body))[: random.randrange(1, 900)])
                    else:
                        for byte in (whole % (len(body), body))[:20]:
                            s.sendall(bytes([byte]))
                            time.sleep(0.02)
                count(kind)
                time.sleep(0.01)

        threads = [threading.Thread(target=f) for f in (ask,) * 6 + (annoy,) * 2]
        for t in threads:
            t.start()
        begun = time.monotonic()
        time.sleep(min(20.0, seconds / 4))
        first = memory(process.pid)
        version, sizes = 1, []
        while time.monotonic() - begun < seconds:
            version += 1
            export_next(folder, version, models, expect)
            count("reloads")
            time.sleep(min(6.0, seconds / 6))
            workers_now = family(process.pid)[1:]
            if workers_now and version % 2 == 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(workers_now), signal.SIGKILL)
                    count("kills")
            time.sleep(min(6.0, seconds / 6))
            sizes.append(memory(process.pid))
        stop.set()
        for t in threads:
            t.join()
    print(json.dumps(counts), f"memory MB: {first / 1e6:.0f} at first, then {[round(s / 1e6) for s in sizes]}")
    grown = len(sizes) > 8 and min(sizes[-4:]) > 1.3 * max(first, *sizes[:4])
    return 1 if counts["wrong"] or counts["hung"] or not counts["right"] or grown else 0


def export_next(folder: Path, version: int, models: dict, expect) -> None:
    """Export a version elsewhere, learn what it must answer, then put it into the folder and take the last but one away."""
    with tempfile.TemporaryDirectory() as apart:
        models[version] = export(Path(apart), version, version)
        expect(version)
        shutil.copytree(Path(apart) / "digits" / str(version), folder / "digits" / f".{version}")
    os.rename(folder / "digits" / f".{version}", folder / "digits" / str(version))
    shutil.rmtree(folder / "digits" / str(version - 2), ignore_errors=True)


def main() -> int:
    """Measure, or soak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--text", action="store_true", help="measure a language model")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="900: the long form")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as apart:
        folder = Path(apart) / "models"
        folder.mkdir()
        if options.soak:
            return soak(folder, options.soak)
        if options.text:
            print("| connections | tokens | tokens/s | processor us/token | load |\n|" + "---|" * 5)
            write(folder, min(options.connections, 256))
            return 0
        print("| load by | workers | connections | requests/s | median | p99 | processor us/request | processors used | failed | load |\n|" + "---|" * 10)
        for workers in options.workers:
            load(folder, workers, min(options.connections, 256), min(options.seconds, 60.0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
