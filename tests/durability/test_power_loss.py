"""What a power loss leaves of small files: their size without their bytes (ext4 with data=writeback), or a part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fletchlog as fl

EPOCHS = "leader-epoch-checkpoint"


@pytest.mark.parametrize("left", [b"", bytes(8), b"0\n1\n", b"0\n1\n\0\0\0\0", b"0\n"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_leader_epoch_checkpoint_without_its_bytes_keeps_no_broker_from_opening(tmp_path: Path, left: bytes, read_only: bool) -> None:
    living, root = tmp_path / "log", tmp_path / "after"
    with fl.Broker(living, create=True, config={"fletchlog.durability": "fsync"}) as broker:
        broker.create_topic("t")
        broker.create_topic("u")
        with fl.Producer(broker) as producer:
            for topic in ("t", "u"):
                producer.send(topic, value=b"acknowledged").result(30)
        shutil.copytree(living, root)
    assert (root / "t-0" / EPOCHS).read_bytes() == b"0\n1\n0 0\n"
    (root / "t-0" / EPOCHS).write_bytes(left)
    with fl.Broker(root, read_only=read_only) as broker:
        for topic in ("t", "u"):
            assert broker.scan(topic).to_pyarrow().column("value").to_pylist() == [b"acknowledged"]
        with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([("t", 0)])
            assert [r.value for r in consumer.poll(timeout_ms=10_000)] == [b"acknowledged"]
        if not read_only:
            with fl.Producer(broker) as producer:
                assert producer.send("t", value=b"next").result(30).offset == 1
    if not read_only:
        assert (root / "t-0" / EPOCHS).read_bytes() == b"0\n1\n0 0\n"
