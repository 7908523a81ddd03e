"""What `fletchlog.spark.compat` assumes of Spark, each shown by the Spark that is installed. To try another release:

pip install --no-deps --target DIR pyspark==4.2.1
PYTHONPATH=DIR python -m pytest tests/spark/test_compat.py
"""

import gc
import json
import os
import pickle
import re
import sys
import time
import traceback

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from fletchlog.spark import compat
from fletchlog.spark.batch import RangePartition
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.range_calculator import OffsetRange

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

# Spark's processes do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

# Releases with which these tests were run.
SUPPORTED = {(4, 2), (4, 3)}
LIMIT_S = 30
PACKAGE = "org.apache.spark.sql.execution.datasources.v2.python"


def until(condition):
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_this_release_is_one_that_was_tried():
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    assert (int(found[1]), int(found[2])) in SUPPORTED, "run these tests and the others of this folder with it, then add it to SUPPORTED and to the docs"
    assert min(SUPPORTED) == compat.OLDEST


class PlannedWith(DataSource):
    """One row: whether the process that planned the query saw its filters."""

    @classmethod
    def name(cls):
        return "planned_with"

    def schema(self):
        return "has_filters boolean"

    def reader(self, schema):
        return PlannedWithReader(compat.has_filters())


class PlannedWithReader(DataSourceReader):
    def __init__(self, has_filters):
        self.has_filters = has_filters

    def pushFilters(self, filters):
        return filters

    def partitions(self):
        return [InputPartition(0)]

    def read(self, partition):
        yield pa.RecordBatch.from_pydict({"has_filters": [self.has_filters]})


def test_a_process_that_plans_a_query_with_filters_has_imported_the_module_for_them(spark):
    spark.dataSource.register(PlannedWith)
    plain = spark.read.format("planned_with").load().collect()
    filtered = spark.read.format("planned_with").load().filter("has_filters is not null").collect()
    assert [[row.has_filters for row in rows] for rows in (plain, filtered)] == [[False], [True]]


class Stopped(DataSource):
    """A stream without rows that leaves in a file what it sees when it is stopped."""

    @classmethod
    def name(cls):
        return "stopped"

    def schema(self):
        return "n int"

    def streamReader(self, schema):
        return StoppedReader(self.options["file"])


class StoppedReader(DataSourceStreamReader):
    def __init__(self, file):
        self.file = file

    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self, start=None, limit=None):
        return {"n": 0}

    def partitions(self, start, end):
        return []

    def read(self, partition):
        yield from ()

    def stop(self):
        with open(self.file + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123 - pickled
            json.dump([compat.is_stopped_planner(), traceback.format_exc()], file)
        os.rename(self.file + ".part", self.file)  # noqa: PTH104 - as above


@pytest.mark.slow
def test_a_reader_is_stopped_in_the_runner_while_the_end_of_its_connection_is_handled(spark, tmp_path):
    """Spark closes the connection and kills the process; which of the two comes first is not said."""
    spark.dataSource.register(Stopped)
    file = tmp_path / "seen.json"
    frame = spark.readStream.format("stopped").option("file", str(file)).load()
    for attempt in range(10):
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / f"checkpoint{attempt}")).start()
        query.processAllAvailable()
        time.sleep(0.2)
        query.stop()
        time.sleep(0.2)
        if file.exists():
            break
    else:
        pytest.skip("Spark killed the process before it saw the end of the connection")
    is_stopped, handled = json.loads(file.read_text())
    assert is_stopped, handled
    assert not compat.is_stopped_planner()


def test_a_builder_says_what_it_was_given():
    builder = SparkSession.Builder().config("spark.jars", "a.jar").remote("sc://localhost")
    assert [compat.given(builder, name) for name in ("spark.jars", "spark.remote", "spark.none")] == ["a.jar", "sc://localhost", None]


def test_a_worker_collects_all_garbage_after_a_task(spark, tmp_path):
    file = str(tmp_path / "collected")

    def task(batches):
        def on_collection(phase, info):
            if phase == "stop" and info["generation"] == 2:
                with open(file, "a", encoding="utf-8") as written:  # noqa: PTH123 - pickled
                    written.write(f"{info['generation']}\n")
                gc.callbacks.remove(on_collection)

        yield from batches
        gc.callbacks.append(on_collection)

    spark.range(0, 1, 1, 1).mapInArrow(task, "id long").collect()
    until(lambda: os.path.exists(file))  # noqa: PTH110 - a text


def test_a_task_of_a_stream_knows_its_query_and_batch_and_the_checkpoint_the_query(spark, log, tmp_path):
    log.topic("t").append("t", 0, 3)
    seen = set()

    def ids(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"query": [context.getLocalProperty(compat.QUERY_ID)], "batch": [context.getLocalProperty(compat.BATCH_ID)]})

    frame = spark.readStream.format("fletchlog").options(path=log.path, subscribe="t", startingOffsets="earliest").load()
    checkpoint = str(tmp_path / "checkpoint")
    query = (
        frame.mapInArrow(ids, "query string, batch string")
        .writeStream.foreachBatch(lambda rows, batch: seen.update((row.query, row.batch, batch) for row in rows.collect()))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert seen
    assert all((found, int(batch)) == (query.id, number) for found, batch, number in seen)
    assert str(compat.query_of_checkpoint(checkpoint)) == str(compat.query_of_checkpoint(f"file:{checkpoint}")) == query.id
    assert compat.query_of_checkpoint(str(tmp_path)) is None


def test_java_gets_the_attributes_of_a_task_out_of_its_pickle(spark):
    options = SourceOptions.parse({"path": "/d", "subscribe": "t", "kafka.isolation.level": "read_committed"})
    jvm = spark._jvm
    task = jvm.net.razorvine.pickle.Unpickler().loads(bytearray(pickle.dumps(RangePartition((OffsetRange("t", 3, 5, 8),), options, ""))))
    assert (task["path"], task["isolation_level"], task["fail_on_data_loss"]) == ("/d", "read_committed", True)
    (of_topic,) = task["ranges"]
    assert [of_topic[name] for name in ("topic", "partition", "start", "end")] == ["t", 3, 5, 8]
    for name in ("PythonInputPartition", "PythonStreamingInputPartition"):
        assert jvm.java.lang.Class.forName(f"{PACKAGE}.{name}").getMethod("pickedPartition", None).getReturnType().getSimpleName() == "byte[]"


def test_the_classes_that_the_jar_extends_or_calls_are_there(spark):
    names = ("PythonScanBuilder", "PythonTable", "PythonMicroBatchStreamWithTriggerAvailableNow", "PythonDataSourceCreationResult", "PythonDataSourceV2")
    for name in names:
        assert spark._jvm.java.lang.Class.forName(f"{PACKAGE}.{name}").getSimpleName() == name


def test_the_filters_are_those_that_a_source_may_be_given():
    from pyspark.sql import datasource

    from fletchlog.spark import filters

    for name in filters._OF_A_RANGE:
        assert issubclass(getattr(datasource, name), datasource.Filter)
