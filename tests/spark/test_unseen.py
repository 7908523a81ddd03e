"""What a stream does not see is not deleted: a cluster that is starting, or that hides a topic, costs no record and repeats none."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import fletchlog as fl
from fletchlog.spark.cluster import open_log
from fletchlog.spark.directory import Span
from fletchlog.spark.errors import CheckpointError, DataLossError, OptionError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.schema import kafka_schema
from fletchlog.spark.stream import NO_LIMIT, StreamReader

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ALL = ReadMaxRows(NO_LIMIT)


class Address:
    """An address at which one cluster after the other is served, as by one that is started again."""

    def __init__(self):
        self.port = 0

    @contextlib.contextmanager
    def serve(self, **topics):
        """Topics and the number of records in each of their partitions."""
        with fl.Broker.in_memory() as broker:
            for topic, records in topics.items():
                broker.create_topic(topic, partitions=len(records), config={"retention.ms": "-1"})
                with fl.Producer(broker) as producer:
                    for partition, count in enumerate(records):
                        for i in range(count):
                            producer.send(topic, value=b"%d" % i, partition=partition)
            with broker.listen(port=self.port) as listener:
                self.port = int(listener.bootstrap.rpartition(":")[2])
                yield

    def options(self, **options):
        if not {"assign", "subscribePattern"} & options.keys():
            options = {"subscribe": "t", **options}
        # a topic is looked for once: what is tested is what holds when it is not found
        return {"kafka.bootstrap.servers": f"127.0.0.1:{self.port}", "fetchOffset.numRetries": "1", **options}

    def planner(self, **options):
        return StreamReader(SourceOptions.parse(self.options(**options)), kafka_schema(include_headers=False))


@pytest.fixture
def address():
    return Address()


def ranges(planned):
    return [(part.topic, part.partition, part.start, part.end) for task in planned for part in task.ranges]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, {}),
        ({"subscribe": "t,u"}, {"u": [9]}),
        ({"subscribePattern": "^[tu]$"}, {}),
        ({"subscribePattern": "^[tu]$"}, {"u": [9]}),
        ({"assign": '{"t":[0,1]}'}, {}),
        ({"assign": '{"t":[0,1],"u":[0]}'}, {"u": [9]}),
        ({}, {"t": [25]}),
        ({"assign": '{"t":[0,1]}'}, {"t": [25]}),
        ({"maxOffsetsPerTrigger": "3"}, {}),
    ],
)
@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_partition_that_is_not_seen_keeps_its_offset(address, options, left, available_now, fail):
    options = {**options, "failOnDataLoss": fail}
    start = {"t": {"0": 20, "1": 4}}
    if any(name in str(options.values()) for name in (",u", "[tu]", '"u"')):
        start["u"] = {"0": 7}

    def planner():
        made = address.planner(**options)
        if available_now:
            made.prepareForTriggerAvailableNow()
        return made

    with address.serve(**left):
        unseen = planner()
        if fail == "true":
            with pytest.raises(DataLossError, match=r"partitions t-.* are gone, or kafka://.* does not show them now"):
                unseen.latestOffset(start, ALL)
            end = start
        else:
            end = unseen.latestOffset(start, unseen.getDefaultReadLimit())
            seen = {(topic, partition) for topic, records in left.items() for partition in range(len(records))}
            assert all((topic, int(p)) in seen for topic in end for p in end[topic] if end[topic][p] != start[topic][p])
            assert {topic: set(parts) for topic, parts in end.items()} == {topic: set(parts) for topic, parts in start.items()}
            moved = ranges(unseen.partitions(start, end))
            assert all((topic, partition) in seen for topic, partition, _, _ in moved)
    with address.serve(t=[25, 5], u=[9]):
        again = planner()
        whole = again.latestOffset(end, ALL)
        assert whole == {"t": {"0": 25, "1": 5}} | ({"u": {"0": 9}} if "u" in start else {})
        assert {(topic, p): first for topic, p, first, _ in ranges(again.partitions(end, whole))}.items() <= {
            (topic, int(p)): offset for topic in end for p, offset in end[topic].items()
        }.items()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_directory_that_is_missing_empty_or_another_one_for_a_while_costs_nothing(log, tmp_path, fail):
    log.topic("t", 2).append("t", 0, 5).append("t", 1, 5)
    log.broker.close()
    home, start = Path(log.path), {"t": {"0": 3, "1": 5}}

    def ask():
        options = SourceOptions.parse({"path": log.path, "subscribePattern": "t", "failOnDataLoss": fail})
        return StreamReader(options, kafka_schema(include_headers=False)).latestOffset(start, ALL)

    assert ask() == {"t": {"0": 5, "1": 5}}
    home.rename(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="cannot be read on this machine: No such file or directory; it names the directory of a log"):
        ask()
    home.mkdir()
    with pytest.raises(OptionError, match=f"{home} is empty"):
        ask()
    home.rmdir()
    with fl.Broker(home, create=True) as other:
        other.create_topic("t")
        with fl.Producer(other) as producer:
            for _ in range(4):
                producer.send("t", value=b"")
    if fail == "true":
        with pytest.raises(DataLossError, match=r"partitions t-1 are gone, or .* does not show them now"):
            ask()
    else:
        assert ask() == {"t": {"0": 4, "1": 5}}
    shutil.rmtree(home)
    (tmp_path / "elsewhere").rename(home)
    assert ask() == {"t": {"0": 5, "1": 5}}


def test_a_topic_that_was_never_seen_is_an_error_whatever_may_be_lost(address):
    with address.serve(t=[3]):
        planner = address.planner(subscribe="t,typo", failOnDataLoss="false")
        with pytest.raises(OptionError, match="has no topic typo"):
            planner.latestOffset({"t": {"0": 1}}, ALL)
        with pytest.raises(OptionError, match="has no t-7"):
            address.planner(assign='{"t":[0,7]}').latestOffset({"t": {"0": 1}}, ALL)


def test_a_cluster_is_asked_again_before_a_topic_is_missing(address):
    with fl.Broker.in_memory() as broker, broker.listen() as listener:
        address.port = int(listener.bootstrap.rpartition(":")[2])
        planner = address.planner(**{"fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "0"})
        asked = []

        class Late:
            """Its topic is shown to the third question."""

            def topics(self):
                return []

            def partitions(self, topic):
                asked.append(topic)
                if len(asked) == 3:
                    broker.create_topic(topic)
                return sorted(p.partition for p in broker.describe_topic(topic).partitions) if topic in broker.topics() else []

        from fletchlog.spark.offset_reader import OffsetReader

        assert OffsetReader(Late(), planner._options).assigned() == [("t", 0)]
        assert asked == ["t"] * 3


def test_a_partition_whose_offsets_a_cluster_does_not_know_is_not_seen(address, monkeypatch):
    with address.serve(t=[3]):
        log = open_log(SourceOptions.parse(address.options()))
        assert log.spans([("t", 0), ("t", 1)]) == {("t", 0): Span(0, 3)}

        class Starting:
            """Its leader does not list the partition yet."""

            def __init__(self, cluster):
                self.scan = cluster.scan
                described = cluster.describe_topic("t")
                unknown = [p._replace(log_start_offset=-1, high_watermark=-1, last_stable_offset=-1) for p in described.partitions]
                self.described = described._replace(partitions=unknown)

            def describe_topic(self, topic):
                return self.described

        monkeypatch.setattr(log, "_admin", Starting(log._admin))
        assert log.partitions("t") == [0]
        assert log.spans([("t", 0), ("t", 1)]) == {}


def test_an_end_that_went_back_is_judged_before_it_is_logged(address):
    with address.serve(t=[5]):
        with pytest.raises(DataLossError, match="the end of t-0 went back from 20 to 5"):
            address.planner().latestOffset({"t": {"0": 20}}, ALL)
        with pytest.raises(DataLossError, match="went back"):
            address.planner().latestOffset({"t": {"0": 20}}, ReadAllAvailable())
        # Spark's rule: what a new topic of the same name has already is not read
        assert address.planner(failOnDataLoss="false").latestOffset({"t": {"0": 20}}, ALL) == {"t": {"0": 5}}


def test_a_new_topic_whose_beginning_is_gone_is_judged_before_it_is_logged(address):
    with fl.Broker.in_memory() as broker, broker.listen() as listener:
        address.port = int(listener.bootstrap.rpartition(":")[2])
        broker.create_topic("t")
        broker.create_topic("u")
        with fl.Producer(broker) as producer:
            for _ in range(4):
                producer.send("u", value=b"")
        broker.delete_records("u", 0, 3)
        with pytest.raises(DataLossError, match="new partition u-0 starts at 3 instead of 0"):
            address.planner(subscribe="t,u").latestOffset({"t": {"0": 0}}, ALL)
        assert address.planner(subscribe="t,u", failOnDataLoss="false").latestOffset({"t": {"0": 0}}, ALL) == {"t": {"0": 0}, "u": {"0": 4}}


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("left", [{}, {"t": [8]}])
def test_a_task_does_not_skip_what_it_does_not_see(address, fail, left):
    with address.serve(t=[8, 5]):
        planner = address.planner(failOnDataLoss=fail)
        (planned,) = planner.partitions({"t": {"0": 8, "1": 2}}, {"t": {"0": 8, "1": 5}})
    with address.serve(**left), pytest.raises(DataLossError, match=r"t-1 is gone, or kafka://.* does not show it now; offsets 2 to 4 were to be read"):
        list(planner.read(planned))
    with address.serve(t=[8, 7]):
        assert [offset for rows in planner.read(planned) for offset in rows.column("offset").to_pylist()] == [2, 3, 4]
    # as the error says: a new topic of that name
    with address.serve(t=[0, 0]):
        if fail == "false":
            assert list(planner.read(planned)) == []
        else:
            with pytest.raises(DataLossError, match="the log of t-1 ends at 0"):
                list(planner.read(planned))


def test_a_loss_is_reported_once_and_not_with_every_question(address, caplog):
    with address.serve(u=[9]):
        planner = address.planner(subscribePattern="^[tu]$", failOnDataLoss="false")
        start = {"t": {"0": 20}, "u": {"0": 9}}
        for _ in range(3):
            assert planner.latestOffset(start, ALL) == start
        assert [record.message.partition(",")[0] for record in caplog.records if record.name == "fletchlog.spark"] == ["partitions t-0 are gone"]
        assert planner.reportLatestOffset() == {"u": {"0": 9}}


def test_a_checkpoint_of_an_earlier_release_that_holds_nothing_says_how_to_repair_it(address):
    with address.serve(t=[25]):
        with pytest.raises(CheckpointError, match=r"holds no offsets, \{\}.*edit the newest file in the folder `offsets`"):
            address.planner().latestOffset({}, ALL)
        with pytest.raises(CheckpointError, match=r'ends at \{\}\. Partitions t-0 are gone there.*write \{"t": \{"0": 20\}\}$'):
            address.planner().partitions({"t": {"0": 20}}, {})
        with pytest.raises(CheckpointError, match=r'write \{"t": \{"0": 20\}, "u": \{"0": 4\}\}$'):
            address.planner(subscribe="t,u", failOnDataLoss="false").partitions({"t": {"0": 20}, "u": {"0": 3}}, {"u": {"0": 4}})
        # a pattern may have matched nothing yet
        assert address.planner(subscribePattern="^t$").latestOffset({}, ALL) == {"t": {"0": 25}}
    with address.serve(u=[9]):
        # deleted for good, as logged by Spark's kafka source
        assert ranges(address.planner(subscribePattern=".", failOnDataLoss="false").partitions({"t": {"0": 20}, "u": {"0": 3}}, {"u": {"0": 4}})) == [
            ("u", 0, 3, 4)
        ]


@pytest.mark.parametrize("options", [{}, {"subscribePattern": "^t$", "failOnDataLoss": "false"}, {"maxOffsetsPerTrigger": "2"}])
def test_a_query_goes_on_where_it_was_after_a_run_that_did_not_see_its_topic(spark, address, tmp_path, options):
    def run():
        stream = spark.readStream.format("fletchlog").options(startingOffsets="earliest", **address.options(**options)).load()
        seen = []
        sink = stream.writeStream.foreachBatch(lambda frame, _: seen.extend(int(row.value) for row in frame.select("value").collect()))
        query = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        return seen

    with address.serve(t=[8]):
        assert run() == list(range(8))
    logged = sorted(path.name for path in (tmp_path / "c" / "offsets").iterdir())
    with address.serve():
        if "failOnDataLoss" in options:
            assert run() == []
        else:
            with pytest.raises(PySparkException, match="partitions t-0 are gone, or kafka://"):
                run()
    assert sorted(path.name for path in (tmp_path / "c" / "offsets").iterdir()) == logged
    with address.serve(t=[11]):
        assert run() == [8, 9, 10]


def test_a_checkpoint_that_holds_nothing_is_repaired_as_its_error_says(log, run, tmp_path):
    log.topic("t").append("t", 0, 5)
    assert run(format="fletchlog", subscribe="t", startingOffsets="earliest")[0] == [0, 1, 2, 3, 4]
    offsets = tmp_path / "checkpoint" / "offsets"
    newest = max(int(path.name) for path in offsets.glob("[0-9]*"))
    lines = (offsets / str(newest)).read_text().splitlines()
    # as a release that logged what it saw has left it
    (offsets / str(newest + 1)).write_text("\n".join([*lines[:-1], "{}"]))
    commits = tmp_path / "checkpoint" / "commits"
    (commits / str(newest + 1)).write_text((commits / str(newest)).read_text())
    log.append("t", 0, 2)
    with pytest.raises(PySparkException, match="the checkpoint of the query holds no offsets"):
        run(format="fletchlog", subscribe="t")
    assert json.loads(lines[-1]) == {"t": {"0": 5}}
    (offsets / str(newest + 1)).write_text("\n".join(lines))
    assert run(format="fletchlog", subscribe="t")[0] == [5, 6]
