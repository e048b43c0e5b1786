"""Event files of SummaryWriter: records, checksums, and messages that another implementation reads and writes with the same bytes."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.utils.tensorboard import SummaryWriter, records, wire


def test_checksum() -> None:
    # RFC 3720, appendix B.4.
    assert records.crc32c(bytes(32)) == 0x8A9136AA and records.crc32c(b"\xff" * 32) == 0x62A8AB43 and records.crc32c(bytes(range(32))) == 0x46DD794E
    assert records.crc32c(b"123456789") == 0xE3069283


def _events(folder: Path) -> list[bytes]:
    """The messages of a folder's one file, whose records are whole."""
    (path,) = folder.glob("events*")
    data, found, at = path.read_bytes(), [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert records.record(data[at + 12 : at + 12 + length]) == data[at : at + 16 + length]
        found.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    return found


def test_messages_are_read_and_have_the_same_bytes(tmp_path: Path) -> None:
    event = pytest.importorskip("tensorboardX.proto.event_pb2")
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.25, 3, walltime=12.5)
        writer.add_scalar("new", ft.tensor(-1.5), 1 << 40, new_style=True, double_precision=True)
        writer.add_histogram("h", ft.arange(-5.0, 6.0), 1)
        writer.add_image("i", ft.rand(3, 4, 5), 0)
        writer.add_text("t", "über *text*", -1)
        writer.add_tensor("x", ft.arange(6, dtype=ft.int64).view(2, 3) - 3)
        writer.add_custom_scalars({"all": {"lines": ["Multiline", ["a", "b"]], "band": ["Margin", ["a", "b", "c"]]}})
        writer.add_pr_curve("c", ft.tensor([1, 0, 1, 1]), ft.tensor([0.9, 0.2, 0.4, 0.7]), 0, num_thresholds=5)
        writer.add_hparams({"lr": 0.1, "name": "x", "on": True}, {"score": 0.5}, {"lr": [0.1, 0.2]}, run_name="run")
    read = [event.Event.FromString(data) for data in _events(tmp_path)]
    for ours, theirs in zip(_events(tmp_path), read, strict=True):
        assert theirs.SerializeToString(deterministic=True) == ours  # so no field has another number or type, and none is unknown
    assert read[0].file_version == "brain.Event:2"
    assert (read[1].step, read[1].wall_time, read[1].summary.value[0].tag, read[1].summary.value[0].simple_value) == (3, 12.5, "loss", 0.25)
    assert read[2].step == 1 << 40 and list(read[2].summary.value[0].tensor.double_val) == [-1.5]
    histogram = read[3].summary.value[0].histo
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (-5.0, 5.0, 11.0, 0.0) and sum(histogram.bucket) == 11
    assert read[4].summary.value[0].image.width == 5 and read[5].step == -1
    assert list(read[6].summary.value[0].tensor.int64_val) == [-3, -2, -1, 0, 1, 2]


def test_waiting_events_come_to_the_disk(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path, max_queue=3, flush_secs=1)
    for step in range(4):
        writer.add_scalar("a", 1.0, step)
    assert len(_events(tmp_path)) == 4  # the version and three
    end = time.monotonic() + 10
    while len(_events(tmp_path)) < 5 and time.monotonic() < end:
        time.sleep(0.05)
    assert len(_events(tmp_path)) == 5
    writer.close()


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, -1, 2**63 - 1, -(2**63)])
def test_numbers(number: int) -> None:
    data, back, shift = wire.varint(number), 0, 0
    for byte in data:
        back |= (byte & 127) << shift
        shift += 7
    assert np.uint64(back).astype(np.int64) == number and data[-1] < 128


def test_unknown_fields() -> None:
    made: Any = wire.message("SessionLog")
    with pytest.raises(ValueError, match='has no "colour" field'):
        made(colour=1)
