"""A scan on several threads: the rows, their order and the errors of a scan on one."""

from __future__ import annotations

import gc
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl

RECORDS = 60_000
SEGMENT = 4 << 20


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions of some 20 MiB: one of several segments, one in a single segment, one with aborted transactions."""
    path = tmp_path_factory.mktemp("threads") / "log"
    values = pa.array([b"%0300d" % number for number in range(RECORDS)], pa.binary())
    with fl.Broker(path, create=True) as broker:
        for topic, config in (("segments", {"segment.bytes": SEGMENT}), ("whole", {}), ("aborted", {"segment.bytes": SEGMENT})):
            broker.create_topic(topic, config={"retention.ms": "-1", **config})
            with fl.Producer(broker, {"transactional.id": "t"} if topic == "aborted" else {}) as producer:
                if topic != "aborted":
                    producer.send_arrow(topic, pa.table({"value": values, "key": values.slice(0, RECORDS)}))
                    continue
                producer.init_transactions()
                for number, start in enumerate(range(0, RECORDS, RECORDS // 20)):
                    producer.begin_transaction()
                    producer.send_arrow(topic, pa.table({"value": values.slice(start, RECORDS // 20)}))
                    (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)()
    return path


@pytest.mark.parametrize("topic", ["segments", "whole", "aborted"])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_and_their_order_are_those_of_one_thread(directory: Path, topic: str, isolation: str) -> None:
    with fl.Broker(directory, read_only=True) as broker:
        for arguments in ({}, {"start_offset": 12_345, "end_offset": 51_234}, {"columns": ["offset", "value"], "batch_rows": 777}):
            one = broker.scan(topic, isolation_level=isolation, threads=1, **arguments).to_pyarrow()
            assert one.num_rows > 10_000
            for threads in (2, 3, None):
                assert broker.scan(topic, isolation_level=isolation, threads=threads, **arguments).to_pyarrow() == one, (arguments, threads)


def test_a_damaged_batch_ends_it_where_it_ends_one_thread(directory: Path, tmp_path: Path) -> None:
    def read(threads: int) -> tuple[int, str]:
        rows = 0
        with fl.Broker(tmp_path / "log", read_only=True) as broker, pytest.raises(fl.errors.CorruptRecordError) as caught:
            for batch in broker.scan("segments", threads=threads, batch_rows=1000):
                rows += batch.num_rows
        return rows, str(caught.value)

    shutil.copytree(directory, tmp_path / "log")
    files = sorted((tmp_path / "log" / "segments-0").glob("*.log"))
    damaged = files[len(files) // 2]
    with damaged.open("r+b") as file:
        file.seek(damaged.stat().st_size // 2)
        file.write(b"\xff" * 16)
    rows, error = read(1)
    assert 0 < rows < RECORDS
    assert read(2) == read(4) == (rows, error)


def test_a_reader_that_stops_leaves_no_thread_behind(directory: Path) -> None:
    def scanning() -> int:
        gc.collect()
        names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
        return sum(name.startswith("fletchlog-scan") for name in names)

    before = scanning()
    with fl.Broker(directory, read_only=True) as broker:
        batches = iter(broker.scan("segments", threads=2))
        next(batches)
        while scanning() < before + 2:  # a thread has its name when it runs
            time.sleep(0.01)
        assert scanning() == before + 2
        del batches
        assert scanning() == before
        assert next(iter(broker.scan("segments", threads=1))).num_rows
        assert scanning() == before


def test_a_forked_child_gets_an_error(directory: Path) -> None:
    with fl.Broker(directory, read_only=True) as broker:
        batches = iter(broker.scan("segments", threads=2))
        next(batches)
        if (child := os.fork()) == 0:
            try:
                next(batches)
            except fl.errors.ForkedHandleError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert sum(batch.num_rows for batch in batches) > 0


def test_a_scan_with_memory_of_one_before_it_has_its_own_times(directory: Path) -> None:
    with fl.Broker(directory, read_only=True) as broker:
        for threads in (1, 2):
            for end_time, rows in ((None, RECORDS), (0, 0), (None, RECORDS)):
                batches = broker.scan("whole", end_time=end_time, threads=threads)
                assert sum(batch.num_rows for batch in batches) == rows


@pytest.mark.parametrize("threads", [0, -1, 1 << 20])
def test_a_number_of_threads_that_is_none_is_an_error(directory: Path, threads: int) -> None:
    with fl.Broker(directory, read_only=True) as broker, pytest.raises(fl.errors.InvalidArgumentError, match="threads is"):
        broker.scan("segments", threads=threads)
