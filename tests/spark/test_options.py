"""Options of the data source: refused early, with the nearest name and what to write."""

import re

import pytest

from fletchlog.spark.errors import CheckpointError, OptionError
from fletchlog.spark.limits import Earliest, GlobalTimestamp, Latest, SpecificOffsets, SpecificTimestamps
from fletchlog.spark.offsets import from_json
from fletchlog.spark.options import Assign, SourceOptions, Subscribe, SubscribePattern
from fletchlog.spark.sink_options import NewTopic, SinkOptions
from fletchlog.spark.source import LogSource

BASE = {"path": "data", "subscribe": "t"}


def parse(**options):
    return SourceOptions.parse({name.replace("__", "."): value for name, value in options.items()})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t"}, "exactly one of the options path and kafka.bootstrap.servers must be given, found none"),
        ({"path": "d"}, "exactly one of .* found none"),
        ({**BASE, "assign": '{"t":[0]}'}, "found assign and subscribe"),
        ({**BASE, "startingOfsets": "earliest"}, "unknown option startingofsets .* did you mean startingOffsets"),
        ({**BASE, "kafka.isolation.lvl": "x"}, "did you mean kafka.isolation.level"),
        ({**BASE, "kafka.fetch.max.byte": "1"}, r"options kafka\.\*: unknown configuration `fetch.max.byte` .*did you mean `fetch.max.bytes`"),
        ({**BASE, "kafka.fetch.max.bytes": "many"}, "invalid value `many` for configuration `fetch.max.bytes`"),
        ({**BASE, "kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({**BASE, "kafka.share.acknowledgement.mode": "explicit"}, "a share group cannot be replayed"),
        ({**BASE, "shareGroup": "billing"}, "a share group cannot be replayed"),
        ({**BASE, "kafka.bootstrap.servers": "a:1"}, "found both"),
        ({**BASE, "kafka.key.deserializer": "x"}, "cast"),
        ({**BASE, "store.region": "x"}, "options store.* are for an object store.* is a directory"),
        ({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "store.region": "x"}, "options store.* are for an object store.* a:1 is a cluster"),
        ({**BASE, "kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        ({**BASE, "includeHeaders": "yes"}, "includeHeaders: expected true or false, got yes"),
        ({**BASE, "minPartitions": "0"}, "minPartitions: expected a positive"),
        ({**BASE, "maxOffsetsPerTrigger": "ten"}, "maxOffsetsPerTrigger: expected a positive"),
        ({**BASE, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "higher than maxOffsetsPerTrigger"),
        ({**BASE, "maxTriggerDelay": "soon"}, "maxTriggerDelay: expected a duration"),
        ({**BASE, "startingOffsets": '{"t":{"0":-3}}'}, "-3 for t-0 is below -2"),
        ({**BASE, "startingOffsets": '{"t":[0]}'}, "expected e.g."),
        ({**BASE, "startingOffsets": '{"t":{"0":1.5}}'}, "expected e.g."),
        ({**BASE, "startingOffsets": "first"}, "expected e.g."),
        ({**BASE, "startingOffsets": "[" * 100_000}, r"startingOffsets: expected e\.g\. .*\.\. \(100,000 characters\)"),
        ({**BASE, "startingOffsets": '{"t":{"0":' + "9" * 5000 + "}}"}, "startingOffsets: expected e.g."),
        ({**BASE, "startingOffsets": '{"t":{"' + "9" * 5000 + '":0}}'}, "startingOffsets: expected e.g."),
        ({**BASE, "startingOffsets": '{"t":{"0":9223372036854775808}}'}, "for t-0 is above 9223372036854775807"),
        ({**BASE, "endingOffsetsByTimestamp": '{"t":{"0":99999999999999999999}}'}, "for t-0 is above 9223372036854775807"),
        ({**BASE, "startingTimestamp": "99999999999999999999"}, "startingTimestamp: expected one number of milliseconds"),
        ({**BASE, "maxTriggerDelay": "9" * 5000 + "s"}, "maxTriggerDelay: expected a duration"),
        ({**BASE, "maxOffsetsPerTrigger": "9" * 20}, "maxOffsetsPerTrigger: expected a positive"),
        ({"path": "d", "assign": "[" * 100_000}, "assign: expected e.g."),
        ({**BASE, "path": ""}, "option path is empty"),
        ({**BASE, "path": "  "}, "option path is empty"),
        ({**BASE, "path": "file:data"}, "option path: file:data: a URI file: has the whole path"),
        ({**BASE, "path": "file://host/data"}, "names no other machine"),
        ({**BASE, "path": "s3:bucket"}, "the URI of a store begins with s3://"),
        ({**BASE, "path": "s3:///prefix"}, "it names no bucket"),
        ({**BASE, "path": "kafka://h1:9092"}, "kafka://h1:9092 is a cluster; its servers are given as the option kafka.bootstrap.servers"),
        ({**BASE, "startingTimestamp": "yesterday"}, "one number of milliseconds since 1970, from 0, got yesterday$"),
        ({**BASE, "startingTimestamp": "-1"}, "from 0, got -1; for latest or earliest set startingOffsets"),
        ({**BASE, "endingTimestamp": "-2"}, "for latest or earliest set endingOffsets"),
        ({**BASE, "startingOffsets": '{"t":"first"}'}, "expected e.g."),
        ({**BASE, "startingOffsetsByTimestamp": '{"t":"latest"}'}, "expected e.g."),
        ({**BASE, "fetchOffset.numRetries": "0"}, "fetchOffset.numRetries: expected a positive whole number, got 0"),
        ({**BASE, "fetchOffset.retryIntervalMs": "-1"}, "fetchOffset.retryIntervalMs: expected a whole number from 0, got -1"),
        ({}, r"no options.*`create table \.\. using`.*create temporary view"),
        ({**BASE, "location": "file:/x", "provider": "fletchlog", "owner": "me"}, "hands the options of a table to no data source of Python"),
        ({**BASE, "endingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "-1 for t-0 is below 0"),
        ({**BASE, "startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"path": "d", "assign": "{}"}, "names no partition"),
        ({"path": "d", "assign": '{"t":[-1]}'}, "expected e.g."),
        ({"path": "d", "subscribe": " , "}, "names no topic"),
        ({"path": "d", "subscribePattern": "("}, r"subscribePattern: the topic pattern \"\(\" cannot be used: a parenthesis is not closed, at character 1"),
        ({"path": "d", "subscribePattern": " "}, "is empty"),
    ],
)
def test_a_wrong_option_says_what_to_write_instead(options, words):
    with pytest.raises(OptionError, match=words):
        SourceOptions.parse(options)


@pytest.mark.parametrize(
    "damaged", [[1], 5, None, "x", {"t": 5}, {"t": {"x": 1}}, {"t": {"0": "a"}}, {"t": {"0": -1}}, {"t": {"0": 2**63}}, {"t": {"0": True}}]
)
def test_a_checkpoint_of_another_form_is_named(damaged):
    with pytest.raises(CheckpointError, match="the checkpoint of the query is damaged"):
        from_json(damaged)
    assert from_json({"t": {"0": 5}}) == {("t", 0): 5}


def test_names_do_not_depend_on_case_and_connection_options_of_kafka_do_nothing():
    options = parse(PATH="d", SubScribe=" a, ,b,a", KAFKA__group__id="g", groupIdPrefix="p", kafkaConsumer__pollTimeoutMs="5", FailOnDataLoss="FALSE")
    assert options.strategy == Subscribe(("a", "b"))
    assert not options.fail_on_data_loss
    assert options.path.endswith("/d")


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("d/../e", "e"),
        (" d ", "d"),
        ("a%20b", "a%20b"),
        ("/a%20b", "/a%20b"),
        ("file:///a%20b/%C3%BC", "/a b/ü"),
        ("file:/a#b?c/", "/a#b?c"),
        ("FILE://localhost/a", "/a"),
    ],
)
def test_a_path_names_the_directory_that_it_names_for_a_broker(monkeypatch, tmp_path, path, directory):
    monkeypatch.chdir(tmp_path)
    named = str(tmp_path / directory)
    assert (parse(path=path, subscribe="t").path, parse(path=path, subscribe="t").source) == (named, named)
    sink = SinkOptions.parse({"path": "/log", "stagingPath": path})
    assert sink.staging_path == named
    assert SinkOptions.parse({"path": path}).staging_path == named + ".staging"


def test_a_store_is_named_by_a_uri_whose_scheme_has_any_case():
    options = parse(path="S3://me:secret@bucket/p", subscribe="t", store__region="x")
    assert options.path == "s3://me:secret@bucket/p"
    assert options.source == "s3://bucket/p"
    assert options.store == {"region": "x"}
    for given, words in (
        ({"path": "s3://bucket/p"}, "read-only"),
        ({"path": "d", "stagingPath": "s3://bucket/p"}, "stagingPath: s3://bucket/p is an object store"),
    ):
        with pytest.raises(OptionError, match=words):
            SinkOptions.parse(given)


def test_the_three_ways_to_choose_partitions():
    assert parse(path="d", assign='{"t":[0,2],"u":[1]}').strategy == Assign(frozenset({("t", 0), ("t", 2), ("u", 1)}))
    assert parse(path="d", subscribePattern="t.*").strategy == SubscribePattern("t.*")


def test_a_time_for_all_beats_times_per_partition_beats_offsets():
    everything = {
        "startingOffsets": '{"t":{"0":5}}',
        "startingOffsetsByTimestamp": '{"t":{"0":7}}',
        "startingTimestamp": "9",
        "startingOffsetsByTimestampStrategy": "LATEST",
    }
    assert parse(**BASE, **everything).stream_start() == GlobalTimestamp(9, latest_if_none=True)
    del everything["startingTimestamp"]
    assert parse(**BASE, **everything).stream_start() == SpecificTimestamps({("t", 0): 7}, latest_if_none=True)
    del everything["startingOffsetsByTimestamp"]
    assert parse(**BASE, **everything).stream_start() == SpecificOffsets({("t", 0): 5})


def test_an_offset_may_be_a_number_with_a_fraction_of_zero_or_stand_for_a_topic():
    given = parse(**BASE, startingOffsets='{"t":{"0":5.0},"u":"latest","v":"earliest"}').stream_start()
    assert given == SpecificOffsets({("t", 0): 5, ("u", -1): -1, ("v", -1): -2})
    with pytest.raises(OptionError, match="cannot start at latest"):
        parse(**BASE, startingOffsets='{"t":"latest"}').batch_limits()
    with pytest.raises(OptionError, match="different partitions: t against t-0"):
        parse(**BASE, startingOffsets='{"t":"earliest"}', endingOffsets='{"t":{"0":4}}').batch_limits()


def test_properties_of_connections_may_stay_when_a_directory_is_read():
    secure = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.location": "/none",
        "sasl.kerberos.service.name": "k",
        "group.id": "g",
    }
    assert parse(**BASE, **{f"kafka.{name}": value for name, value in secure.items()}).client == secure


@pytest.mark.parametrize(("release", "is_old"), [("4.1.1", True), ("3.5.0", True), ("4.2.0", False), ("4.10.0.dev0", False), ("5.0.0", False)])
def test_a_release_of_spark_that_is_too_old_is_named(monkeypatch, release, is_old):
    monkeypatch.setattr("pyspark.__version__", release)
    if is_old:
        with pytest.raises(OptionError, match=f"needs PySpark 4.2 or newer; this is {release}"):
            LogSource(BASE)
    else:
        assert LogSource(BASE).schema()


def test_a_topic_to_write_into_is_trimmed_and_properties_are_those_of_a_producer():
    assert SinkOptions.parse({"path": "d", "topic": " t "}).topic == "t"
    assert SinkOptions.parse({"path": "d", "kafka.fetch.max.bytes": "5", "kafka.batch.size": "5"}).producer["batch.size"] == "5"
    with pytest.raises(OptionError, match=r"unknown configuration `batch.sise` for a Producer; did you mean `batch.size`"):
        SinkOptions.parse({"path": "d", "kafka.batch.sise": "5"})
    with pytest.raises(OptionError, match="hands the options of a table"):
        SinkOptions.parse({})


def test_a_topic_is_made_with_what_the_options_say():
    place = {"path": "d", "topic": "t"}
    assert SinkOptions.parse(place).new_topic is None
    assert SinkOptions.parse({**place, "partitions": "3", "topic.Retention.ms": "5"}).new_topic == NewTopic(3, {"retention.ms": "5"})
    assert SinkOptions.parse({**place, "topic.cleanup.policy": "compact"}).new_topic == NewTopic(1, {"cleanup.policy": "compact"})


@pytest.mark.parametrize("place", [{"path": "d"}, {"kafka.bootstrap.servers": "h:1"}])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "t", "topic.cleanup.polcy": "compact"}, "a topic has no property cleanup.polcy; did you mean cleanup.policy?"),
        ({"topic": "t", "partition": "3"}, "unknown option partition for writing with format fletchlog; did you mean partitions?"),
        ({"topic": "t", "partitions": "0"}, "option partitions: a topic has at least 1"),
        ({"topic": "t", "partitions": "three"}, "option partitions: expected a whole number"),
        ({"partitions": "3"}, "the topic of the option topic is made, which is missing"),
    ],
)
def test_a_topic_that_cannot_be_made_as_asked_is_an_error(place, options, words):
    with pytest.raises(OptionError, match=re.escape(words)):
        SinkOptions.parse({**place, **options})


@pytest.mark.parametrize("place", [{"path": "d"}, {"kafka.bootstrap.servers": "h:1"}])
def test_a_misspelt_property_of_a_client_is_an_error_in_both_kinds_of_place(place):
    for parsed, name, meant in ((SourceOptions, "fetch.max.byte", "fetch.max.bytes"), (SinkOptions, "comression.type", "compression.type")):
        with pytest.raises(OptionError, match=rf"unknown configuration `{name}`.*did you mean `{meant}`"):
            parsed.parse({**place, **({"subscribe": "t"} if parsed is SourceOptions else {}), f"kafka.{name}": "5"})


def test_a_batch_goes_from_earliest_to_latest_and_a_stream_starts_at_latest():
    assert parse(**BASE).batch_limits() == (Earliest(), Latest())
    assert parse(**BASE).stream_start() == Latest()
    assert parse(**BASE, startingOffsets=" EARLIEST ").stream_start() == Earliest()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "cannot end at earliest"),
        ({"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'}, "different partitions"),
        ({"startingOffsets": '{"t":{"0":6}}', "endingOffsets": '{"t":{"0":5}}'}, "6 for t-0 is above the end, 5"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":6}}', "endingOffsetsByTimestamp": '{"t":{"0":5}}'}, "above the end"),
    ],
)
def test_what_a_batch_cannot_mean_is_refused(options, words):
    with pytest.raises(OptionError, match=words):
        parse(**BASE, **options).batch_limits()


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    value = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"t":{"0":5}}', "endingTimestamp": "5"}[name]
    with pytest.raises(OptionError, match=name):
        parse(**BASE, **{name: value}).stream_start()


@pytest.mark.parametrize(("text", "ms"), [("250ms", 250), ("10s", 10_000), ("2m", 120_000), ("3min", 180_000), ("1h", 3_600_000), ("1d", 86_400_000), ("7", 7)])
def test_durations_are_sparks(text, ms):
    assert parse(**BASE, maxTriggerDelay=text).max_trigger_delay_ms == ms
    assert parse(**BASE).max_trigger_delay_ms == 900_000
