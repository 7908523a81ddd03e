"""`fletchlog land`: what it prints, its options, and how it ends; what is landed is in the other modules."""

import json
import signal
import subprocess
import time

import pytest

import fletchlog as fl
from tests.cli.conftest import Shell, cli  # noqa: F401 - a fixture
from tests.support.landed import Place, expected


@pytest.fixture
def source(tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for n in range(5):
                producer.send("t", value=b'{"id": %d, "lines": [{"price": 1.5}]}' % n, key=b"k", partition=n % 2)
    return tmp_path / "data"


def test_it_says_what_it_did_and_which_offsets_a_table_has(cli, source, tmp_path):  # noqa: F811
    table = tmp_path / "table"
    assert cli("land", source, "t", table).out == f"{table}: 5 rows in 1 commit, 1 file (parquet)\n"
    assert cli("land", source, "t", table).out == f"{table}: nothing new\n"
    assert cli("land", "--status", table).out == "t-0: up to offset 3, which is the next one to land\nt-1: up to offset 2, which is the next one to land\n"
    offsets = [{"topic": "t", "partition": 0, "offset": 3}, {"topic": "t", "partition": 1, "offset": 2}]
    assert cli("land", "--status", table, "--json").json == offsets
    report = cli("land", source, "t", table, "--json").json
    assert report == {
        "table": str(table), "format": "parquet", "rows": 0, "commits": 0, "files": 0, "compacted": 0, "stopped": False, "offsets": offsets, "skipped": [],
    }  # fmt: skip


def test_an_iceberg_table_by_the_properties_of_its_catalog(cli, source, tmp_path):  # noqa: F811
    place = Place("iceberg", tmp_path)
    words = [word for name, value in place.catalog.items() for word in ("--catalog-config", f"{name}={value}")]
    assert "5 rows in 1 commit" in cli("land", source, "t", place.table, *words).out
    assert "t-0: up to offset 3" in cli("land", "--status", place.table, *words).out
    with fl.Broker(source, read_only=True) as broker:
        assert place.rows() == expected(broker)


def test_typed_columns_by_a_file(cli, source, tmp_path):  # noqa: F811
    (tmp_path / "orders").write_text("id bigint, lines array<struct<price: double>>")
    cli(
        "land",
        source,
        "t",
        tmp_path / "table",
        "--value",
        "json",
        "--value-schema",
        tmp_path / "orders",
        "--key",
        "string",
        "--flatten",
        "-f",
        "delta",
        "--partition-by",
        "day",
    )
    found = Place("delta", tmp_path, "table").read()
    assert sorted(found["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert found["lines"].to_pylist() == [[{"price": 1.5}]] * 5
    assert found["key"].to_pylist() == ["k"] * 5
    assert "day" in found.schema.names


def test_typed_columns_by_a_proto_file(cli, tmp_path):  # noqa: F811
    (tmp_path / "shop.proto").write_text('syntax = "proto3"; package shop; message Item { string sku = 1; } message Order { int64 id = 1; }')
    typed = ("--value-schema", tmp_path / "shop.proto", "--message", "shop.Order")
    cli("produce", tmp_path / "data", "t", "-f", "jsonl", "--partitions", "1", "--value-format", "protobuf", *typed, stdin='{"id": 7}')
    cli("land", tmp_path / "data", "t", tmp_path / "table", "--value", "protobuf", *typed, "--flatten")
    assert Place("parquet", tmp_path, "table").read()["id"].to_pylist() == [7]
    assert "message of the .proto file" in " ".join(cli("land", "--help").out.split())


def test_schemas_of_a_registry_grow_the_table(cli, tmp_path):  # noqa: F811
    fields = [{"name": "id", "type": "long"}]
    with fl.Broker(tmp_path / "data", create=True) as broker, broker.schema_registry() as registry:
        broker.create_topic("t")
        for number in range(2):
            schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
            with fl.Producer(broker, value_serializer=fl.serde.Confluent(registry=registry.url, schema=schema, topic="t")) as producer:
                producer.send("t", {"id": number, "note": "n"} if number else {"id": number})
            assert (
                "1 row " in cli("land", tmp_path / "data", "t", tmp_path / "table", "--value", "confluent", "--schema-registry", registry.url, "--flatten").out
            )
            fields.append({"name": "note", "type": ["null", "string"], "default": None})
    found = Place("parquet", tmp_path, "table").read().sort_by("offset")
    assert found.select(["id", "note"]).to_pylist() == [{"id": 0, "note": None}, {"id": 1, "note": "n"}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{source}", "t"], "land wants SOURCE, one or more topics, and the table"),
        (["{source}", "x", "{table}"], "there is no topic x"),
        (["{source}", "t", "{table}", "--value", "json"], "a type that does not depend on the values"),
        (["{source}", "t", "{table}", "--value", "avro"], "needs --value-schema"),
        (["{source}", "t", "{table}", "-f", "csv"], "expected one of parquet, delta, iceberg"),
        (["{source}", "t", "{table}", "--on-error", "no", "--value", "long"], "--on-error is no; expected one of fail, null, collect"),
        (["{source}", "t", "{table}", "--value", "long"], "t-0 at offset 0 cannot be decoded"),
        (["{source}", "t", "{table}", "--start-offset", "t"], "--start-offset wants TOPIC:PARTITION=OFFSET"),
        (["{source}", "--status", "{table}"], "takes no SOURCE"),
        (["--status", "{table}"], "there is no such table"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(cli, source, tmp_path, words, said):  # noqa: F811
    assert said in cli("land", *[word.format(source=source, table=tmp_path / "table") for word in words], code=1).err


def test_ctrl_c_commits_what_was_read_and_the_next_command_continues(source, tmp_path):
    shell = Shell(tmp_path)
    follower = shell.start("land", source, "t", "table", "--follow", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    table = tmp_path / "table"
    while not list(table.glob("*.parquet")):
        assert follower.poll() is None, follower.communicate()
        time.sleep(0.02)
    with fl.Broker(source) as broker, fl.Producer(broker) as producer:
        producer.send("t", value=b"5", partition=0)
    time.sleep(0.5)
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=30)
    assert (follower.returncode, err) == (130, b"")
    report = json.loads(out)
    assert report["stopped"]
    shell.run("land", source, "t", "table")
    with fl.Broker(source, read_only=True) as broker:
        assert Place("parquet", tmp_path, "table").rows() == expected(broker)


def test_one_command_at_a_time(source, tmp_path):
    shell = Shell(tmp_path)
    follower = shell.start("land", source, "t", "table", "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (tmp_path / "table" / "_fletchlog" / "manifest.json").exists():
        assert follower.poll() is None, follower.communicate()
        time.sleep(0.02)
    second = shell.run("land", source, "t", "table")
    assert second.returncode == 1
    assert b"is written by another lander at this moment" in second.stderr
    follower.kill()
    follower.communicate()
    assert shell.run("land", source, "t", "table").returncode == 0
