"""One bad log among ten: what is done with every log is done with the other nine, and the failure is reported."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from fletchlog.audit import run as audit
from fletchlog.explain import polls as explain
from fletchlog.transfer import copy
from tests.support.command_line import invoke

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


@pytest.fixture
def bad_partition(tmp_path: Path) -> Path:
    """A topic of three partitions with a record each, of which one cannot be opened, and a good topic."""
    with fl.Broker(tmp_path) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t", partitions=3)
        broker.create_topic("u")
        for partition in range(3):
            producer.send("t", b"v", partition=partition).result(timeout=30)
    path = tmp_path / "t-1" / "leader-epoch-checkpoint"
    path.unlink()
    path.mkdir()
    return tmp_path


def test_the_other_partitions_of_a_topic_are_described(bad_partition: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fl.Broker(bad_partition, read_only=True) as broker, caplog.at_level(logging.ERROR, "fletchlog"):
        described = broker.describe_topic("t").partitions
    assert [(p.log_start_offset, p.high_watermark, p.last_stable_offset, p.segments) for p in described] == [(0, 1, 1, 1), (-1, -1, -1, -1), (0, 1, 1, 1)]
    assert described[1].size_bytes == -1
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("t-1: cannot be described: ")
    assert "leader-epoch-checkpoint" in line


def test_the_shell_shows_the_other_topics_and_partitions(bad_partition: Path) -> None:
    def shown(*arguments: str) -> list[dict[str, Any]]:
        result = invoke(["topics", *arguments, "--json"])
        assert result.exit_code == 0, result.output
        rows: list[dict[str, Any]] = json.loads(result.stdout)
        return rows

    listed = shown("list", str(bad_partition))
    assert [(row["topic"], row["partitions"], row["records"]) for row in listed] == [("t", 3, 2), ("u", 1, 0)]
    assert all(row["bytes"] > 0 for row in listed[:1])
    [topic] = shown("describe", str(bad_partition), "t")
    assert [(p["high_watermark"], p["segments"]) for p in topic["partitions"]] == [(1, 1), (None, None), (1, 1)]
    result = invoke(["topics", "describe", str(bad_partition), "t"])
    assert "-1" not in result.stdout.replace("t-1", "")


def test_who_needs_every_partition_is_told_of_the_bad_one(bad_partition: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing of it is left out without a word."""
    there = tmp_path_factory.mktemp("copy")
    calls: list[Callable[[], object]] = [
        lambda: copy(bad_partition, there / "new", "t", create=True),
        lambda: audit(bad_partition, "t"),
        lambda: fl.Broker(bad_partition, read_only=True).scan("t"),
        lambda: explain(fl.Broker(bad_partition, read_only=True), ["t"]),
    ]
    for call in calls:
        with pytest.raises(fl.errors.StorageError, match="leader-epoch-checkpoint"):
            call()
