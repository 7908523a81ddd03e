r"""From the bytes of keys and values to typed Arrow columns and back, a whole column at a time.

    >>> import fletchlog as fl
    >>> import pyarrow as pa
    >>> from fletchlog import serde
    >>> with fl.Broker.in_memory() as broker:
    ...     broker.create_topic("orders")
    ...     with fl.Producer(broker) as producer:
    ...         _ = producer.send("orders", key=b"k", value=b'{"amount": 3}')
    ...     value = serde.Json(pa.schema({"amount": pa.int64()}))
    ...     table = serde.deserialize(broker.scan("orders"), key=serde.String(), value=value)
    >>> table["key"].to_pylist(), table["value"].to_pylist()
    (['k'], [{'amount': 3}])

`deserialize` takes what `poll` and `scan` return, and any other Arrow data with the columns `key` and `value`: of pyarrow, pandas, polars, DuckDB or what else
has `__arrow_c_stream__`. Deserializers:

| deserializer | bytes | Arrow type |
|---|---|---|
| `String()` | UTF-8 | string |
| `Short()`, `Integer()`, `Long()` | 2, 4, 8 bytes, big-endian | int16, int32, int64 |
| `Float()`, `Double()` | 4, 8 bytes, IEEE 754, big-endian | float, double |
| `Boolean()` | a byte, 0 or 1 | bool |
| `List(Long())` | Kafka's lists of what the other reads | list |
| `Json(schema)`, `Json()` | one JSON value, type given or inferred | as given, or as found |
| `Avro(schema, reader_schema)` | Avro's binary encoding of one value | from the (reader) schema |
| `JsonSchema(schema)` | one JSON value that follows a JSON Schema | from the schema, or as `Json` |
| `Protobuf(message)`, `Protobuf("shop.Order", schema)` | one Protobuf message | from the message's fields |
| `Confluent(schemas, reader_schema)`, `Confluent(registry=URL)` | magic byte, schema id, then what is given or registered | the same |

Nulls stay null. For a value that cannot be decoded, `on_error` decides: "raise" (default) an exception that names topic, partition and
offset, "null" a null, "collect" a null and what was wrong with it in a column of its own.

In Spark the same call goes into `mapInArrow`; give the type, so that every batch has the same one:

```python
orders = serde.Json(pa.schema({"amount": pa.int64()}))

def decode(batches):
    for batch in batches:
        yield serde.deserialize(batch, value=orders).select(["offset", "value"])

df.mapInArrow(decode, "offset bigint, value struct<amount: bigint>")
```

`serialize` is the way back, with the same objects: a table with typed columns `key` and `value` becomes one that `send_arrow` takes. Each is also a
function from one value to its bytes, for `Producer(key_serializer=, value_serializer=)`:

    >>> serde.Long()(1), serde.Json()({"amount": 3})
    (b'\x00\x00\x00\x00\x00\x00\x00\x01', b'{"amount":3}')

and the way back, for `Consumer(key_deserializer=, value_deserializer=)`, where the objects themselves are given:

    >>> with fl.Broker.in_memory() as broker:
    ...     broker.create_topic("orders")
    ...     with fl.Producer(broker, value_serializer=serde.Json()) as producer:
    ...         _ = producer.send("orders", {"amount": 3})
    ...     earliest = {"auto.offset.reset": "earliest"}
    ...     with fl.Consumer(broker, earliest, value_deserializer=serde.Json()) as consumer:
    ...         consumer.assign(("orders", 0))
    ...         next(consumer).value
    {'amount': 3}

All of them can be pickled and used from several threads. Needs pyarrow, `Protobuf` with a class also protobuf: the extra `serde`.
"""

from __future__ import annotations

from fletchlog.registry.client import AsyncRegistry, Reference, RegisteredSchema, Registry
from fletchlog.serde._deserialize import deserialize
from fletchlog.serde._serialize import serialize
from fletchlog.serde.avro import Avro
from fletchlog.serde.confluent import Confluent
from fletchlog.serde.json import Json
from fletchlog.serde.json_schema import JsonSchema
from fletchlog.serde.lists import List
from fletchlog.serde.outcome import Deserializer, Serializer
from fletchlog.serde.primitive import Boolean, Double, Float, Integer, Long, Short, String
from fletchlog.serde.protobuf import Protobuf

__all__ = [
    "AsyncRegistry",
    "Avro",
    "Boolean",
    "Confluent",
    "Deserializer",
    "Double",
    "Float",
    "Integer",
    "Json",
    "JsonSchema",
    "List",
    "Long",
    "Protobuf",
    "Reference",
    "RegisteredSchema",
    "Registry",
    "Serializer",
    "Short",
    "String",
    "deserialize",
    "serialize",
]
