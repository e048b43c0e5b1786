"""Files that appear whole or not at all, and what killed writers leave behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.runtime import whole_files
from tests import processes

_SAVER = """
import sys, time
from flambeau.runtime import whole_files
with whole_files.replacing(sys.argv[1]) as file:
    file.write(b"half of it")
    file.flush()
    print("saving", flush=True)
    time.sleep(60)
"""


def _writer(path: Path) -> subprocess.Popen[str]:
    """A process in the middle of writing the file."""
    process = processes.popen([sys.executable, "-c", _SAVER, str(path)], stdout=subprocess.PIPE, text=True)
    assert processes.line_of(process) == "saving\n"
    return process


def test_a_killed_save_leaves_no_litter_once_the_next_one_has_been(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(torch.ones(3), path)
    killed, alive = _writer(path), _writer(path)
    killed.send_signal(signal.SIGKILL)
    killed.wait(20)
    assert len(list(tmp_path.iterdir())) == 3 and torch.load(path).tolist() == [1, 1, 1]
    torch.save(torch.zeros(3), path)
    assert len(list(tmp_path.iterdir())) == 2, "the file, and what the living process is writing"
    assert torch.load(path).tolist() == [0, 0, 0]
    alive.kill()
    alive.wait(20)
    torch.save(torch.zeros(2), path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt"]


def test_litter_of_other_files_stays(tmp_path: Path) -> None:
    killed = _writer(tmp_path / "other.pt")
    killed.kill()
    killed.wait(20)
    torch.save(torch.ones(1), tmp_path / "model.pt")
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_files.replacing(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_permissions_links_and_long_names(tmp_path: Path) -> None:
    path, link = tmp_path / ("n" * 250), tmp_path / "link"
    with whole_files.replacing(path) as file:
        file.write(b"1")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    link.symlink_to(path)
    torch.save(torch.ones(2), link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert torch.load(path).tolist() == [1, 1]


def test_what_is_no_file_is_written_to() -> None:
    with whole_files.replacing(os.devnull) as file:
        file.write(b"1")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_many_writers_at_once(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom flambeau.runtime import whole_files\nfor i in range(200):\n"
        " with whole_files.replacing(sys.argv[1]) as f: f.write(sys.argv[2].encode() * 1000)"
    )
    started = time.time()
    writers = [processes.popen([sys.executable, "-c", code, str(tmp_path / "f"), name]) for name in "ab"]
    while any(p.poll() is None for p in writers) and time.time() < started + 60:
        if (tmp_path / "f").exists():
            content = (tmp_path / "f").read_bytes()
            assert len(content) == 1000 and len(set(content)) == 1
    assert [p.wait(20) for p in writers] == [0, 0] and len(list(tmp_path.iterdir())) == 1
