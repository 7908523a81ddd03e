"""`serde.Registry` and `serde.Confluent(registry=...)`: against the registry, and with confluent-kafka's serializers both ways."""

import asyncio
import http.server
import json
import pickle
import ssl
import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import InvalidArgumentError, RecordDeserializationError, SchemaRegistryError, SchemaRegistryUnavailableError
from tests.registry.conftest import record
from tests.registry.test_confluent_kafka import AVRO, JSON, message_class
from tests.support.certificates import Authority
from tests.support.ports import free_port

ORDER = {"id": 7, "by": "eve"}
VALUE = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture
def url(broker):
    with broker.schema_registry() as registry:
        yield registry.url


@contextmanager
def answering(*answers, **seen):
    """A server that gives these answers, one a request: its URL, and the requests."""
    left, requests = list(answers), []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            requests.append((self.path, dict(self.headers)))
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        server.server_close()


def test_the_verbs(url):
    with serde.Registry(url) as registry:
        assert registry.register("orders-value", record("x")) == registry.register("orders-value", record("x")) == 1
        assert registry.register("orders-value", record("x", "y=1")) == 2
        assert (registry.subjects(), registry.subjects("b"), registry.versions("orders-value")) == (["orders-value"], [], [1, 2])
        newest = registry.version("orders-value")
        assert (newest.id, newest.version, newest.kind, newest.subject) == (2, 2, "AVRO", "orders-value")
        assert registry.schema(2).text == registry.schema(newest.guid).text == newest.text
        assert registry.lookup("orders-value", record("x")).version == 1
        assert registry.compatibility("orders-value", record("x")) == []
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in registry.compatibility("orders-value", record("z"), version=None)[0]
        registry.set_config("orders-value", compatibility="FULL")
        assert registry.config("orders-value") == {"compatibilityLevel": "FULL"}
        assert registry.config() == {"compatibilityLevel": "BACKWARD"}
        assert registry.delete("orders-value", 1) == [1]
        assert registry.delete("orders-value") == [2]
        assert registry.delete("orders-value", permanent=True) == [1, 2]
        with pytest.raises(SchemaRegistryError, match=r"GET http://127.*/subjects/orders-value/versions: 404 Subject.*40401") as error:
            registry.versions("orders-value")
        assert (error.value.status, error.value.error_code, error.value.retriable) == (404, 40401, False)
        assert pickle.loads(pickle.dumps(registry)).subjects() == []
        assert registry.register("a/b c", '"string"') == 3
        assert registry.subjects() == ["a/b c"]


def test_coroutines_wait_beside_each_other(url):
    async def run():
        async with serde.AsyncRegistry(url) as registry:
            ids = await asyncio.gather(*(registry.register(f"s{number}", record("x")) for number in range(5)))
            schema = await registry.schema(1)
        await registry.close()
        return ids, schema.text

    assert asyncio.run(run()) == ([1] * 5, json.dumps(record("x"), separators=(",", ":")))


def test_what_is_prepared_in_a_coroutine_needs_no_request_later(broker):
    async def run(url):
        orders, reader = serde.Confluent(registry=url, schema=AVRO, topic="orders"), serde.Confluent(registry=url)
        await orders.prepare()
        value = orders(ORDER)
        await reader.prepare([value, None, b"x"])
        return orders, reader, value

    with broker.schema_registry() as registry:
        orders, reader, value = asyncio.run(run(registry.url))
    assert (orders(ORDER), reader.of_bytes(value)) == (value, ORDER), "the registry has ended"


def test_avro_both_ways(url):
    with SchemaRegistryClient({"url": url}) as client:
        theirs = AvroSerializer(client, AVRO)(ORDER, VALUE)
        ours = serde.Confluent(registry=url, schema=AVRO, topic="orders")
        assert ours(ORDER) == theirs
        assert ours.of_bytes(theirs) == ORDER
        assert AvroDeserializer(client)(ours(ORDER), VALUE) == ORDER
        column = pa.array([ORDER, None], pa.struct({"id": pa.int64(), "by": pa.string()}))
        encoded, reasons = ours.encode(column)
        assert (encoded.to_pylist(), reasons) == ([theirs, None], {})
        assert ours.decode(encoded)[0].to_pylist() == [ORDER, None]
        assert client.get_subjects() == ["orders-value"]


def test_json_both_ways(url):
    with SchemaRegistryClient({"url": url}) as client:
        theirs = JSONSerializer(JSON, client)(ORDER, VALUE)
        ours = serde.Confluent(registry=url, schema=JSON, kind="JSON", topic="orders")
        assert ours.of_bytes(theirs) == ORDER
        assert ours(ORDER)[:5] == theirs[:5]
        assert JSONDeserializer(None, schema_registry_client=client)(ours(ORDER), VALUE) == ORDER


def test_protobuf_both_ways(url):
    order_class = message_class()
    options = {"use.deprecated.format": False}
    with SchemaRegistryClient({"url": url}) as client:
        theirs = ProtobufSerializer(order_class, client, options)(order_class(**ORDER), VALUE)
        assert serde.Confluent(registry=url).of_bytes(theirs) == ORDER, "by the text of the schema"
        ours = serde.Confluent(registry=url, schema=order_class, topic="mine")
        assert ProtobufDeserializer(order_class, options, client)(ours(ORDER), VALUE) == order_class(**ORDER)
        text = 'syntax = "proto3"; import "o.proto"; message First { string s = 1; } message Second { Other o = 1; }'
    with serde.Registry(url) as registry:
        registry.register("other", 'syntax = "proto3"; message Other { int32 n = 1; }', kind="PROTOBUF")
        registry.register("two", text, kind="PROTOBUF", references=[serde.Reference("o.proto", "other", 1)])
    second = serde.Confluent(registry=url, subject="two", message="Second")
    assert second.of_bytes(second({"o": {"n": 3}})) == {"o": {"n": 3}}
    with pytest.raises(ValueError, match="another message"):
        serde.Confluent(registry=url).of_bytes(second({"o": {"n": 3}}))
    with pytest.raises(InvalidArgumentError, match=r"no Protobuf message Third"):
        serde.Confluent(registry=url, message="Third").of_bytes(second({"o": None}))


def test_references_of_avro_and_json_schema_are_followed(url):
    with serde.Registry(url) as registry:
        registry.register("inner", {"type": "record", "name": "Inner", "namespace": "a", "fields": [{"name": "n", "type": "int"}]})
        registry.register("plain", {"type": "enum", "name": "Plain", "symbols": ["A"]})
        references = [serde.Reference("a.Inner", "inner", 1), serde.Reference("Plain", "plain", 1)]
        fields = [{"name": "one", "type": "a.Inner"}, {"name": "two", "type": ["null", "a.Inner"]}, {"name": "e", "type": "Plain"}]
        registry.register("outer", {"type": "record", "name": "Outer", "fields": fields}, references=references)
        registry.register("leaf.json", {"type": "integer"}, kind="JSON")
        whole = {"type": "object", "properties": {"n": {"$ref": "leaf.json"}}}
        registry.register("tree", whole, kind="JSON", references=[serde.Reference("leaf.json", "leaf.json", 1)])
    outer = serde.Confluent(registry=url, subject="outer")
    value = {"one": {"n": 1}, "two": {"n": 2}, "e": "A"}
    assert serde.Confluent(registry=url).of_bytes(outer(value)) == value
    tree = serde.Confluent(registry=url, subject="tree")
    assert tree.of_bytes(tree({"n": 1})) == {"n": 1}
    with pytest.raises(InvalidArgumentError, match="int64"):
        tree({"n": "x"})


def test_many_schemas_are_resolved_to_the_readers(url):
    old, new = record("x", name="R"), record("x", "y=5", name="R")
    values = [serde.Confluent(registry=url, schema=schema, topic="t")(row) for schema, row in ((old, {"x": 1}), (new, {"x": 2, "y": 3}))]
    reader = serde.Confluent(registry=url, reader_schema=new)
    assert reader.decode(pa.array(values))[0].to_pylist() == [{"x": 1, "y": 5}, {"x": 2, "y": 3}]
    again = pickle.loads(pickle.dumps(reader))
    assert again.decode(pa.array(values))[0].to_pylist() == [{"x": 1, "y": 5}, {"x": 2, "y": 3}]


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"topic": "t"}, "t-value"),
        ({"topic": "t", "is_key": True}, "t-key"),
        ({"topic": "t", "strategy": "record"}, "n.R"),
        ({"topic": "t", "strategy": "topic-record"}, "t-n.R"),
        ({"subject": "s"}, "s"),
    ],
)
def test_subjects_are_named_by_a_strategy(url, options, subject):
    schema = {"type": "record", "name": "R", "namespace": "n", "fields": []}
    serde.Confluent(registry=url, schema=schema, **options)({})
    with serde.Registry(url) as registry:
        assert registry.subjects() == [subject]


def test_what_is_not_registered_is_written_only_with_auto_register(url):
    strict = serde.Confluent(registry=url, schema=record("x"), topic="t", auto_register=False)
    with pytest.raises(SchemaRegistryError, match="40401"):
        strict({"x": 1})
    newest = serde.Confluent(registry=url, topic="t")
    serde.Confluent(registry=url, schema=record("x"), topic="t")({"x": 1})
    assert strict({"x": 1}) == newest({"x": 1})
    with pytest.raises(SchemaRegistryError, match="409"):
        serde.Confluent(registry=url, schema=record("x", "y"), topic="t")({"x": 1, "y": 2})


def test_the_guid_is_in_a_header_as_confluent_kafka_writes_it(url):
    order_class = message_class()
    headers, written = {}, []
    with SchemaRegistryClient({"url": url}) as client:
        for ours, serializer, value in [
            (
                serde.Confluent(registry=url, schema=AVRO, topic="orders", in_header=True),
                AvroSerializer(client, AVRO, conf={"schema.id.serializer": header_schema_id_serializer}),
                ORDER,
            ),
            (
                serde.Confluent(registry=url, schema=order_class, topic="messages", in_header=True),
                ProtobufSerializer(order_class, client, {"use.deprecated.format": False, "schema.id.serializer": header_schema_id_serializer}),
                order_class(**ORDER),
            ),
        ]:
            headers = []
            context = SerializationContext(ours.topic, MessageField.VALUE, headers)
            written.append((serializer(value, context), headers))
            assert written[-1] == (ours(ORDER), [ours.header()])


def test_a_record_whose_schema_is_in_a_header_is_read_by_itself(broker, url):
    broker.create_topic("orders")
    key = serde.Confluent(registry=url, schema='"string"', topic="orders", is_key=True, in_header=True)
    value = serde.Confluent(registry=url, schema=AVRO, topic="orders", in_header=True)
    before = serde.Confluent(registry=url, schema=AVRO, topic="orders")
    with fl.Producer(broker) as producer:
        producer.send("orders", value(ORDER), key("a"), headers=[value.header(), key.header()])
        producer.send("orders", before(ORDER), headers=[("other", None), (value.header()[0], None)])
        # as in columns, the last header of the name counts
        producer.send("orders", value(ORDER), headers=[(value.header()[0], b"no GUID"), value.header()])
        producer.send("orders", None, headers=[value.header()])
    deserializer = serde.Confluent(registry=url)
    config = {"auto.offset.reset": "earliest"}
    with fl.Consumer(broker, config, key_deserializer=deserializer, value_deserializer=deserializer) as consumer:
        consumer.assign(("orders", 0))
        read = [(record.key, record.value) for record in consumer.poll(timeout_ms=10_000)]
    assert read == [("a", ORDER), (None, ORDER), (None, ORDER), (None, None)]
    known = {name: serde.Confluent(registry=url, reader_schema=schema) for name, schema in (("key", '"string"'), ("value", AVRO))}
    scan = fl.scan(broker, "orders", **known)
    assert [(record.key, record.value) for record in scan.records()] == read


def test_values_of_all_versions_of_a_protobuf_subject_are_read_as_one_message(url):
    old = 'syntax = "proto3"; package p; message M { int32 a = 1; }'
    new = 'syntax = "proto3"; package p; message New {} message M { int32 a = 1; string b = 2; }'
    other = 'syntax = "proto3"; package p; message Other {}'
    values = [serde.Confluent(registry=url, schema=text, kind="PROTOBUF", topic="t", message="p.M")({"a": n}) for n, text in enumerate((old, new))]
    values.append(serde.Confluent(registry=url, schema=other, kind="PROTOBUF", topic="other")({}))
    values.append(serde.Confluent(registry=url, schema=AVRO, topic="orders")(ORDER))
    as_new = serde.Confluent(registry=url, reader_schema=serde.Protobuf("p.M", new))
    for read, expected in ((as_new, {"b": ""}), (as_new.pruned(["a"]), {})):
        column, reasons = read.decode(pa.array(values))
        assert column.to_pylist() == [{"a": 0} | expected, {"a": 1} | expected, None, None]
        assert "no Protobuf message p.M" in reasons[2]
        assert "is of type AVRO, and values are read as PROTOBUF" in reasons[3]
    with pytest.raises(InvalidArgumentError, match="needs a registry"):
        serde.Confluent({}, serde.Protobuf("p.M", new))


def test_values_of_all_versions_of_a_json_subject_are_read_as_one_type_and_follow_their_own_schema(url):
    old = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}}
    new = {"type": "object", "properties": {"a": {"type": "integer"}, "by": {"$ref": "by.json"}}}
    by = {"type": "object", "properties": {"name": {"type": "string"}}}
    with serde.Registry(url) as registry:
        registry.register("by", json.dumps(by), kind="JSON")
        ids = [registry.register("t", json.dumps(old), kind="JSON")]
        registry.set_config("t", compatibility="NONE")
        ids.append(registry.register("t", json.dumps(new), kind="JSON", references=[serde.Reference("by.json", "by", 1)]))
    values = [b"\0" + schema_id.to_bytes(4, "big") + b'{"a":-1,"by":{"name":"eve"}}' for schema_id in ids]
    read = serde.Confluent(registry=url, reader_schema=serde.JsonSchema(new, references={"by.json": by}))
    column, reasons = read.decode(pa.array(values))
    assert column.to_pylist() == [None, {"a": -1, "by": {"name": "eve"}}]
    assert "less than the minimum of 0" in reasons[0]
    with pytest.raises(InvalidArgumentError, match="no type of its own"):
        serde.Confluent(registry=url, reader_schema=serde.JsonSchema({}))


def test_through_clients_of_a_broker(broker, url):
    broker.create_topic("orders")
    orders = serde.Confluent(registry=url, schema=AVRO, topic="orders")
    with fl.Producer(broker, value_serializer=orders) as producer:
        producer.send("orders", ORDER)
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}, value_deserializer=serde.Confluent(registry=url)) as consumer:
        consumer.assign(("orders", 0))
        assert next(consumer).value == ORDER
    assert serde.deserialize(broker.scan("orders"), value=serde.Confluent(registry=url))["value"].to_pylist() == [ORDER]


def test_an_outage_is_no_bad_data_and_an_unknown_id_is(broker):
    broker.create_topic("orders")
    with broker.schema_registry() as registry:
        url = registry.url
        with fl.Producer(broker, value_serializer=serde.Confluent(registry=url, schema=AVRO, topic="orders")) as producer:
            producer.send("orders", ORDER)
        with fl.Producer(broker) as producer:
            producer.send("orders", b"\0\0\0\0\x09rest")
        with pytest.raises(RecordDeserializationError, match="schema id 9 is unknown"):
            serde.deserialize(broker.scan("orders"), value=serde.Confluent(registry=url))
    down = serde.Confluent(registry=serde.Registry(url, retries=0))
    for policy in ("raise", "null", "collect"):
        with pytest.raises(SchemaRegistryUnavailableError, match=rf"does not answer GET /schemas/ids/1: {url}: ConnectionRefusedError") as error:
            serde.deserialize(broker.scan("orders"), value=down, on_error=policy)
    assert error.value.retriable


def test_the_next_address_is_asked_and_errors_of_the_server_are_tried_again(url):
    dead = f"http://127.0.0.1:{free_port()}"
    assert serde.Registry([dead, url], retries=0).subjects() == []
    assert serde.Registry(f"{dead}, {url}", retries=0).subjects() == []
    with answering((500, b'{"error_code": 50001, "message": "no store"}'), (200, b'["a"]')) as (flaky, requests):
        assert serde.Registry(flaky).subjects() == ["a"]
        assert len(requests) == 2
    with answering((500, b'{"error_code": 50001, "message": "no store"}')) as (broken, requests):
        with pytest.raises(SchemaRegistryUnavailableError, match=r"500 no store \(error code 50001\)"):
            serde.Registry(broken, retries=1).subjects()
        assert len(requests) == 2
    with answering((200, b"<html>")) as (strange, _), pytest.raises(SchemaRegistryError, match="is no schema registry"):
        serde.Registry(strange).subjects()
    with answering((403, b"no")) as (refusing, requests):
        with pytest.raises(SchemaRegistryError, match="403 no"):
            serde.Registry(refusing).subjects()
        assert len(requests) == 1


def test_connections_are_kept_and_a_registry_that_was_restarted_is_found(broker):
    first = broker.schema_registry()
    registry = serde.Registry(first.url)
    assert registry.subjects() == []
    address = first.url.removeprefix("http://")
    first.close()
    with broker.schema_registry(address):
        assert registry.register("a", record("x")) == 1
        assert registry.delete("a") == [1]
    registry.close()


def test_users_tokens_and_tls(broker, tmp_path):
    with broker.schema_registry(users={"app": "se:cret"}) as registry:
        for right in (serde.Registry(registry.url, auth=("app", "se:cret")), serde.Registry(registry.url.replace("//", "//app:se%3Acret@"))):
            assert right.subjects() == []
        wrong = serde.Registry(registry.url.replace("//", "//app:wrong@"))
        with pytest.raises(SchemaRegistryError, match="401") as error:
            wrong.subjects()
        assert "wrong" not in f"{error.value} {wrong!r}"
    with answering((200, b"[]")) as (url, requests):
        tokens = iter(["one", "two"])
        with serde.Registry(url, token=lambda: next(tokens)) as client:
            assert client.subjects() == client.subjects() == []
        assert [headers["Authorization"] for _, headers in requests] == ["Bearer one", "Bearer two"]
    authority = Authority(tmp_path)
    both, _, _ = authority.issue("server", ["127.0.0.1"])
    client_both, _, _ = authority.issue("client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    with broker.schema_registry(tls=context) as registry:
        assert registry.url.startswith("https://")
        assert serde.Registry(registry.url, ca=authority.file, certificate=client_both).subjects() == []
        with pytest.raises(SchemaRegistryUnavailableError, match="certificate verify failed"):
            serde.Registry(registry.url, retries=0).subjects()
        with pytest.raises(SchemaRegistryUnavailableError, match=r"(?i)certificate required|SSL|reset"):
            serde.Registry(registry.url, ca=authority.file, retries=0).subjects()


def test_a_silent_registry_is_an_outage_in_time(url):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(SchemaRegistryUnavailableError, match="no response in time"):
            serde.Registry(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2, retries=0).subjects()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: serde.Registry("127.0.0.1:80"), "http://HOST:PORT"),
        (lambda: serde.Registry([]), "at least one"),
        (lambda: serde.Registry("http://h:99999"), "Port"),
        (lambda: serde.Registry("http://h", auth=("a", "b"), token="t"), "not both"),
        (lambda: serde.Confluent({}, registry="http://h"), "not both"),
        (lambda: serde.Confluent(), "mapping or a callable"),
        (lambda: serde.Confluent(registry="http://h", strategy="x"), "strategy"),
        (lambda: serde.Confluent(registry="http://h", schema='"string"')("x"), "which subject"),
        (lambda: serde.Confluent(registry="http://h", schema='"string"', strategy="record")("x"), "has none"),
        (lambda: serde.Confluent({}).header(), "from a registry"),
    ],
)
def test_wrong_arguments_are_refused_in_words(call, part):
    with pytest.raises(InvalidArgumentError, match=part):
        call()
