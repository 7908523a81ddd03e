"""The planner of micro-batches alone, as Spark calls it, over a real directory."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from fletchlog.spark.errors import CheckpointError, DataLossError, OptionError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.schema import kafka_schema
from fletchlog.spark.stream import NO_LIMIT, StreamReader

ALL = ReadMaxRows(NO_LIMIT)


@pytest.fixture
def reader(log):
    def make(clock=lambda: 0.0, **options):
        given = {"path": log.path, "subscribe": "t", **options}
        parsed = SourceOptions.parse({name: value for name, value in given.items() if value is not None})
        return StreamReader(parsed, kafka_schema(include_headers=False), clock)

    return make


def test_the_initial_offset_is_the_same_however_often_it_is_asked_for(log, reader):
    log.topic("t").append("t", 0, 5)
    planner = reader()
    first = planner.initialOffset()
    log.append("t", 0, 5)
    assert planner.initialOffset() == first == {"t": {"0": 5}}


@pytest.mark.parametrize(
    "options", [{}, {"startingOffsets": "earliest"}, {"startingTimestamp": "0"}, {"startingOffsets": '{"t":{"0":-1}}'}, {"startingOffsets": '{"t":"latest"}'}]
)
def test_the_first_batch_is_empty_so_that_its_start_is_logged(log, reader, options):
    log.topic("t").append("t", 0, 5)
    planner = reader(**options)
    start = planner.initialOffset()
    log.append("t", 0, 5)
    assert planner.latestOffset(start, ALL) == start
    assert planner.partitions(start, start) == []
    assert planner.latestOffset(start, ALL) == {"t": {"0": 10}}


def test_a_start_that_cannot_change_needs_no_empty_batch(log, reader):
    log.topic("t").append("t", 0, 5)
    planner = reader(startingOffsets='{"t":{"0":2}}')
    assert planner.latestOffset(planner.initialOffset(), ALL) == {"t": {"0": 5}}


def test_a_query_that_goes_on_from_a_checkpoint_reads_at_once(log, reader):
    log.topic("t").append("t", 0, 5)
    assert reader().latestOffset({"t": {"0": 3}}, ALL) == {"t": {"0": 5}}


def test_a_query_that_died_in_its_empty_first_batch_reads_at_once_after_it(log, reader):
    log.topic("t").append("t", 0, 5)
    planner = reader(startingOffsets="earliest")
    start = planner.initialOffset()
    assert planner.partitions(start, start) == []  # the batch that Spark had logged, again
    assert planner.latestOffset(start, ALL) == {"t": {"0": 5}}


def test_a_first_batch_of_another_run_that_ends_before_latest_says_where_to_look_for_its_start(log, reader):
    log.topic("t").append("t", 0, 5)
    planner = reader(startingOffsets="latest")
    start = planner.initialOffset()
    with pytest.raises(CheckpointError, match=r'ends at \{"t": \{"0": 3\}\}, and startingOffsets is \{"t": \{"0": 5\}\} by now.*sources/0/0'):
        planner.partitions(start, {"t": {"0": 3}})
    forgiving = reader(startingOffsets="latest", failOnDataLoss="false")
    assert forgiving.partitions(forgiving.initialOffset(), {"t": {"0": 3}}) == []
    (planned,) = reader(startingOffsets='{"t":{"0":1}}').partitions({"t": {"0": 1}}, {"t": {"0": 3}})
    assert [(part.start, part.end) for part in planned.ranges] == [(1, 3)]


def test_a_spark_that_passes_no_start_gets_the_empty_first_batch_too(log, reader):
    log.topic("t").append("t", 0, 5)
    planner = reader(startingOffsets="earliest")
    assert planner.initialOffset() == planner.latestOffset() == {"t": {"0": 0}}
    assert planner.latestOffset() == {"t": {"0": 5}}


def test_trigger_once_is_obeyed_at_once_and_limits_are_not_its_business(log, reader):
    log.topic("t").append("t", 0, 5)
    planner = reader(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert planner.getDefaultReadLimit() == ReadMaxRows(2)
    assert planner.latestOffset(planner.initialOffset(), ReadAllAvailable()) == {"t": {"0": 5}}


def test_available_now_stops_at_the_end_that_was_there_first(log, reader):
    log.topic("t").append("t", 0, 5)
    planner = reader(startingOffsets='{"t":{"0":0}}', minOffsetsPerTrigger="100")
    planner.prepareForTriggerAvailableNow()
    assert planner.latestOffset(planner.initialOffset(), ALL) == {"t": {"0": 5}}
    log.append("t", 0, 5)
    assert planner.latestOffset({"t": {"0": 5}}, ALL) == {"t": {"0": 5}}
    with pytest.raises(DataLossError, match="behind the end of this run"):
        planner.partitions({"t": {"0": 0}}, {"t": {"0": 9}})


def test_too_few_offsets_wait_for_the_longest_delay(log, reader):
    now = [0.0]
    log.topic("t").append("t", 0, 5)
    planner = reader(clock=lambda: now[0], minOffsetsPerTrigger="10", maxTriggerDelay="1s", startingOffsets='{"t":{"0":0}}')
    assert planner.latestOffset({"t": {"0": 0}}, ALL) == {"t": {"0": 5}}
    log.append("t", 0, 5)
    assert planner.latestOffset({"t": {"0": 5}}, ALL) == {"t": {"0": 5}}
    now[0] = 1000.0
    assert planner.latestOffset({"t": {"0": 5}}, ALL) == {"t": {"0": 10}}
    assert planner.reportLatestOffset() == {"t": {"0": 10}}


def test_a_start_behind_the_end_is_no_work_when_loss_is_accepted(log, reader):
    log.topic("t").append("t", 0, 5)
    assert reader(failOnDataLoss="false").partitions({"t": {"0": 9}}, {"t": {"0": 5}}) == []
    with pytest.raises(DataLossError, match="went back from 9 to 5"):
        reader().partitions({"t": {"0": 9}}, {"t": {"0": 5}})


def test_a_start_that_names_other_partitions_is_refused(log, reader):
    log.topic("t", 2)
    with pytest.raises(OptionError, match=r"names t-0, the query reads t-0, t-1"):
        reader(startingOffsets='{"t":{"0":0}}').initialOffset()
    with pytest.raises(OptionError, match=r"names t-0, the query reads t-0, t-1 \(0 is the first record that has a time\)$"):
        reader(startingOffsetsByTimestamp='{"t":{"0":7}}').initialOffset()
    log.append("t", 0, 3).append("t", 1, 2)
    assert reader(startingOffsetsByTimestamp='{"t":{"0":0,"1":0}}').initialOffset() == {"t": {"0": 0, "1": 0}}
    assert reader(startingOffsets='{"t":"latest"}').initialOffset() == {"t": {"0": 3, "1": 2}}
    assert reader(subscribe="t", startingOffsets='{"t":{"0":-1,"1":1.0}}').initialOffset() == {"t": {"0": 3, "1": 1}}
    assert reader(subscribePattern="none", subscribe=None, startingOffsets="{}").initialOffset() == {}


def test_a_directory_that_is_kept_open_shows_records_that_were_deleted_since(log, reader):
    log.topic("t").append("t", 0, 10)
    planner = reader(startingOffsets="earliest")
    planned = planner.partitions({"t": {"0": 0}}, {"t": {"0": 10}})
    # Retention has not run: the segment is still there.
    log.broker.delete_records("t", 0, 6)
    assert reader(startingOffsets="earliest").initialOffset() == {"t": {"0": 6}}
    with pytest.raises(DataLossError, match=r"starts at 6; offsets from 0 were to be read"):
        list(planner.read(planned[0]))
    forgiving = reader(startingOffsets="earliest", failOnDataLoss="false")
    (rows,) = forgiving.read(planned[0])
    assert rows.column("offset").to_pylist() == [6, 7, 8, 9]
