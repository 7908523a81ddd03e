"""`scan(tail=)`: the last records of each partition, counted as records; and `scan().records()`, rows without pyarrow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl


@pytest.fixture(params=["broker", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[fl.Broker, fl.Broker | fl.Cluster]]:
    with fl.Broker.in_memory() as broker:
        if request.param == "broker":
            yield broker, broker
        else:
            with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
                yield broker, cluster


def rows(scan: fl.types.Scan) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in scan.records()]


def test_each_partition_gives_its_last_records(place: Any) -> None:
    broker, peer = place
    broker.create_topic("t", 3)
    with fl.Producer(broker, {"linger.ms": 100}) as producer:
        producer.send_many("t", [b"v"] * 250, partition=0)
        producer.send_many("t", [b"v"] * 5, partition=1)
    for tail in (0, 1, 7, 250, 10**9):
        wanted = [(0, offset) for offset in range(max(0, 250 - tail), 250)] + [(1, offset) for offset in range(max(0, 5 - tail), 5)]
        assert rows(peer.scan("t", tail=tail)) == wanted
        assert peer.scan("t", tail=tail).to_pyarrow().num_rows == len(wanted)
    assert rows(peer.scan("t", 1, tail=2)) == [(1, 3), (1, 4)]
    assert rows(peer.scan("t", 0, end_offset=100, tail=2)) == [(0, 98), (0, 99)]


def test_gaps_of_compaction_do_not_count(place: Any) -> None:
    broker, peer = place
    broker.create_topic("t", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0})
    with fl.Producer(broker) as producer:
        for number in range(300):
            producer.send("t", b"v", b"%d" % (number if number % 100 == 0 else -1))
    broker.clean_topic("t", force=True)
    all_rows = rows(peer.scan("t"))
    assert [offset for _, offset in all_rows] == [0, 100, 200, 299]
    for tail in range(6):
        assert rows(peer.scan("t", tail=tail)) == all_rows[len(all_rows) - min(tail, 4) :]


def test_markers_and_aborted_records_do_not_count(place: Any) -> None:
    broker, peer = place
    broker.create_topic("t")
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        for number in range(12):
            producer.begin_transaction()
            producer.send_many("t", [b"%d" % number] * 3)
            producer.flush()
            (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)()
    for isolation in ("read_committed", "read_uncommitted"):
        whole = rows(peer.scan("t", isolation_level=isolation))
        for tail in (1, 4, 10, 24, 36, 100):
            assert rows(peer.scan("t", tail=tail, isolation_level=isolation)) == whole[-tail:]


def test_what_does_not_go_with_tail_is_refused(place: Any) -> None:
    broker, peer = place
    broker.create_topic("t")
    for other in ({"start_offset": 0}, {"start_time": 5}, {"end_time": 5}):
        with pytest.raises(fl.errors.InvalidArgumentError, match="tail is the last records before end_offset"):
            peer.scan("t", tail=1, **other)
    with pytest.raises(fl.errors.InvalidArgumentError, match="tail is -1"):
        peer.scan("t", tail=-1)


def test_records_are_those_of_a_consumer(place: Any) -> None:
    broker, peer = place
    broker.create_topic("t")
    with fl.Producer(broker, {"linger.ms": 100}) as producer:
        producer.send("t", b"v", b"k", headers=[("a", b"1"), ("a", None)], timestamp_ms=7)
        producer.send("t", None, None)
        producer.send("t", b"", b"")
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(("t", 0))
        wanted = list(consumer.poll())
    scan = peer.scan("t", columns=["value"], batch_rows=2)
    assert list(scan.records()) == wanted
    assert list(scan.records()) == wanted
    assert {type(record) for record in scan.records()} == {fl.Record}


def test_a_failure_while_it_is_read_is_raised_as_its_class() -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send_many("t", [b"v"] * 10)
        records = broker.scan("t").records()
        broker.delete_records("t", 0, 5)
        with pytest.raises(fl.errors.OffsetOutOfRangeError):
            list(records)


def test_no_other_package_is_needed(tmp_path: Path) -> None:
    program = f"""
import sys
for name in ("pyarrow", "pandas", "polars"):
    sys.modules[name] = None
import fletchlog as fl
with fl.Broker({str(tmp_path / "d")!r}, create=True) as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send_many("t", [b"%d" % number for number in range(9)])
    print([record.value for record in broker.scan("t", tail=2).records()])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[b'7', b'8']"
