"""The pages of `flambeau demo --web` in a headless Chromium without a network: digits by mouse, finger and keyboard, and a GPT that writes."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.deploy import chromium

pytestmark = pytest.mark.skipif(
    not (chromium.PROGRAM and importlib.util.find_spec("ziglang") and importlib.util.find_spec("tqdm")), reason="chromium, ziglang and tqdm are wanted"
)
BEST = "[...document.querySelectorAll('.bar')].findIndex((row) => row.classList.contains('best'))"
INK = "paper.getContext('2d').getImageData(0, 0, 320, 320).data.filter((x) => x).length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    command = [sys.executable, "-m", "flambeau", "demo", "--web", "--epochs", "3", "--steps", "2", "--out", str(made), "--seed", "1"]
    done = processes.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture
def digits(folder: Path) -> Iterator[Any]:
    page = chromium.Page((folder / "digits.html").as_uri())
    page.wait("document.documentElement?.dataset.ready === 'yes'")
    yield page
    page.close()


def corner(page: Any) -> tuple[float, float]:
    """Where the paper begins on the page."""
    x, y = page.value("(() => { const b = paper.getBoundingClientRect(); return [b.left, b.top]; })()")
    return x, y


def mouse(page: Any, points: list[tuple[float, float]]) -> None:
    left, top = corner(page)
    for i, (x, y) in enumerate(points):
        kind = "mousePressed" if i == 0 else "mouseMoved"
        page.call("Input.dispatchMouseEvent", type=kind, x=left + x, y=top + y, button="left", buttons=1, clickCount=1)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", x=left + points[-1][0], y=top + points[-1][1], button="left", clickCount=1)


def touch(page: Any, points: list[tuple[float, float]]) -> None:
    left, top = corner(page)
    for i, (x, y) in enumerate(points):
        page.call("Input.dispatchTouchEvent", type="touchStart" if i == 0 else "touchMove", touchPoints=[{"x": left + x, "y": top + y}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def press(page: Any, key: str, count: int = 1) -> None:
    for _ in range(count):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, code="Space" if key == " " else key, text=" " if key == " " and kind == "keyDown" else "")


SEVEN = [(90.0, 70.0), (150.0, 70.0), (230.0, 70.0), (200.0, 130.0), (170.0, 190.0), (140.0, 260.0)]
ZERO = [(160.0, 50.0), (110.0, 80.0), (90.0, 160.0), (110.0, 240.0), (160.0, 270.0), (210.0, 240.0), (230.0, 160.0), (210.0, 80.0), (160.0, 50.0)]


@pytest.mark.parametrize("draw", [mouse, touch])
def test_digits_that_are_drawn(digits: Any, draw: Any) -> None:
    if draw is touch:
        digits.call("Emulation.setTouchEmulationEnabled", enabled=True)
    assert digits.value(BEST) == -1
    for points, digit in ((ZERO, 0), (SEVEN, 7)):
        draw(digits, points)
        digits.wait(f"{BEST} >= 0", 10)
        assert digits.value(BEST) == digit
        assert digits.value("note.textContent").startswith(f"It is a {digit}.")
        digits.value("document.getElementById('clear').click()")
        assert digits.value(BEST) == -1 and digits.value(INK) == 0


def test_digits_by_the_keyboard(digits: Any) -> None:
    digits.value("paper.focus()")
    for key, count in (("ArrowUp", 2), (" ", 1), ("ArrowDown", 9), (" ", 1), ("ArrowLeft", 3)):
        press(digits, key, count)
    assert digits.value(INK) > 1000 and digits.value(BEST) >= 0
    press(digits, "Escape")
    assert digits.value(INK) == 0 and digits.value(BEST) == -1


def test_the_gpt_writes(folder: Path) -> None:
    page = chromium.Page((folder / "gpt.html").as_uri())
    page.wait("document.documentElement?.dataset.ready === 'yes'")
    before = page.value("text.value")
    page.value("document.getElementById('write').click()")
    page.wait("document.getElementById('write').textContent === 'Write'", 120)
    after = page.value("text.value")
    assert after.startswith(before) and len(after) == len(before) + 400
    assert "letters a second" in page.value("note.textContent")
    page.close()
