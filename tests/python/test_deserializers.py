"""`Consumer(key_deserializer=, value_deserializer=)`: what a record holds when it is handed out by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import serde

T0 = fl.TopicPartition("t", 0)
Place = tuple[fl.Broker, fl.Broker | str]


@pytest.fixture
def broker() -> Any:
    with fl.Broker.in_memory() as made:
        made.create_topic("t")
        yield made


def filled(broker: fl.Broker, *values: bytes | None, keys: tuple[bytes | None, ...] | None = None) -> None:
    with fl.Producer(broker) as producer:
        producer.send_many("t", values, keys)


def reader(peer: fl.Broker | str, **deserializers: Any) -> fl.Consumer:
    consumer = fl.Consumer(peer, {"auto.offset.reset": "earliest"}, **deserializers)
    consumer.assign([T0])
    return consumer


def polled(consumer: fl.Consumer) -> fl.Records:
    while not (records := consumer.poll(1000)):
        pass
    return records


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (serde.String(), "grün"),
        (serde.Long(), -3),
        (serde.Double(), 0.5),
        (serde.Json(), {"amount": 3, "mixed": [1, "a", None, {"b": []}]}),
        (serde.Json(), [1, "a"]),
        (serde.Json(pa.schema({"amount": pa.int64(), "tags": pa.map_(pa.string(), pa.int64())})), {"amount": 3, "tags": {"a": 1}}),
        (serde.Avro('{"type": "map", "values": "long"}'), {"a": 1}),
        (serde.Confluent({7: serde.Long()}, schema_id=7), 5),
    ],
    ids=["String", "Long", "Double", "Json", "Json-array", "Json-schema", "Avro", "Confluent"],
)
def test_objects_of_serde_are_twins_of_the_serializers(place: Place, serializer: Any, value: object) -> None:
    broker, peer = place
    with fl.Producer(broker, key_serializer=serializer, value_serializer=serializer) as producer:
        producer.send("t", value, value)
        producer.send("t", None, None)
    with reader(peer, key_deserializer=serializer, value_deserializer=serializer) as consumer:
        records = polled(consumer)
        assert [(record.key, record.value) for record in records] == [(value, value), (None, None)]
        # columns stay bytes
        assert records.to_pyarrow()["value"].to_pylist() == [serializer(value), None]


def test_a_function_is_called_with_bytes_and_never_with_none(broker: fl.Broker) -> None:
    filled(broker, b"1", None, b"3", keys=(b"a", b"b", None))
    seen: list[bytes] = []

    def number(data: bytes) -> int:
        seen.append(data)
        return int(data)

    with reader(broker, value_deserializer=number) as consumer:
        records = polled(consumer)
        assert [(record.key, record.value) for record in records] == [(b"a", 1), (b"b", None), (None, 3)]
        assert records[-1].value == 3
        assert [record.value for record in records[1:]] == [None, 3]
        assert [record.value for record in records.with_headers()] == [1, None, 3]
        consumer.seek(T0, 0)
        assert [next(consumer).value for _ in range(3)] == [1, None, 3]
    assert set(map(type, seen)) == {bytes}


@pytest.mark.parametrize("column", ["key", "value"])
def test_a_value_that_cannot_be_read_is_named_and_the_next_one_follows(place: Place, column: str) -> None:
    broker, peer = place
    filled(broker, b"{}", b"{", b"3", keys=(b"{}", b"{", b"3"))
    with reader(peer, **{f"{column}_deserializer": json.loads}) as consumer:
        records = polled(consumer)
        rows = iter(records)
        assert getattr(next(rows), column) == {}
        with pytest.raises(fl.errors.RecordDeserializationError, match=rf"the {column} of t-0 at offset 1 cannot be deserialized: JSONDecodeError") as caught:
            next(rows)
        error = caught.value
        assert (error.topic_partition, error.offset, error.column, error.data) == (T0, 1, column, b"{")
        assert isinstance(error.__cause__, json.JSONDecodeError)
        assert (next(rows).offset, next(rows, None)) == (2, None)
        with pytest.raises(fl.errors.RecordDeserializationError):
            records[1]


def test_an_iteration_over_a_consumer_goes_on_behind_it_or_from_it_after_a_seek(place: Place) -> None:
    broker, peer = place
    filled(broker, b"1", b"x", b"3")
    with reader(peer, value_deserializer=int) as consumer:
        assert next(consumer).value == 1
        with pytest.raises(fl.errors.RecordDeserializationError) as caught:
            next(consumer)
        assert consumer.position(T0) == 2
        assert next(consumer).value == 3
        consumer.seek(T0, caught.value.offset or 0)
        with pytest.raises(fl.errors.RecordDeserializationError, match="t-0 at offset 1"):
            next(consumer)


def test_an_interrupt_in_a_deserializer_does_not_use_up_the_record(broker: fl.Broker) -> None:
    filled(broker, b"1", b"2")
    interrupts = [KeyboardInterrupt(), None, None, KeyboardInterrupt(), None, None]

    def interrupted(data: bytes) -> int:
        if (interrupt := interrupts.pop(0)) is not None:
            raise interrupt
        return int(data)

    with reader(broker, value_deserializer=interrupted) as consumer:
        rows = iter(polled(consumer))
        with pytest.raises(KeyboardInterrupt):
            next(rows)
        assert repr(rows) == "<fletchlog.types.RecordIterator: 2 records left>"
        assert [record.value for record in rows] == [1, 2]
        consumer.seek(T0, 0)
        with pytest.raises(KeyboardInterrupt):
            next(consumer)
        assert [next(consumer).value, next(consumer).value] == [1, 2]


def test_a_deserializer_may_use_its_consumer(broker: fl.Broker) -> None:
    filled(broker, b"1", b"2")
    offsets: list[int] = []

    def asks(data: bytes) -> bytes:
        offsets.append(consumer.position(T0))
        return data

    with reader(broker, value_deserializer=asks) as consumer:
        assert [next(consumer).value, next(consumer).value] == [b"1", b"2"]
    assert offsets == [1, 2]


@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer"])
@pytest.mark.parametrize("wrong", ["utf-8", 5, serde.Json, json.JSONDecoder()], ids=["text", "number", "class", "decoder"])
def test_what_cannot_be_called_is_refused(broker: fl.Broker, name: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=rf"{name} is called as {name}\(bytes\) and returns the object"):
        fl.Consumer(broker, **{name: wrong})  # type: ignore[arg-type]


def test_any_object_with_a_type_and_decode_is_a_deserializer(broker: fl.Broker) -> None:
    class Length:
        type = pa.int64()

        def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, dict[int, str]]:
            return pa.array([len(cell.as_py()) for cell in column], pa.int64()), {}

    filled(broker, b"four")
    with reader(broker, value_deserializer=Length()) as consumer:
        assert next(consumer).value == 4


def test_they_run_in_the_thread_that_takes_the_record(broker: fl.Broker) -> None:
    filled(broker, b"1")
    made: list[Callable[[], object]] = []

    class Counter:
        def __call__(self, data: bytes) -> bytes:
            made.append(lambda: self)
            return data

    with reader(broker, value_deserializer=Counter()) as consumer:
        records = polled(consumer)
        assert made == []
        list(records)
        assert len(made) == 1
