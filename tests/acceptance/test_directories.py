"""Directories that real brokers wrote (cleanly stopped, and killed), opened through the public API."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "directories"
NAMES = ["kafka-4.4.0-clean", "kafka-4.3.1-clean", "kafka-3.9.1-killed"]


@pytest.fixture(scope="module", params=NAMES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """(unpacked directory, manifest)."""
    name = request.param
    target = tmp_path_factory.mktemp(name)
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    found = list(target.rglob("meta.properties"))
    manifest = json.loads(gzip.decompress((GOLDEN / f"{name}.manifest.json.gz").read_bytes()))
    return found[0].parent, manifest


def fingerprint(directory: Path) -> dict[str, str]:
    """Every file with its contents, to see that nothing was written."""
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.rglob("*")) if path.is_file()}


def recorded(value: Any) -> Any:
    """Key or value as the manifest gives it, comparable with `seen`."""
    return (value["len"], value["sha256"]) if isinstance(value, dict) else value


def seen(value: bytes | None, like: Any) -> Any:
    """The same of what was read."""
    if value is None:
        return None
    return (len(value), hashlib.sha256(value).hexdigest()) if isinstance(like, tuple) else value.hex()


def rows_of(broker: fl.Broker, topic: str, partition: int, isolation: str) -> list[dict[str, Any]]:
    """Every record of a partition."""
    reader = broker.scan(topic, partition=partition, include_headers=True, isolation_level=isolation)
    rows: list[dict[str, Any]] = reader.to_pyarrow().to_pylist()
    return rows


def test_every_recorded_record_is_read_and_nothing_is_written(directory: tuple[Path, dict[str, Any]]) -> None:
    path, manifest = directory
    before = fingerprint(path)
    compared = 0
    with fl.Broker(path, read_only=True) as broker:
        for name, partition in manifest["partitions"].items():
            topic, number = name.rsplit("-", 1)
            wanted = partition["consumer"]["read_uncommitted"]["records"]
            rows = rows_of(broker, topic, int(number), "read_uncommitted")
            assert [row["offset"] for row in rows] == [record["offset"] for record in wanted], name
            for row, record in zip(rows, wanted, strict=True):
                assert row["timestamp"].timestamp() * 1000 == pytest.approx(record["ts"], abs=0.5), name
                assert row["timestampType"] == {"CreateTime": 0, "LogAppendTime": 1}[record["tsType"]], name
                for field in ("key", "value"):
                    expected = recorded(record[field])
                    assert seen(row[field], expected) == expected, (name, record["offset"], field)
                headers = row["headers"] or []
                assert [h["key"].encode().hex() for h in headers] == [key for key, _ in record["headers"]], name
                for header, (_, value) in zip(headers, record["headers"], strict=True):
                    expected = recorded(value)
                    assert seen(header["value"], expected) == expected, (name, record["offset"])
                compared += 1
    assert compared > 1000
    assert fingerprint(path) == before


def test_read_committed_gives_the_recorded_offsets_and_bounds(directory: tuple[Path, dict[str, Any]]) -> None:
    path, manifest = directory
    with fl.Broker(path, read_only=True) as broker:
        for isolation in ("read_uncommitted", "read_committed"):
            consumer = fl.Consumer(broker, {"isolation.level": isolation, "auto.offset.reset": "earliest"})
            for name, partition in manifest["partitions"].items():
                topic, number = name.rsplit("-", 1)
                tp = fl.TopicPartition(topic, int(number))
                view = partition["consumer"][isolation]
                assert consumer.beginning_offsets([tp])[tp] == view["begin"], (name, isolation)
                assert consumer.end_offsets([tp])[tp] == view["end"], (name, isolation)
                wanted = view["offsets"] if isolation == "read_committed" else [r["offset"] for r in view["records"]]
                rows = rows_of(broker, topic, int(number), isolation)
                assert [row["offset"] for row in rows] == wanted, (name, isolation)
            consumer.close()


def test_a_consumer_reads_what_scan_reads(directory: tuple[Path, dict[str, Any]]) -> None:
    path, manifest = directory
    with fl.Broker(path, read_only=True) as broker:
        for isolation in ("read_uncommitted", "read_committed"):
            for name in manifest["partitions"]:
                topic, number = name.rsplit("-", 1)
                wanted = [row["offset"] for row in rows_of(broker, topic, int(number), isolation)]
                config = {"isolation.level": isolation, "auto.offset.reset": "earliest", "max.poll.records": 100_000}
                with fl.Consumer(broker, config) as consumer:
                    tp = fl.TopicPartition(topic, int(number))
                    consumer.assign([tp])
                    end = consumer.end_offsets([tp])[tp]
                    offsets: list[int] = []
                    for _ in range(1000):
                        if consumer.position(tp) >= end:
                            break
                        offsets += consumer.poll(timeout_ms=200).to_pyarrow()["offset"].to_pylist()
                    assert offsets == wanted, (name, isolation)


def test_a_kafka_directory_is_written_only_when_it_is_said(directory: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path = shutil.copytree(directory[0], tmp_path / "copy")
    before = fingerprint(path)
    with pytest.raises(fl.errors.DirectoryError, match="written by a Kafka broker; give read_only=True to read it, or take_over=True"):
        fl.Broker(path, create=True)
    assert fingerprint(path) == before
    with fl.Broker(path, take_over=True) as broker:
        topics = broker.topics()
    with fl.Broker(path) as broker:
        assert broker.topics() == topics
