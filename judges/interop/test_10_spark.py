"""Part 10: `fletchlog.pipeline` over Spark's own kafka source, and that source beside ours, on the same records."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import fletchlog as fl
from fletchlog.pipeline import audit, audit_keys, audit_report, event_time_windows, parse_json
from tests.support.spark_session import start

from . import generate, kafka
from .conftest import CASES, SEED
from .kraft import Kraft, cluster_of

PART = "10 Spark's kafka source"
TOPICS = max(3, CASES // 40)
# how often the options of a batch, and of a stream, are drawn
DRAWS, STREAMS = max(2, CASES // 25), max(1, CASES // 100)
ISOLATIONS = ["read_uncommitted", "read_committed"]
KEYED, JSON = "keyed", "json"
JSON_SCHEMA = "carrier string, delay double"
START_MS = 1_700_000_000_000
# of topics that are known
EVERYTHING = {"subscribePattern": ".*", "includeHeaders": "true"}
PLACE = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
Options = dict[str, str]


class Served(NamedTuple):
    """A running broker, and its directory as fletchlog left it."""

    broker: Kraft
    copy: Path
    # topic, partition -> first offset, end, timestamps
    logs: dict[tuple[str, int], tuple[int, int, list[int]]]


class Frames(NamedTuple):
    """The same of Spark's source and of ours."""

    kafka: DataFrame
    fletchlog: DataFrame


def fill(directory: Path, seed: int) -> None:
    """Records of every kind, compacted topics and transactions; keys in several partitions and JSON, both late and out of order."""
    rng = random.Random(f"{seed} spark")
    for _ in generate.write(directory, rng.randrange(10**6), TOPICS):
        pass
    generate.clean_some(directory, rng.randrange(10**6))
    with fl.Broker(directory, create=True) as broker, fl.Producer(broker, {"transactional.id": "late"}) as producer:
        for topic in (KEYED, JSON, "empty"):
            broker.create_topic(topic, partitions=3)
        producer.init_transactions()
        for number in range(600):
            if number % 100 == 0:
                producer.begin_transaction()
            stamp = START_MS + 60_000 * number - (rng.randrange(10**7) if rng.random() < 0.2 else 0)
            value = json.dumps({"carrier": rng.choice(["AA", "UA", None]), "delay": rng.random()}).encode()
            producer.send(JSON, rng.choice([value, value, value, value, b"no JSON", None]), partition=rng.choice([0, 0, 1, 2]), timestamp_ms=stamp)
            producer.send(KEYED, b"%d" % rng.randrange(300), b"key-%d" % rng.randrange(40), partition=rng.randrange(3), timestamp_ms=stamp)
            if number % 100 == 99:
                producer.flush()  # an abort takes back what was not sent
                rng.choice([producer.commit_transaction, producer.commit_transaction, producer.abort_transaction])()


@pytest.fixture(scope="module")
def served(seed: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    scratch = tmp_path_factory.mktemp("spark")
    directory, copy = scratch / "data", scratch / "copy"
    fill(directory, seed)
    shutil.copytree(directory, copy)
    logs = {}
    with fl.Broker(copy, read_only=True) as broker:
        for topic in broker.topics():
            rows = broker.scan(topic).to_pyarrow()
            for p in broker.describe_topic(topic).partitions:
                stamps = rows.filter(pa.compute.equal(rows["partition"], p.partition))["timestamp"].cast("int64")
                logs[topic, p.partition] = (p.log_start_offset, p.high_watermark, [stamp // 1000 for stamp in stamps.to_pylist()])
    with Kraft(kafka.NEWEST, directory, scratch, cluster_of(copy)) as broker:
        yield Served(broker, copy, logs)
    shutil.rmtree(scratch)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start(spark__jars=kafka.spark_source())
    yield session
    session.stop()


def frames(spark: SparkSession, served: Served, options: Options, *, stream: bool = False) -> Frames:
    """With the same options, but for where the log is."""
    places = {"kafka": {"kafka.bootstrap.servers": served.broker.address}, "fletchlog": {"path": str(served.copy)}}
    of = {name: (spark.readStream if stream else spark.read).format(name).options(**place, **options).load() for name, place in places.items()}
    return Frames(**of)


def rows_of(frame: DataFrame) -> pa.Table:
    return frame.toArrow().sort_by(PLACE)


def dicts(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def draw(rng: random.Random, served: Served) -> Options:
    """What a batch is to read: topics, isolation, start and end by offset or by time, pieces."""
    topics = sorted({topic for topic, _ in served.logs})
    chosen = rng.sample(topics, rng.randrange(1, 5))
    logs = {place: log for place, log in served.logs.items() if place[0] in chosen}
    options = {"kafka.isolation.level": rng.choice(ISOLATIONS), "includeHeaders": rng.choice(["true", "false"])}
    partitions = lambda value: json.dumps({t: {str(p): value(log) for (of, p), log in logs.items() if of == t} for t in chosen})  # noqa: E731
    options |= rng.choice([{"subscribe": ",".join(chosen)}, {"assign": json.dumps({t: [p for of, p in logs if of == t] for t in chosen})}])
    if rng.random() < 0.5:
        options["minPartitions"] = str(rng.choice([1, 9, 20]))
    stamps = sorted(stamp for _, _, of in logs.values() for stamp in of) or [START_MS]
    time = lambda: rng.choice(stamps) + rng.choice([-1, 0, 1])  # noqa: E731
    options |= rng.choice(
        [
            {},
            {"startingOffsets": partitions(lambda log: rng.choice([-2, rng.randrange(log[0], (log[0] + log[1]) // 2 + 1)]))},
            {"startingTimestamp": str(time()), "startingOffsetsByTimestampStrategy": "latest"},
            {"startingOffsetsByTimestamp": partitions(lambda log: time()), "startingOffsetsByTimestampStrategy": "latest"},
        ]
    )
    # an end before the start is each source's own matter
    if not any(name.startswith("starting") for name in options):
        options |= rng.choice(
            [
                {},
                {"endingOffsets": partitions(lambda log: rng.choice([-1, rng.randrange(log[0], log[1] + 1)]))},
                {"endingTimestamp": str(time())},
                {"endingOffsetsByTimestamp": partitions(lambda log: time())},
            ]
        )
    return options


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_both_sources_have_the_same_schema_and_rows(isolation: str, spark: SparkSession, served: Served, count: Callable[..., None]) -> None:
    both = frames(spark, served, {**EVERYTHING, "kafka.isolation.level": isolation})
    assert both.kafka.schema == both.fletchlog.schema
    theirs = rows_of(both.kafka)
    assert theirs.equals(rows_of(both.fletchlog))
    assert theirs["headers"].null_count < len(theirs), "some have headers"
    count(PART, **{f"records_{isolation}": len(theirs)})


@pytest.mark.parametrize("number", range(DRAWS))
def test_both_sources_understand_the_same_options(number: int, spark: SparkSession, served: Served, count: Callable[..., None]) -> None:
    options = draw(random.Random(f"{SEED} spark options {number}"), served)
    both = frames(spark, served, options)
    theirs = rows_of(both.kafka)
    assert theirs.equals(rows_of(both.fletchlog)), options
    count(PART, batches_with_options=1, records_with_options=len(theirs))


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_audit_of_sparks_source_is_that_of_ours(isolation: str, spark: SparkSession, served: Served, count: Callable[..., None]) -> None:
    both = frames(spark, served, {**EVERYTHING, "kafka.isolation.level": isolation})
    found = dicts(audit(both.kafka))
    assert found == dicts(audit(both.fletchlog))
    for finding in ("gaps", "duplicate_records", "timestamp_inversions", "lateness_max_ms", "behind_ms"):
        assert sum(row[finding] or 0 for row in found) > 0, finding
    keys = [sorted(dicts(audit_keys(frame)), key=lambda row: (row["topic"], row["key"])) for frame in both]
    assert keys[0] == keys[1]
    assert max(row["partitions"] for row in keys[0]) > 1 < max(row["duplicate_records"] for row in keys[0])
    count(PART, audited_partitions=len(found), audited_keys=len(keys[0]))


def test_every_way_to_audit_sparks_source_gives_what_it_gives_of_ours(spark: SparkSession, served: Served, count: Callable[..., None]) -> None:
    both = frames(spark, served, EVERYTHING)
    theirs, ours = (audit_report(frame, keys=50) for frame in both)
    assert theirs == ours
    assert theirs.keys
    by_size = [F.length("key"), F.length("value")]
    assert dicts(audit(both.kafka, same=by_size, keep=0.9)) == dicts(audit(both.fletchlog, same=by_size, keep=0.9))
    found = dicts(audit(both.kafka.union(both.kafka)))
    assert [row["duplicate_offsets"] for row in found] == [row["records"] // 2 for row in found]
    # what is in the files themselves, without Spark
    files = {(p.topic, p.partition): p for p in fl.audit.run(served.copy).partitions}
    alike = {"gaps", "duplicate_records", "timestamp_inversions", "lateness_p999_ms", "behind_ms"}
    reported = {(p.topic, p.partition): p for p in theirs.partitions}
    assert reported.keys() <= files.keys()
    for place, of in reported.items():
        assert {name: getattr(of, name) for name in alike} == {name: getattr(files[place], name) for name in alike}
    count(PART, reported_partitions=len(reported), reported_keys=len(theirs.keys))


class Streamed(NamedTuple):
    """What a stream did."""

    ends: list[dict[str, dict[str, int]]]
    rows: list[int]
    dropped: int


def run(query: Any) -> Streamed:
    """To its end. Ours has an empty first batch where the start could change."""
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one.numInputRows]
    dropped = sum(op.numRowsDroppedByWatermark for one in query.recentProgress for op in one.stateOperators)
    return Streamed([json.loads(one.sources[0].endOffset) for one in progress], [one.numInputRows for one in progress], dropped)


@pytest.mark.parametrize("number", range(STREAMS))
def test_streams_of_both_sources_give_the_same_windows(number: int, spark: SparkSession, served: Served, scratch: Path, count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} spark stream {number}")
    options = {"subscribe": JSON, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rng.choice([40, 70, 100]))}
    arguments = {"window": rng.choice(["1 hour", "30 minutes"]), "watermark": rng.choice(["0 seconds", "20 minutes"]), "by": ["carrier"]}
    outcomes, parsed, windows = [], [], []
    for name, stream in frames(spark, served, options, stream=True)._asdict().items():
        table = f"windows_{name}_{number}"
        rows = parse_json(stream, JSON_SCHEMA)
        aggregated = event_time_windows(rows, **arguments, aggregate=[F.max("delay").alias("longest")])
        for of, kind in ((aggregated, "windows"), (rows, "rows")):
            writer = of.writeStream.format("memory").queryName(f"{table}_{kind}").trigger(availableNow=True)
            outcomes.append(run(writer.option("checkpointLocation", str(scratch / f"{table}_{kind}")).start()))
        windows.append(sorted(dicts(spark.table(f"{table}_windows")), key=str))
        parsed.append(rows_of(spark.table(f"{table}_rows")))
    assert outcomes[:2] == outcomes[2:], "the same batches"
    assert windows[0] == windows[1] != []
    assert parsed[0].equals(parsed[1])
    assert parsed[0].equals(rows_of(parse_json(frames(spark, served, {"subscribe": JSON}).kafka, JSON_SCHEMA)))
    assert 0 < parsed[0]["carrier"].null_count < len(parsed[0])
    assert len(outcomes[0].rows) > 1
    assert outcomes[0].dropped > 0, "some rows came too late"
    count(PART, stream_batches=len(outcomes[0].rows), windows=len(windows[0]))


def test_a_stream_is_audited_batch_by_batch(spark: SparkSession, served: Served, scratch: Path, count: Callable[..., None]) -> None:
    options = {"subscribe": KEYED, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    found: dict[str, list[Any]] = {"kafka": [], "fletchlog": []}
    for name, stream in frames(spark, served, options, stream=True)._asdict().items():
        with pytest.raises(ValueError, match="foreachBatch"):
            audit(stream)

        def look(frame: DataFrame, _: int, into: list[Any] = found[name]) -> None:
            if rows := dicts(audit(frame)):
                into.append((rows, sorted(dicts(audit_keys(frame)), key=lambda row: row["key"])))

        run(stream.writeStream.foreachBatch(look).trigger(availableNow=True).option("checkpointLocation", str(scratch / name)).start())
    assert found["kafka"] == found["fletchlog"]
    assert len(found["kafka"]) > 1
    count(PART, audited_batches=len(found["kafka"]))
