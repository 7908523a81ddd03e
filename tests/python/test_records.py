"""`Records` as a sequence: an index, a range, the records of each partition."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

import fletchlog as fl


@pytest.fixture(params=["offset", "timestamp"])
def records(request: pytest.FixtureRequest) -> Iterator[fl.Records]:
    """Records of four partitions in batches of several sizes; some rows follow those of other partitions."""
    order = {"fletchlog.fetch.order": "timestamp"} if request.param == "timestamp" else {}
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=4)
        random.seed(5)
        with fl.Producer(broker, {"linger.ms": 1000, "compression.type": "zstd"}) as producer:
            for number in range(300):
                producer.send("t", b"%d" % number, b"k", partition=random.choice([0, 1, 3]), timestamp_ms=1000 + number, headers=[("h", b"%d" % number)])
                if number % 70 == 0:
                    producer.flush()
        with fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": 10_000, **order}) as consumer:
            consumer.assign([("t", partition) for partition in range(4)])
            while len(found := consumer.poll(1000)) < 300:
                consumer.seek_to_beginning()
            yield found


def test_an_index_is_the_record_of_that_row(records: fl.Records) -> None:
    rows = list(records)
    assert len(rows) == 300
    assert [records[place] for place in range(300)] == rows
    assert [records[-place] for place in range(1, 301)] == rows[::-1]
    for place in (300, -301, 2**40):
        with pytest.raises(IndexError, match=f"there is no record {place}: there are 300"):
            records[place]
    with pytest.raises(TypeError, match="an int or a slice as index, got str 'a'"):
        records["a"]  # type: ignore[call-overload]


def test_a_range_is_the_records_of_those_rows(records: fl.Records) -> None:
    rows, table = list(records), records.to_pyarrow(include_headers=True)
    for start, stop in [(0, 300), (0, 1), (1, 2), (17, 230), (299, 300), (None, 40), (-40, None), (200, 10_000), (5, 5), (9, 3)]:
        part = records[start:stop]
        assert list(part) == rows[start:stop]
        assert len(part) == len(rows[start:stop])
        assert sum(run.count for run in part.runs()) == len(part)
        assert part.to_pyarrow(include_headers=True).equals(table.slice(start or 0, len(part)) if (start or 0) >= 0 else table.slice(300 + (start or 0)))
    assert list(records[20:200][30:50][-3:]) == rows[67:70]
    assert [(run.first_offset, run.last_offset) for run in records[7:8].runs()] == [(rows[7].offset, rows[7].offset)]
    with pytest.raises(fl.errors.InvalidArgumentError, match="has the step 1, not 2"):
        records[::2]


def test_by_partition_has_every_record_of_each_once_and_in_order(records: fl.Records) -> None:
    found = records.by_partition()
    assert list(found) == records.partitions()
    rows = list(records)
    for tp, part in found.items():
        assert list(part) == [row for row in rows if (row.topic, row.partition) == tp]
        assert part.partitions() == [tp]
        assert pa.table(part)["offset"].to_pylist() == [row.offset for row in rows if row.partition == tp.partition]
    assert ("t", 2) not in found


def test_a_part_keeps_the_headers_and_outlives_the_rest(records: fl.Records) -> None:
    part = records.with_headers()[10:12]
    del records
    assert [cell[0]["value"] for cell in pa.table(part)["headers"].to_pylist()] == [row.headers[0][1] for row in part]


def test_no_records_have_no_parts() -> None:
    with fl.Broker.in_memory() as broker, fl.Consumer(broker) as consumer:
        broker.create_topic("t")
        consumer.assign(("t", 0))
        empty = consumer.poll(0)
        assert (empty.by_partition(), len(empty[:5])) == ({}, 0)
        with pytest.raises(IndexError):
            empty[0]
