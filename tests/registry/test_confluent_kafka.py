"""confluent-kafka's serializers and client against the registry, over a real broker."""

import json

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": ["null", "string"], "default": None}]})
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}, "by": {"type": "string"}}, "required": ["id"]})


@pytest.fixture
def client(kafka):
    with SchemaRegistryClient({"url": kafka.registry.url}) as made:
        yield made


def message_class(package="shop", fields=(("id", 3), ("by", 9))):
    """A class of messages, and the file that it is in."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(fields, 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


def sent_and_read(kafka, serialize, deserialize):
    """A value through a topic."""
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, serialize(topic))
    producer.flush(10)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    value = consumer.poll(20).value()
    consumer.close()
    return deserialize(value, SerializationContext(topic, MessageField.VALUE))


def test_avro_json_and_protobuf_go_through_a_topic(kafka, client):
    order = {"id": 7, "by": "eve"}
    order_class = message_class()
    context = lambda topic: SerializationContext(topic, MessageField.VALUE)  # noqa: E731
    avro, json_ = AvroSerializer(client, AVRO), JSONSerializer(JSON, client)
    protobuf = ProtobufSerializer(order_class, client, {"use.deprecated.format": False})
    assert sent_and_read(kafka, lambda topic: avro(order, context(topic)), AvroDeserializer(client)) == order
    assert sent_and_read(kafka, lambda topic: json_(order, context(topic)), JSONDeserializer(None, schema_registry_client=client)) == order
    read = ProtobufDeserializer(order_class, {"use.deprecated.format": False}, client)
    assert sent_and_read(kafka, lambda topic: protobuf(order_class(**order), context(topic)), read) == order_class(**order)
    assert client.get_subjects() == ["topic-1-value", "topic-2-value", "topic-3-value"]
    assert "message Order {" in client.get_latest_version("topic-3-value").schema.schema_str


def test_the_client_does_what_it_can_do(client):
    first, second = Schema(AVRO, "AVRO"), Schema(AVRO.replace('"long"', '"int"'), "AVRO")
    assert client.register_schema("orders", first) == 1
    registered = client.register_schema_full_response("orders", first)
    assert (registered.schema_id, registered.guid) == (1, client.get_latest_version("orders").guid)
    assert client.get_schema(1).schema_str == client.get_schema_by_guid(registered.guid).schema_str
    assert client.lookup_schema("orders", first).version == 1
    assert client.test_compatibility("orders", second) is False
    assert client.test_compatibility("orders", first) is True
    with pytest.raises(SchemaRegistryError) as error:
        client.register_schema("orders", second)
    assert (error.value.http_status_code, error.value.error_code) == (409, 409)
    client.set_compatibility("orders", "NONE")
    assert client.get_compatibility("orders") == "NONE"
    assert client.register_schema("orders", second) == 2
    assert client.get_versions("orders") == [1, 2]
    assert client.get_version("orders", 1).schema_id == 1
    assert [(one.subject, one.version) for one in client.get_schema_versions(2)] == [("orders", 2)]
    referring = Schema('{"type":"record","name":"R","fields":[{"name":"o","type":"Order"}]}', "AVRO", [SchemaReference("Order", "orders", 1)])
    assert client.register_schema("referring", referring) == 3
    assert client.get_referenced_by("orders", 1) == [3]
    assert client.delete_version("orders", 2) == 2
    assert client.delete_subject("referring") == [1]
    assert client.get_subjects() == ["orders"]
    assert client.get_contexts() == ["."]
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("orders", "READONLY") == "READONLY"
