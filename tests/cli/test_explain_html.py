"""`flambeau explain SCRIPT --html FILE`: one page, well-formed, self-contained, escaped, with what it promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.cli import charts, explain_html
from flambeau.cli.charts import Point, Roof
from flambeau.trace import evaluate
from tests import processes

pytestmark = pytest.mark.usefixtures("whole")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(32, 64), torch.arange(32) % 10
for _ in range(4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
print(torch.sort(x)[0].sum().item() > 0, sys.argv[1:])
"""
VOID = {"meta", "br", "hr", "img", "input", "link", "line", "rect", "circle", "path"}


NETWORK = """
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 128)

    def forward(self, x):
        return torch.nn.functional.gelu(self.first(x))


net = torch.nn.Sequential(Block(), torch.nn.Linear(128, 10))
loss = net(torch.randn(32, 64)).square().sum()
loss.backward()
print(loss.item() > 0, net[1].weight.grad.sum().item() != 0)
"""


class Page(HTMLParser):
    """Checks that elements close in order, and gathers what is on the page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID or (tag in ("rect", "circle", "path") and not self.get_starttag_text().endswith("/>")):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(t == tag for t, _ in self.tags)


def explain(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flambeau.cli.main", "explain", *arguments]
    (folder / script).write_text(SCRIPT) if not (folder / script).exists() else None
    return processes.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("page")
    name = 'evil <img src=x onerror=alert(1)>&".py'.replace("/", "")
    done = explain(folder, name, name, "--html", "page.html", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    return (folder / "page.html").read_text(), done.stdout


def test_page_is_well_formed_and_complete(made: tuple[str, str]) -> None:
    text, output = made
    page = Page(text)
    words = " ".join(page.words)
    assert "True ['--epochs', '3']" in output  # the script ran, with its own arguments
    for wanted in ("Roofline", "Memory plan", "Kernels and the buffers between them", "matmul_float32", "floor/us", "taken/us", "share", "Graph:"):
        assert wanted in words, wanted
    assert page.count("circle") > 5 and page.count("svg") >= 4 and page.count("details") >= 3
    assert "inf" not in re.findall(r"[a-zA-Z]+", words) and "nan" not in words.lower().split()
    numbers = [float(v) for _, a in page.tags for k, v in a.items() if k in ("x", "y", "cx", "cy", "r", "width", "height") and v and not v.endswith("%")]
    assert numbers and all(abs(n) < 1e5 for n in numbers)


def test_page_needs_nothing_else_and_escapes(made: tuple[str, str]) -> None:
    text, _ = made
    page = Page(text)
    assert page.count("script") == page.count("img") == page.count("link") == page.count("iframe") == 0
    for _, attributes in page.tags:
        assert not any(k in ("src", "href", "xlink:href") or k.startswith("on") for k in attributes)
    assert set(re.findall(r"https?://[^\"'\s<]+", text)) <= {"http://www.w3.org/2000/svg"} and "@import" not in text and "url(" not in text
    assert 'evil <img src=x onerror=alert(1)>&".py' in " ".join(page.words)


def test_page_is_written_although_the_script_fails(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import torch\nprint(torch.ones(3).cumsum(0).tolist())\nraise SystemExit(3)\n")
    done = explain(tmp_path, "fails.py", "--html", str(tmp_path / "p.html"), "fails.py")
    assert done.returncode == 3 and "cumsum" in (tmp_path / "p.html").read_text()
    (tmp_path / "empty.py").write_text("x = 1\n")
    done = explain(tmp_path, "empty.py", "--html", "e.html", "empty.py")
    assert done.returncode == 0 and "ran no kernels" in (tmp_path / "e.html").read_text()
    done = explain(tmp_path, "empty.py", "--html", "no/such/folder.html", "empty.py")
    assert done.returncode == 1 and "no such directory" in done.stderr
    kept = (tmp_path / "e.html").read_text()
    done = explain(tmp_path, "empty.py", "--html", "e.html", "nosuch.py")
    assert done.returncode == 2 and "no such file: nosuch.py" in done.stderr and (tmp_path / "e.html").read_text() == kept


def test_page_names_lines_and_modules(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    done = explain(tmp_path, "net.py", "--html", "p.html", "net.py")
    assert done.returncode == 0, done.stderr
    words = " ".join(Page((tmp_path / "p.html").read_text()).words)
    lines = NETWORK.splitlines()
    call = next(i for i, text in enumerate(lines, start=1) if "return torch.nn" in text)
    last = next(i for i, text in enumerate(lines, start=1) if "backward()" in text)
    outer = next(i for i, text in enumerate(lines, start=1) if "loss = net" in text)
    assert f"net.py:{call} in 0.first (Linear) (" in words and f"net.py:{call} in 0 (Block) (" in words
    assert f"net.py:{outer} in 1 (Linear) (" in words and f"net.py:{last} (" in words


def test_page_says_that_the_machine_was_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def page_of(speed: float, size: int) -> str:
        monkeypatch.setattr(explain_html.machine, "bandwidth", lambda: speed)
        monkeypatch.setattr(explain_html.machine, "cache_bandwidth", lambda: speed)
        monkeypatch.setattr(explain_html.machine, "peak", lambda dtype=None: speed)
        watcher = explain_html.watch()
        assert (torch.randn(size, size) * 2).exp().sum().item() > 0
        return explain_html.page(watcher, "s.py")

    quiet, busy = Page(page_of(1e15, 300)), Page(page_of(1e3, 301))  # a machine that is measured a thousand times too fast, and one too slow
    assert not any("over" in (a.get("class") or "").split() for _, a in quiet.tags)
    assert sum(tag == "td" and a.get("class") == "over" for tag, a in busy.tags) >= 1
    assert "shares are over 100 %" in " ".join(busy.words) and "quiet machine" in " ".join(busy.words)


def test_page_fits_the_window(made: tuple[str, str]) -> None:
    """What may be wider than the window scrolls by itself, or wraps: tables of kernels, drawings, long words."""
    text, _ = made
    for at in (m.start() for m in re.finditer("<table>", text)):
        scrolls = text[:at].endswith('<div class="scroll">')
        cells = re.findall(r'<td(?: class="([^"]*)")?>', text[at : text.index("</table>", at)])
        assert scrolls or all("w" in c.split() for c in cells)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "overflow-wrap:anywhere" in style and ".scroll{overflow:auto" in style and "svg{" in style and "max-width:100%" in style


def test_page_beside_the_scripts_own_profiler(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import torch\nx = torch.ones(64)\nwith torch.profiler.profile() as p:\n    (x * 2).sum().item()\n"
        "assert any(e.kind == 'kernel' for e in p.events())\n(x.exp() + 1).sum().item()\n"
    )
    done = explain(tmp_path, "own.py", "--html", "p.html", "own.py")
    assert done.returncode == 0, done.stderr
    assert "exp" in (tmp_path / "p.html").read_text()


def test_text_report_still_works(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import torch\nprint((torch.ones(5) * 2).sum().item())\n")
    done = explain(tmp_path, "s.py", "s.py")
    assert done.returncode == 0 and "10.0" in done.stdout and "floor/us" in done.stdout


def test_browser_reads_it(made: tuple[str, str], tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if browser is None:
        pytest.skip("no headless browser is installed")
    (tmp_path / "page.html").write_text(made[0])
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = processes.run([browser, *flags, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=60)
    assert done.stdout.count("<circle") == made[0].count("<circle") and "<h3>Roofline</h3>" in done.stdout


# -- the charts alone -------------------------------------------------------------------------------------------------


def plans_of(work: Any) -> list[Any]:
    found: list[Any] = []
    observer = lambda plan, reason: found.append(plan.plan)
    evaluate.OBSERVERS.append(observer)
    try:
        work()
    finally:
        evaluate.OBSERVERS.remove(observer)
    return found


def test_roofline_places_points_under_their_roofs() -> None:
    roofs = [Roof("memory", 10e9, True), Roof("peak", 100e9, False)]
    at_roof = Point(1e6, 1e5, 1e6 / 10e9, "memory bound & <full> speed")
    at_peak = Point(1e3, 1e9, 1e9 / 100e9, "compute")
    page = Page(charts.roofline([at_roof, at_peak, Point(1e6, 0, 1e-3, "copy"), Point(1, 1, 0.0, "not timed")], roofs))
    circles = [a for tag, a in page.tags if tag == "circle"]
    assert len(circles) == 2  # a copy has no place here
    lines = [a for tag, a in page.tags if tag == "line" and "stroke" in a]
    slanted, flat = ({k: float(v or 0) for k, v in a.items() if k in ("x1", "x2", "y1", "y2")} for a in lines)
    by_size = sorted(circles, key=lambda a: float(a["cx"] or 0))
    x, y = float(by_size[0]["cx"] or 0), float(by_size[0]["cy"] or 0)
    on_roof = slanted["y1"] + (x - slanted["x1"]) / (slanted["x2"] - slanted["x1"]) * (slanted["y2"] - slanted["y1"])
    assert y == pytest.approx(on_roof, abs=0.5)
    assert float(by_size[1]["cy"] or 0) == pytest.approx(flat["y1"], abs=0.2)
    assert charts.roofline([], roofs) == ""


def test_graph_and_memory_of_a_plan() -> None:
    x = torch.randn(256, 257)
    (plan,) = plans_of(lambda: (torch.sort(x @ x.t(), -1)[0].cumsum(0) @ x).sum().item())
    drawn = Page(charts.kernel_graph(plan))
    writer: dict[int, tuple[int, str]] = {}
    lines = set()  # which kernels there are depends on the processor
    for step, phase in zip(plan.steps, plan.phases, strict=True):
        lines |= {(writer[r], (phase, step.key)) for r in step.reads if writer.get(r, (phase, step.key)) != (phase, step.key)}
        writer |= dict.fromkeys(step.writes, (phase, step.key))
    assert lines and drawn.count("path") == len(lines)
    assert sum(a.get("class") == "under" for _, a in drawn.tags) == plan.kernel_count
    memory = Page(charts.memory_plan(plan))
    boxes = [a for tag, a in memory.tags if tag == "rect"]
    assert boxes and plan.arena_bytes > 0
    assert all(float(a["y"] or 0) >= 9.5 and float(a["y"] or 0) + float(a["height"] or 0) <= 206.5 for a in boxes)
    assert charts.kernel_graph(plan, most=1) == ""
