"""Part 1: DumpLogSegments of two releases accepts every file that fletchlog writes, and prints what was written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fletchlog as fl

from . import dump, generate
from .generate import Acked

PART = "1 our directory, Kafka's tools"
TOPICS = 20
TYPES = {"CreateTime": 0, "LogAppendTime": 1}


def scanned(directory: Path) -> dict[str, list[fl.types.Record]]:
    """What fletchlog itself reads from a closed directory, per partition directory."""
    rows = defaultdict(list)
    with fl.Broker(directory, read_only=True) as broker:
        for topic in broker.topics(include_internal=True):
            table = broker.scan(topic, include_headers=True).to_pyarrow()
            columns = [table[name].to_pylist() for name in ("partition", "offset", "timestampType", "key", "value", "headers")]
            stamps = table["timestamp"].cast("int64").to_pylist()
            for (partition, offset, kind, key, value, headers), stamp in zip(zip(*columns, strict=True), stamps, strict=True):
                named = [(header["key"], header["value"]) for header in headers or []]
                rows[f"{topic}-{partition}"].append(fl.types.Record(topic, partition, offset, stamp // 1000, kind, key, value, named))
    return rows


def judge(directory: Path, scratch: Path, acked: list[Acked], count: Callable[..., None], cleaned: Collection[str] = ()) -> None:
    """Both tools over the directory; the acknowledged records, the scan and the tools agree."""
    ours = scanned(directory)
    by_place = {(row.topic, row.partition, row.offset): row for rows in ours.values() for row in rows}
    for record in acked:
        if record.topic not in cleaned:
            row = by_place[record.topic, record.partition, record.offset]
            assert (row.timestamp, row.key, row.value, row.headers) == (record.timestamp, record.key, record.value, record.headers), record
    with ThreadPoolExecutor() as pool:
        dumps = pool.map(lambda release: dump.dump(release, directory, scratch, compacted=cleaned), dump.TOOL)
    for release, found in zip(dump.TOOL, dumps, strict=True):
        for partition, kafkas in found.items():
            rows = ours[partition]
            assert kafkas.complaints == [], f"{release} about {partition}"
            assert [record.offset for record in kafkas.records] == [row.offset for row in rows], f"{release}, {partition}"
            for record, row in zip(kafkas.records, rows, strict=True):
                keys = ",".join(name for name, _ in row.headers)
                theirs = (TYPES[record.timestamp_type], record.timestamp, record.header_keys, record.key, record.value)
                assert theirs == (row.timestamp_type, row.timestamp, keys, row.key, row.value), f"{release}, {partition}, {row.offset}"
            if topic_of(partition) not in cleaned:  # what explains an entry may be gone from a cleaned log
                assert (kafkas.aborted, kafkas.open_at) == dump.transactions(kafkas), f"{release}, {partition}"
            files = {f"{suffix.removeprefix('.')}_files": number for suffix, number in kafkas.files.items()}
            batches = {"batches": kafkas.batches, "transactional_batches": len(kafkas.steps), "control_batches": kafkas.control_batches}
            unfinished = sum(map(len, kafkas.open_at.values()))
            count(PART, dumps=1, records=len(rows), **batches, aborted_transactions=len(kafkas.aborted), open_in_snapshots=unfinished, **files)
    count(PART, directories=1)


def topic_of(partition: str) -> str:
    return partition.rpartition("-")[0]


def directories(kind: int) -> range:
    """Numbers of the generated directories: three of four are written to their end, the others killed."""
    from .conftest import CASES

    of = max(2, CASES // TOPICS)
    return range(of - of // 4) if kind == 0 else range(max(1, of // 4))


def test_the_judge_sees_damage(scratch: Path) -> None:
    with fl.Broker(scratch / "data", create=True) as broker:
        broker.create_topic("t", partitions=2, config={"index.interval.bytes": 100})
        with fl.Producer(broker, {"batch.size": 1}) as producer:
            for number in range(20):
                producer.send("t", value=b"%d" % number, partition=number % 2, timestamp_ms=number).result(10)
        broker.create_topic("aborted")
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("aborted", value=b"1", partition=0).result(10)
            producer.abort_transaction()
    index = scratch / "data" / "aborted-0" / f"{0:020}.txnindex"
    sound = index.read_bytes()
    assert len(sound) == 34  # version i16, producer id, first, last and last stable offset i64
    damaged = scratch / "data" / "t-0"
    for suffix, position in [(".index", 15), (".timeindex", 6), (".log", 100)]:
        path = damaged / f"{0:020}{suffix}"
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)
    for release in dump.TOOL:
        found = dump.dump(release, scratch / "data", scratch)
        complaints = "\n".join(found["t-0"].complaints)
        assert ".index" in complaints, complaints
        assert ".timeindex" in complaints, complaints
        assert "isvalid: false" in complaints, complaints
        assert found["t-1"].complaints == []
        # a wrong offset is no complaint of the tool: the batches that it prints show it
        assert found["aborted-0"].aborted == dump.transactions(found["aborted-0"])[0] != []
        index.write_bytes(sound[:-1] + b"\x07")
        (of,) = (of for name, of in dump.dump(release, scratch / "data", scratch).items() if name == "aborted-0")
        assert of.aborted != dump.transactions(of)[0]
        index.write_bytes(sound)


@pytest.mark.parametrize("number", directories(0))
def test_the_tools_accept_and_print_a_directory(number: int, seed: int, scratch: Path, count: Callable[..., None]) -> None:
    directory = scratch / "data"
    acked = [record for records in generate.write(directory, seed * 1_000 + number, TOPICS) for record in records]
    cleaned = generate.clean_some(directory, seed * 1_000 + number) if number % 2 else set()
    judge(directory, scratch, acked, count, cleaned)
    count(PART, cleaned_topics=len(cleaned))


@pytest.mark.parametrize("number", directories(1))
def test_the_tools_accept_and_print_a_directory_whose_writer_was_killed(number: int, seed: int, scratch: Path, count: Callable[..., None]) -> None:
    directory = scratch / "data"
    acked = generate.write_and_kill(directory, seed * 1_000 + 500 + number, TOPICS)
    with fl.Broker(directory, create=True):
        pass
    judge(directory, scratch, acked, count)
    count(PART, killed_writers=1)
