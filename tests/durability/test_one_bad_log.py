"""One bad log among ten: what is done with every log is done with the other nine, and the failure is reported."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import fletchlog as fl

NAMES = [f"t{number}" for number in range(10)]
# Neither the first nor the last by name.
BAD = ("t3", "t7")
OTHERS = [name for name in NAMES if name not in BAD]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Ten logs of three segments, of which two cannot be opened."""
    with fl.Broker(tmp_path) as broker, fl.Producer(broker, {"linger.ms": 0}) as producer:
        for name in NAMES:
            broker.create_topic(name, config={"segment.bytes": "150", "retention.bytes": "0"})
            for value in (b"a" * 40, b"b" * 40, b"c" * 40):
                producer.send(name, value).result(timeout=30)
    for name in BAD:
        path = tmp_path / f"{name}-0" / "leader-epoch-checkpoint"
        path.unlink()
        path.mkdir()
    return tmp_path


def test_retention_goes_on_and_every_bad_log_is_reported_once(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fl.Broker(directory) as broker, caplog.at_level(logging.ERROR, "fletchlog"):
        with pytest.raises(fl.errors.StorageError, match="t3-0") as raised:
            broker.run_retention()
        for name in OTHERS:
            assert broker.describe_topic(name).partitions[0].log_start_offset > 0, name
    # The first is the caller's.
    lines = [record.getMessage() for record in caplog.records if "leader-epoch-checkpoint" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("t7-0: retention failed: ")
    assert "t7-0" not in str(raised.value)


def test_other_logs_are_flushed_described_deleted_and_closed(directory: Path) -> None:
    with fl.Broker(directory) as broker:
        for name in OTHERS:
            assert broker.scan(name).to_pyarrow().num_rows == 3
        broker.flush()
        with pytest.raises(fl.errors.StorageError, match="t3-0"):
            broker.scan("t3")
        for name in OTHERS[1:]:
            broker.delete_topic(name)
    with fl.Broker(directory) as broker:
        assert broker.topics() == [OTHERS[0], *BAD]
        assert broker.scan(OTHERS[0]).to_pyarrow().num_rows == 3


def test_recovery_names_every_bad_log(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / ".kafka_cleanshutdown").unlink()
    with caplog.at_level(logging.ERROR, "fletchlog"), pytest.raises(fl.errors.StorageError, match="t3-0"):
        fl.Broker(directory)
    assert any(record.getMessage().startswith("t7-0: cannot be loaded: ") for record in caplog.records)
