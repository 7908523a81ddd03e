"""`spark.readStream.format("fletchlog")`: every record once, across batches, restarts and crashes."""

import contextlib
import json
import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

EARLIEST = {"startingOffsets": "earliest"}


def rows_per_batch(progress):
    return [item.numInputRows for item in progress if item.numInputRows]


def test_available_now_reads_everything_once_in_batches_of_the_limit(log, run):
    log.topic("t", 2).append("t", 0, 60).append("t", 1, 30)
    seen, progress = run(subscribe="t", maxOffsetsPerTrigger=30, **EARLIEST)
    assert sorted(seen) == list(range(90))
    assert rows_per_batch(progress) == [30, 30, 30]
    source = json.loads(progress[-1].sources[0].json)
    assert source["endOffset"] == {"t": {"0": 60, "1": 30}} == source["latestOffset"]


def test_a_restart_goes_on_where_the_checkpoint_ends(log, run):
    log.topic("t", 2).append("t", 0, 10)
    assert run(subscribe="t", **EARLIEST)[0] == list(range(10))
    assert run(subscribe="t", **EARLIEST)[0] == []
    log.append("t", 1, 5)
    assert run(subscribe="t", startingOffsets="latest")[0] == [10, 11, 12, 13, 14]


def test_the_checkpoint_holds_offsets_as_sparks_kafka_source_writes_them(log, run, tmp_path):
    log.topic("t", 11).append("t", 10, 1).append("t", 9, 1)
    run(subscribe="t", **EARLIEST)
    last = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    offsets = last.read_text().splitlines()[-1]
    assert list(json.loads(offsets)["t"]) == [str(i) for i in range(11)]
    assert json.loads(offsets)["t"]["10"] == 1


def test_records_between_a_start_at_latest_and_a_first_batch_that_dies_are_not_lost(spark, log, run, tmp_path):
    log.topic("t").append("t", 0, 100)

    class CrashError(Exception):
        pass

    appended = threading.Event()

    def die(batch, values):
        if not values:
            # the empty first batch has fixed the start; only now is there something to read
            log.append("t", 0, 10)
            appended.set()
        else:
            raise CrashError

    with pytest.raises(PySparkException):
        run(each=die, trigger={"processingTime": "0 seconds"}, subscribe="t", startingOffsets="latest")
    assert appended.is_set()
    log.append("t", 0, 10)
    assert run(subscribe="t", startingOffsets="latest")[0] == list(range(100, 120))


def test_a_first_batch_that_dies_does_not_start_elsewhere_the_second_time(log, run):
    log.topic("t", segment_bytes=200).append("t", 0, 4).append("t", 0, 6)

    class CrashError(Exception):
        pass

    def die(_batch, values):
        if values:
            raise CrashError

    with pytest.raises(PySparkException):
        run(each=die, subscribe="t", **EARLIEST)
    log.lose("t", 0, 4)
    # looking `earliest` up again would give 4, and nobody would ever know of the records before
    with pytest.raises(PySparkException, match="offsets from 0 were to be read"):
        run(subscribe="t", **EARLIEST)
    assert run(subscribe="t", failOnDataLoss="false", **EARLIEST)[0] == [4, 5, 6, 7, 8, 9]


def test_available_now_reads_everything_when_a_query_was_killed_in_its_empty_first_batch(log, run, tmp_path):
    log.topic("t").append("t", 0, 10)
    run(subscribe="t", **EARLIEST)
    for kind, first in (("offsets", 1), ("commits", 0)):  # as if killed in batch 0
        for file in (tmp_path / "checkpoint" / kind).glob("[0-9]*"):
            if int(file.name) >= first:
                file.unlink()
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    assert run(subscribe="t", **EARLIEST)[0] == list(range(10))


def test_a_new_query_at_latest_reads_nothing_that_is_there_already(log, run):
    log.topic("t").append("t", 0, 10)
    assert run(subscribe="t")[0] == []


def test_trigger_once_reads_everything_in_its_single_batch(log, run):
    log.topic("t").append("t", 0, 50)
    seen, progress = run(trigger={"once": True}, subscribe="t", maxOffsetsPerTrigger=7, **EARLIEST)
    assert seen == list(range(50))
    assert rows_per_batch(progress) == [50]


def test_a_topic_that_appears_later_is_read_from_its_beginning(log, run):
    log.topic("a1").append("a1", 0, 2)
    assert run(subscribePattern="a.*", **EARLIEST)[0] == [0, 1]
    log.topic("a2").append("a2", 0, 2)
    assert run(subscribePattern="a.*", startingOffsets="latest")[0] == [2, 3]


def test_records_are_read_while_the_writer_goes_on(spark, log, tmp_path):
    log.topic("t")
    stream = spark.readStream.format("fletchlog").options(path=log.path, subscribe="t", **EARLIEST).load()
    seen = []
    done = threading.Event()

    def collect(frame, _batch):
        seen.extend(int(row.value) for row in frame.select("value").collect())
        if len(seen) >= 60:
            done.set()

    query = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        for _ in range(6):
            log.append("t", 0, 10)
        assert done.wait(60), query.exception()
    finally:
        query.stop()
    assert seen == list(range(60))


def test_records_that_vanished_before_they_were_read_stop_the_query_or_are_skipped(log, run):
    log.topic("t", segment_bytes=300).append("t", 0, 10)
    assert run(subscribe="t", **EARLIEST)[0] == list(range(10))
    log.append("t", 0, 5).append("t", 0, 5)
    log.lose("t", 0, 15)
    with pytest.raises(PySparkException, match="starts at 15; offsets from 10 were to be read"):
        run(subscribe="t", **EARLIEST)
    assert run(subscribe="t", failOnDataLoss="false", **EARLIEST)[0] == [15, 16, 17, 18, 19]


def test_a_topic_made_anew_is_noticed(log, run):
    log.topic("t").append("t", 0, 10)
    run(subscribe="t", **EARLIEST)
    log.broker.delete_topic("t")
    log.topic("t").append("t", 0, 4)
    with pytest.raises(PySparkException, match="went back from 10 to 4"):
        run(subscribe="t", **EARLIEST)
    run(subscribe="t", failOnDataLoss="false", **EARLIEST)
    log.append("t", 0, 2)
    assert run(subscribe="t", failOnDataLoss="false", **EARLIEST)[0] == [14, 15]


def test_a_deleted_topic_is_noticed(log, run):
    log.topic("t").topic("u").append("t", 0, 3).append("u", 0, 3)
    run(subscribe="t,u", **EARLIEST)
    log.broker.delete_topic("u")
    log.append("t", 0, 1)
    with pytest.raises(PySparkException, match="partitions u-0 are gone"):
        run(subscribe="t,u", **EARLIEST)
    assert run(subscribe="t,u", failOnDataLoss="false", **EARLIEST)[0] == [6]


def test_an_end_is_refused(log, run):
    log.topic("t")
    with pytest.raises(PySparkException, match="endingOffsets is not valid in a streaming query"):
        run(subscribe="t", endingOffsets="latest")


def planners():
    """Processes that plan the batches of a query."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"python_streaming_source_runner" in status.read_bytes():
                found.append(status.parent.name)
    return found


def test_a_query_that_is_stopped_prints_no_traceback(spark, log, tmp_path, capfd):
    log.topic("t").append("t", 0, 10)
    before = set(planners())
    stream = spark.readStream.format("fletchlog").options(path=log.path, subscribe="t", startingOffsets="earliest").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    query.processAllAvailable()
    assert set(planners()) - before
    query.stop()
    while set(planners()) - before:
        time.sleep(0.05)
    assert "Traceback" not in capfd.readouterr().err
