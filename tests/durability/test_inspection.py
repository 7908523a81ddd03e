"""Looking at files without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

import fletchlog as fl
from tests.support.batches import batch, batch_of, record


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t", partitions=2)
        for _ in range(10):
            broker.append_batches("t", 0, batch_of(7, 180))
        broker.append_batches("t", 1, batch([record(0, b"v")], producer=(9, 0, 0)))
    return tmp_path / "log"


def test_a_segment_shows_every_batch(directory: Path) -> None:
    found = fl.files.inspect_segment(directory / "t-0" / "00000000000000000000.log")
    rows = found.batches.to_pyarrow().to_pylist()
    assert [row["base_offset"] for row in rows] == list(range(0, 70, 7))
    assert {(row["records"], row["size"], row["crc_valid"], row["codec"]) for row in rows} == {(7, 180, True, "none")}
    assert (found.size, found.tail) == (1800, None)
    idempotent = fl.files.inspect_segment(directory / "t-1" / "00000000000000000000.log").batches.to_pyarrow().to_pylist()
    assert (idempotent[0]["producer_id"], idempotent[0]["base_sequence"]) == (9, 0)


def test_damage_and_a_torn_tail_are_shown(directory: Path) -> None:
    path = directory / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[2 * 180 + 100] ^= 1
    path.write_bytes(data[:-5])
    found = fl.files.inspect_segment(path)
    rows = found.batches.to_pyarrow().to_pylist()
    assert [i for i, row in enumerate(rows) if not row["crc_valid"]] == [2]
    assert "CRC" in rows[2]["error"] or "checksum" in rows[2]["error"]
    assert found.tail is not None
    assert found.tail[0] == 9 * 180
    damaged, sound = fl.files.verify(directory)
    assert (damaged.name, damaged.ok, sound.name, sound.ok) == ("t-0", False, "t-1", True)
    assert damaged.damaged[0].path == path
    assert damaged.damaged[0].position == 360
    assert fl.files.verify(directory / "t-1")[0].ok


def test_a_sound_directory_is_ok(directory: Path) -> None:
    reports = fl.files.verify(directory)
    assert [(r.name, r.ok, r.records, r.batches) for r in reports] == [("t-0", True, 70, 10), ("t-1", True, 1, 1)]


def test_several_nodes_are_walked(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True, nodes=3) as broker:
        broker.create_topic("t", partitions=6)
    assert sorted(r.name for r in fl.files.verify(tmp_path / "log")) == [f"t-{i}" for i in range(6)]


def test_a_partition_behind_a_link_is_checked_as_it_is_read_and_written(directory: Path, tmp_path: Path) -> None:
    (directory / "t-0").rename(tmp_path / "elsewhere")
    (directory / "t-0").symlink_to(tmp_path / "elsewhere")
    with fl.Broker(directory, create=True) as broker:
        assert broker.append_batches("t", 0, batch_of(7, 180))[0] == 70
    assert [(p.name, p.ok, p.records) for p in fl.files.verify(directory)] == [("t-0", True, 77), ("t-1", True, 1)]
    segment = tmp_path / "elsewhere" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    assert [(p.name, p.ok) for p in fl.files.verify(directory)] == [("t-0", False), ("t-1", True)]
    with fl.Broker(directory) as broker:
        broker.delete_topic("t")
        assert broker.topics() == []
    # The link is gone; what it led to is not the broker's.
    assert segment.exists()
    assert sorted(p.name for p in directory.iterdir() if p.is_dir()) == []


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(fl.errors.StorageError, match=r"nothing\.log"):
        fl.files.inspect_segment(tmp_path / "nothing.log")
    with pytest.raises(fl.errors.StorageError):
        fl.files.verify(tmp_path / "nowhere")
    with pytest.raises(fl.errors.DirectoryError, match="no partition"):
        fl.files.verify(tmp_path)
