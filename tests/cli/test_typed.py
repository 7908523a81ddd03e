"""Keys and values in a format: `fletchlog consume --value avro`, and `fletchlog produce --value-format avro`."""

import base64
import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fletchlog as fl
from fletchlog import serde
from fletchlog.cli import options
from fletchlog.serde import formats

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "raw", "type": "bytes"},
    ],
}
ROWS = [
    {"id": 1, "who": "ann", "at": 1_700_000_000_123, "tags": ["a", "b"], "raw": b"\xff"},
    {"id": 2, "who": None, "at": 0, "tags": [], "raw": b""},
]
SHOWN = [
    {"id": 1, "who": "ann", "at": "2023-11-14T22:13:20.123Z", "tags": ["a", "b"], "raw": "/w=="},
    {"id": 2, "who": None, "at": "1970-01-01T00:00:00Z", "tags": [], "raw": ""},
]


def column(rows):
    made = pa.array(rows, pa.struct([("id", pa.int64()), ("who", pa.string()), ("at", pa.int64()), ("tags", pa.list_(pa.string())), ("raw", pa.binary())]))
    names = [field.name for field in made.type]
    return pa.StructArray.from_arrays(
        [part.cast(pa.timestamp("ms", "UTC")) if n == "at" else part for n, part in zip(names, made.flatten(), strict=True)], names
    )


@pytest.fixture
def schema(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    return file


@pytest.fixture
def orders(data):
    """Two orders in Avro with keys that are numbers, and a value in front of the second that is none."""
    values, reasons = serde.Avro(json.dumps(ORDER)).encode(column(ROWS))
    assert not reasons
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        broker.create_topic("bad")
        with fl.Producer(broker, key_serializer=serde.Long()) as producer:
            for number, value in enumerate(values.to_pylist()):
                producer.send("t", value, number)
                producer.send("bad", value, number)
                if number == 0:
                    producer.send("bad", b"\xff", 7)
    return data


def test_values_are_objects_in_lines_of_json(cli, orders, schema):
    lines = cli("consume", orders, "t", "-f", "jsonl", "--value", "avro", "--value-schema", schema, "--key", "long").lines
    assert [line["value"] for line in lines] == SHOWN
    assert [line["key"] for line in lines] == [0, 1]
    assert base64.b64decode(lines[0]["value"]["raw"]) == ROWS[0]["raw"]


@pytest.mark.parametrize(("form", "seen"), [("table", '"who":"ann"'), ("%k %s\n", '0 {"id":1,"who":"ann"'), ("csv", '"{""id"":1')])
def test_values_are_json_where_there_is_text(cli, orders, schema, form, seen):
    words = ["consume", orders, "t", "--value-format", "avro", "--value-schema", schema, "--key", "long", "-f", form]
    assert seen in "".join(line.strip() for line in cli(*words).out.splitlines()).replace("│", "")


def test_values_are_typed_columns_in_parquet(cli, orders, schema, tmp_path):
    cli("consume", orders, "t", "-o", tmp_path / "t.parquet", "--value", "avro", "--value-schema", schema)
    assert pq.read_table(tmp_path / "t.parquet")["value"].to_pylist() == column(ROWS).to_pylist()


def test_what_cannot_be_decoded_ends_the_command_behind_what_comes_before_it(cli, orders, schema):
    words = ["consume", orders, "bad", "-f", "jsonl", "--value", "avro", "--value-schema", schema]
    found = cli(*words, code=1)
    assert [line["value"] for line in found.lines] == SHOWN[:1]
    assert "the value of bad-0 at offset 1 cannot be decoded" in found.err
    assert "--on-error" in found.err
    assert [line["value"] for line in cli(*words, "--on-error", "null").lines] == [SHOWN[0], None, SHOWN[1]]
    shown = cli(*words, "--on-error", "show").lines
    assert [line.get("value") for line in shown] == [SHOWN[0], None, SHOWN[1]]
    assert base64.b64decode(shown[1]["valueBase64"]) == b"\xff"
    assert shown[1]["valueError"]


def test_a_group_continues_at_what_could_not_be_decoded(cli, orders, schema):
    words = ["consume", orders, "bad", "-f", "jsonl", "--value", "avro", "--value-schema", schema, "--group", "g"]
    assert len(cli(*words, code=1).lines) == 1
    assert cli(*words, code=1).lines == []
    assert len(cli(*words, "--on-error", "null").lines) == 2


def test_a_column_has_the_reasons_in_parquet(cli, orders, schema, tmp_path):
    cli("consume", orders, "bad", "-o", tmp_path / "t.parquet", "--value", "avro", "--value-schema", schema, "--on-error", "show")
    found = pq.read_table(tmp_path / "t.parquet")
    assert [value and value["id"] for value in found["value"].to_pylist()] == [1, None, 2]
    assert [error and error["data"] for error in found["value_error"].to_pylist()] == [None, b"\xff", None]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--value", "avr"], "--value is avr; expected one of string"),
        (["--value", "avro"], "--value is avro, which needs --value-schema: an Avro schema, as JSON"),
        (["--value-schema", "SCHEMA"], "--value-schema is given without --value"),
        (["--key", "string", "--key-schema", "SCHEMA"], "--key-schema is given, and string takes no schema"),
        (["--key", "json", "--key-schema", "SCHEMA"], "--key-schema: "),
        (["--value", "avro", "--value-schema", "missing"], "--value-schema missing cannot be read"),
        (["--value", "protobuf", "--message", "nowhere.Order"], "--value-message: nowhere.Order cannot be imported"),
        (["--on-error", "null"], "--on-error is for values that are decoded"),
        (["--value", "long", "--on-error", "collect"], "--on-error is collect; expected one of fail, null, show"),
        (["--value", "json", "-o", "x.parquet"], "give one as --value-schema FILE"),
    ],
)
def test_what_does_not_fit_is_said_with_the_name_of_the_option(cli, orders, schema, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in cli("consume", orders, "t", *[schema if word == "SCHEMA" else word for word in words], code=1).err


def test_the_shell_names_the_formats_that_there_are():
    assert options.names_of_formats(None, {}) == list(formats.NAMES)


NEWER = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


@pytest.fixture
def registered(data):
    """A topic with values of two versions of a schema, in turn, and the registry that knows them."""
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("orders")
        with broker.schema_registry() as registry, fl.Producer(broker) as producer:
            for version in (ORDER, NEWER):
                order = serde.Confluent(registry=registry.url, schema=json.dumps(version), topic="orders")
                values, reasons = order.encode(column(ROWS))
                assert not reasons
                producer.send("orders", values[0].as_py())
                producer.send("orders", values[1].as_py())
            producer.flush()
            with broker.listen() as listener:
                yield f"kafka://{listener.bootstrap}", registry.url


def test_a_registry_says_what_each_value_is(cli, registered, tmp_path):
    place, url = registered
    for form in ("confluent", "avro"):
        lines = cli("consume", place, "orders", "-f", "jsonl", "--value", form, "--schema-registry", url, "--key", "long").lines
        assert [line["value"] for line in lines] == [*SHOWN, *({**shown, "note": None} for shown in SHOWN)]
    cli("consume", place, "orders", "-o", tmp_path / "t.parquet", "--value", "confluent", "--schema-registry", url)
    assert [value["note"] for value in pq.read_table(tmp_path / "t.parquet")["value"].to_pylist()] == [None] * 4


def test_a_file_of_columns_has_the_type_of_the_newest_protobuf_or_json_schema(cli, data, tmp_path):
    proto = 'syntax = "proto3"; package p; message M { int64 id = 1; }'
    follows = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    with fl.Broker(data, create=True) as broker, broker.schema_registry() as registry, broker.listen() as listener:
        for kind, schema, form in (("PROTOBUF", proto, "protobuf"), ("JSON", follows, "json-schema")):
            broker.create_topic(kind)
            with fl.Producer(broker, value_serializer=serde.Confluent(registry=registry.url, schema=schema, kind=kind, topic=kind)) as producer:
                producer.send(kind, {"id": 7})
            for value in (form, "confluent"):
                file, place = tmp_path / f"{kind}-{value}.parquet", f"kafka://{listener.bootstrap}"
                cli("consume", place, kind, "-o", file, "--value", value, "--schema-registry", registry.url)
                assert pq.read_table(file)["value"].to_pylist() == [{"id": 7}]
        serde.Registry(registry.url).register("open-value", "{}", kind="JSON")
        broker.create_topic("open")
        words = ["consume", place, "open", "-o", tmp_path / "open.parquet", "--value", "confluent", "--schema-registry", registry.url]
        assert "the JSON Schema of open-value, version 1, leaves the type of its values open" in cli(*words, code=1).err


def test_what_a_registry_does_not_have_is_said(cli, registered, tmp_path):
    place, url = registered
    words = ["consume", place, "orders", "--value", "confluent"]
    assert "--value is confluent, which needs --schema-registry: the URL of a schema registry" in cli(*words, code=1).err
    assert "nothing" in cli(*words, "--schema-registry", url, "--subject", "nothing", "-o", tmp_path / "t.parquet", code=1).err


@pytest.fixture
def empty(data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
    return data


def decoded(place, topic="t", deserializer=None):
    with fl.Broker(place, read_only=True) as broker:
        return serde.deserialize(broker.scan(topic), value=deserializer or serde.Avro(json.dumps(ORDER)))["value"].to_pylist()


AVRO = ["--value-format", "avro", "--value-schema"]


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_what_consume_decoded_is_produced_in_the_same_format(cli, orders, schema, tmp_path, form):
    file = tmp_path / f"t.{form}"
    cli("consume", orders, "t", "-o", file, "--value", "avro", "--value-schema", schema, "--key", "long")
    cli("produce", tmp_path / "copy", "t", file, "--partitions", 1, *AVRO, schema, "--key-format", "long")
    with fl.Broker(orders, read_only=True) as one, fl.Broker(tmp_path / "copy", read_only=True) as other:
        found, copied = one.scan("t").to_pyarrow(), other.scan("t").to_pyarrow()
    assert copied.select(["key", "value", "timestamp"]).equals(found.select(["key", "value", "timestamp"]))


def test_rows_of_every_kind_of_file_are_encoded(cli, empty, schema, tmp_path):
    expected = column(ROWS).to_pylist()
    pq.write_table(pa.Table.from_struct_array(column(ROWS)), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, SHOWN)))
    (tmp_path / "rows.csv").write_text('id,who,at,tags,raw\n1,ann,2023-11-14T22:13:20.123Z,"[""a"",""b""]",/w==\n2,,1970-01-01T00:00:00Z,[],""\n')
    import fastavro

    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(ORDER), ROWS)
    for name in ("rows.parquet", "rows.jsonl", "rows.csv", "rows.avro"):
        cli("produce", empty, "t", tmp_path / name, *AVRO, schema, "--key", "id", "--key-format", "long")
        assert decoded(empty)[-2:] == expected, name
    with fl.Broker(empty, read_only=True) as broker:
        assert broker.scan("t").to_pyarrow()["key"].to_pylist() == [b"\0" * 7 + b"\1", b"\0" * 7 + b"\2"] * 4


def test_a_row_that_cannot_be_encoded_ends_the_command_behind_those_before_it(cli, empty, schema):
    rows = "\n".join([json.dumps(SHOWN[0]), '{"id": "x"}', json.dumps(SHOWN[1])])
    error = cli("produce", empty, "t", "-f", "jsonl", *AVRO, schema, stdin=rows, code=1).err
    assert "standard input, line 2: its value cannot be encoded: a string where the type is int64 at /id; 1 record" in error
    assert "1 record before it is in t" in error
    assert len(decoded(empty)) == 1
    error = cli("produce", empty, "t", "-f", "jsonl", *AVRO, schema, stdin=json.dumps(SHOWN[0] | {"raw": "no base64"}), code=1).err
    assert "standard input, line 1: its value cannot be encoded: " in error


def test_what_is_produced_is_registered(cli, data, schema):
    with fl.Broker(data, create=True) as broker, broker.schema_registry() as registry, broker.listen() as listener:
        place = f"kafka://{listener.bootstrap}"
        words = ["produce", place, "t", "-f", "jsonl", "--value-format", "avro", "--schema-registry", registry.url]
        cli(*words, "--value-schema", schema, "--partitions", 1, stdin=json.dumps(SHOWN[0]))
        # without a schema the newest version is written
        cli(*words, stdin=json.dumps(SHOWN[1]))
        with serde.Registry(registry.url) as client:
            assert client.subjects() == ["t-value"]
        shown = cli("consume", place, "t", "-f", "jsonl", "--value", "confluent", "--schema-registry", registry.url).lines
        assert [line["value"] for line in shown] == SHOWN
        assert "'nothing' not found" in cli(*words, "--subject", "nothing", stdin="{}", code=1).err


def test_what_a_registry_gets_has_the_types_of_its_schema(cli, data, tmp_path):
    proto = """syntax = "proto3"; package p; message Other { int32 n = 1; }
      message M { int64 id = 1; bytes raw = 2; map<string, Other> of = 3; Kind kind = 4; enum Kind { NEW = 0; PAID = 1; } }"""
    (tmp_path / "m.proto").write_text(proto)
    (tmp_path / "m.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}}')
    (tmp_path / "rows.csv").write_text('id,tags\n1,"[""a""]"\n2,\n')
    row = {"id": 1, "raw": "/w==", "of": {"k": {"n": 5}}, "kind": "PAID"}
    with fl.Broker(data, create=True) as broker, broker.schema_registry() as registry, broker.listen() as listener:
        place, of_url = f"kafka://{listener.bootstrap}", ["--schema-registry", registry.url]
        words = ["produce", place, "p", "-f", "jsonl", "--value-format", "protobuf", "--message", "p.M", *of_url]
        cli(*words, "--value-schema", tmp_path / "m.proto", "--partitions", 1, stdin=json.dumps(row))
        cli(*words, stdin=json.dumps(row))
        read = serde.Protobuf("p.M", proto)
        for value in broker.scan("p").to_pyarrow()["value"].to_pylist():
            # the id, and the index of the second message
            assert value[:7] == b"\0\0\0\0\1\2\2"
            assert read.of_bytes(value[7:]) == row | {"raw": b"\xff"}
        words = ["produce", place, "j", "--value-format", "json-schema", "--value-schema", tmp_path / "m.json", *of_url]
        cli(*words, tmp_path / "rows.csv", "--partitions", 1)
        cli(*words, "-f", "jsonl", stdin='{"id": 3, "tags": []}')
        values = broker.scan("j").to_pyarrow()["value"].to_pylist()
        assert [json.loads(value[5:]) for value in values] == [{"id": 1, "tags": ["a"]}, {"id": 2}, {"id": 3, "tags": []}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["a", "", '{"b": 1}', None]),
        ("long", [5, None, -1]),
        ("boolean", [True, False]),
        ("json", [{"a": [1]}, None, {"a": []}]),
        ("json", ["b", None, "é"]),
        ("json", [2.5]),
    ],
)
def test_values_of_every_kind_come_back_from_csv(cli, empty, tmp_path, kind, values):
    rows = [json.dumps({"k": "k", "v": value}) for value in values]
    cli("produce", empty, "t", "-f", "jsonl", "--value-format", kind, "--key", "k", "--value", "v", stdin="\n".join(rows))
    cli("consume", empty, "t", "-o", tmp_path / "t.csv", "--value-format", kind)
    cli("produce", empty, "copy", tmp_path / "t.csv", "--value-format", kind, "--partitions", 1)
    with fl.Broker(empty, read_only=True) as broker:
        found, copied = (broker.scan(topic).to_pyarrow()["value"] for topic in ("t", "copy"))
    assert found.null_count == values.count(None)
    assert copied.equals(found)


def test_protobuf_and_json_are_encoded_too(cli, empty, tmp_path):
    words = ["produce", empty, "t", "-f", "jsonl"]
    cli(*words, "--value-format", "protobuf", "--message", "google.protobuf.duration_pb2.Duration", stdin='{"seconds": 3, "nanos": 7}')
    shown = cli("consume", empty, "t", "-f", "jsonl", "--value", "protobuf", "--message", "google.protobuf.duration_pb2.Duration").lines
    assert [line["value"] for line in shown] == [{"seconds": 3, "nanos": 7}]
    (tmp_path / "shop.proto").write_text('syntax = "proto3"; package shop; message Order { int64 id = 1; repeated string tags = 2; }')
    of_text = ["--value-schema", tmp_path / "shop.proto", "--message", "shop.Order"]
    cli(*words, "--value-format", "protobuf", *of_text, stdin='{"id": 5, "tags": ["a"]}')
    assert cli("consume", empty, "t", "-f", "jsonl", "--tail", 1, "--value", "protobuf", *of_text).lines[0]["value"] == {"id": 5, "tags": ["a"]}
    cli(*words, "--value-format", "json", stdin='{"a":  [1, 2]}')
    assert cli("consume", empty, "t", "-f", "jsonl", "--tail", 1).lines[0]["value"] == '{"a":[1,2]}'


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_misspelt_field_is_not_lost(cli, empty, tmp_path, form):
    text = {
        "avro": '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"note","type":["null","string"],"default":null}]}',
        "json": "id bigint, note string",
    }[form]
    (tmp_path / "schema").write_text(text)
    lines = '{"id":1,"note":"a"}\n{"id":2,"noet":"b"}\n'
    error = cli("produce", empty, "t", "-f", "jsonl", "--value-format", form, "--value-schema", tmp_path / "schema", stdin=lines, code=1).err
    assert 'there is no field "noet" (there are id, note)' in error
    assert fl.scan(empty, "t").to_pyarrow().num_rows == 1


# what an inferred type would change: zones, digits, fields of other records, escapes, fields that come twice
JSON_TEXTS = [
    b'{"id":1,"at":"2024-05-01T12:00:00+02:00","day":"2024-05-01","big":12345678901234567890123,"dec":1.10,"e":1E40,"n":{}}',
    b'{"id":"x","at":"soon","u":"\\u00e9 \xc2\x9b \xe2\x80\xa8","a":1,"a":2}',
    b'[1,"a",{"b":null}]',
    b'"2024-05-01"',
    b"2.50",
]


@pytest.fixture
def json_values(data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            for value in JSON_TEXTS:
                producer.send("t", value, value)
    return data


@pytest.mark.parametrize("schema", [None, "{}"])
def test_json_without_a_type_is_shown_as_it_is(cli, json_values, tmp_path, schema):
    typed = ["--value", "json", "--key", "json"]
    if schema is not None:
        (tmp_path / "any.json").write_text(schema)
        typed = ["--value", "json-schema", "--value-schema", tmp_path / "any.json", "--key", "json"]
    texts = [text.decode() for text in JSON_TEXTS]
    assert cli("consume", json_values, "t", "-f", "raw", *typed).out.split("\n")[:-1] == texts
    assert cli("consume", json_values, "t", "-f", "%k\n", *typed).out.split("\n")[:-1] == texts
    lines = cli("consume", json_values, "t", "-f", "jsonl", *typed).out.split("\n")[:-1]
    assert all(f'"key": {text}, "value": {text}}}' in line for text, line in zip(texts, lines, strict=True))
    rows = list(csv.reader(io.StringIO(cli("consume", json_values, "t", "-f", "csv", *typed).out)))
    assert [row[5] for row in rows[1:]] == texts
    # a record does not depend on those beside it
    assert cli("consume", json_values, "t", "-f", "jsonl", "--offset", 1, "-n", 1, *typed).out.split("\n")[0] == lines[1]


@pytest.mark.parametrize("form", ["jsonl", "json", "csv"])
def test_json_without_a_type_comes_back_with_the_same_bytes(cli, json_values, tmp_path, form):
    file = tmp_path / f"t.{form}"
    cli("consume", json_values, "t", "-o", file, "--value", "json", "--key", "json")
    cli("produce", json_values, "copy", file, "--partitions", 1, "--value-format", "json", "--key-format", "json")
    with fl.Broker(json_values, read_only=True) as broker:
        copied = broker.scan("copy").to_pyarrow()
    assert copied["value"].to_pylist() == copied["key"].to_pylist() == JSON_TEXTS


def test_json_of_several_lines_is_one_line_of_json_lines(cli, data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b'{"a":\r\n [1,\n 2], "b": " \\n "}')
            producer.send("t")
    assert [line["value"] for line in cli("consume", data, "t", "-f", "jsonl", "--value", "json").lines] == [{"a": [1, 2], "b": " \n "}, None]
    assert cli("consume", data, "t", "-f", "raw", "--value", "json").out == '{"a":\r\n [1,\n 2], "b": " \\n "}\n\n'


def test_what_is_no_json_is_said_where_there_is_no_schema(cli, json_values):
    cli("produce", json_values, "t", stdin="no {\n")
    found = cli("consume", json_values, "t", "-f", "raw", "--value", "json", code=1)
    assert found.out.split("\n")[:-1] == [text.decode() for text in JSON_TEXTS]
    assert "the value of t-0 at offset 5 cannot be decoded: not JSON: " in found.err
    shown = cli("consume", json_values, "t", "-f", "jsonl", "--value", "json", "--on-error", "show", "--tail", 1).lines[0]
    assert shown["value"] == "no {"
    assert shown["valueError"].startswith("not JSON")
    assert cli("consume", json_values, "t", "-f", "jsonl", "--value", "json", "--on-error", "null", "--tail", 1).lines[0]["value"] is None
    assert "line 1: its value cannot be encoded: not JSON" in cli("produce", json_values, "t", "--value-format", "json", stdin="no {\n", code=1).err


def test_fields_of_json_keep_their_text(cli, empty):
    row = '{"id": 12345678901234567890.10, "v": {"a":[1.50,"\\u00e9"],  "b":1E2}, "s": "text"}\n'
    cli("produce", empty, "t", "-f", "jsonl", "--key", "id", "--value", "v", stdin=row)
    cli("produce", empty, "t", "-f", "jsonl", "--key", "s", "--value", "v", "--value-format", "json", stdin=row)
    with fl.Broker(empty, read_only=True) as broker:
        found = broker.scan("t").to_pyarrow()
    assert found["key"].to_pylist() == [b"12345678901234567890.10", b"text"]
    assert found["value"].to_pylist() == [b'{"a":[1.50,"\\u00e9"],  "b":1E2}', b'{"a":[1.50,"\\u00e9"],"b":1E2}']
