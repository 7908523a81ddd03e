"""Kafka's log and Kafka's exact ordering rules, embedded; results are Arrow record batches.

    >>> import fletchlog as fl
    >>> with fl.Broker.in_memory() as broker:
    ...     broker.create_topic("orders", partitions=3)
    ...     with fl.Producer(broker) as producer:
    ...         _ = producer.send("orders", value=b"v", key=b"k")
    ...     fl.scan(broker, "orders").to_pyarrow().num_rows
    1

What a program needs every day is here. The rest is in modules, which are attributes of this one (`fl.audit`, `fl.explain`, ..):

| module | what |
|---|---|
| `errors` | every exception |
| `types` | the values and objects that calls take and return |
| `admin` | descriptions of topics, groups, transactions, properties |
| `configs` | properties as typed dicts |
| `aio` | what the clients for asyncio share |
| `scans` | topics for polars, DuckDB and other engines that push a query down |
| `serde` | serializers and deserializers, also of whole columns |
| `assign` | Kafka's assignors as functions |
| `explain` | why a poll returned these records: traces, replays, pages |
| `audit` | what was lost, repeated or late in a log |
| `files` | check and read segments without a broker |
| `landing` | topics into tables: what `fl.land` returns |
| `transfer` | copy topics, export directories |
| `spark`, `pipeline` | PySpark: its format, functions over its DataFrames |
| `testing` | faults by rules and from a seed |
| `legacy` | the 0.8 high-level consumer |

Importing this package starts no thread, takes no lock and imports neither pyarrow nor pandas, polars or pyspark. What is written in
Python is imported when it is asked for first.
"""

from __future__ import annotations

from fletchlog._core import Broker, Cluster, Consumer, Producer, Records, ShareConsumer, __version__

# not from `typing`, which takes longer to import than all of this; type checkers know the name
TYPE_CHECKING = False
if TYPE_CHECKING:
    from fletchlog import admin as admin
    from fletchlog import aio as aio
    from fletchlog import assign as assign
    from fletchlog import audit as audit
    from fletchlog import configs as configs
    from fletchlog import errors, serde
    from fletchlog import explain as explain
    from fletchlog import files as files
    from fletchlog import landing as landing
    from fletchlog import legacy as legacy
    from fletchlog import pipeline as pipeline
    from fletchlog import scans as scans
    from fletchlog import spark as spark
    from fletchlog import testing as testing
    from fletchlog import transfer as transfer
    from fletchlog import types as types
    from fletchlog._scan import scan
    from fletchlog.aio import AsyncCluster, AsyncConsumer, AsyncProducer, AsyncShareConsumer
    from fletchlog.errors import KafkaError
    from fletchlog.landing import land
    from fletchlog.scans import scan_topic
    from fletchlog.types import Record, TopicPartition

__all__ = [
    "AsyncCluster",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "Broker",
    "Cluster",
    "Consumer",
    "KafkaError",
    "Producer",
    "Record",
    "Records",
    "ShareConsumer",
    "TopicPartition",
    "__version__",
    "errors",
    "land",
    "scan",
    "scan_topic",
    "serde",
]

# the modules of what is imported when it is asked for
_HOMES = {
    "AsyncCluster": "aio",
    "AsyncConsumer": "aio",
    "AsyncProducer": "aio",
    "AsyncShareConsumer": "aio",
    "KafkaError": "errors",
    "Record": "types",
    "TopicPartition": "types",
    "land": "landing",
    "scan": "_scan",
    "scan_topic": "scans",
}
_MODULES = frozenset(
    (
        "admin",
        "aio",
        "assign",
        "audit",
        "configs",
        "errors",
        "explain",
        "files",
        "landing",
        "legacy",
        "pipeline",
        "scans",
        "serde",
        "spark",
        "testing",
        "transfer",
        "types",
    )
)


if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext

    from fletchlog.registry import SchemaRegistry


def _schema_registry(self: Broker, address: str = "127.0.0.1:0", *, tls: SSLContext | None = None, users: Mapping[str, str] | None = None) -> SchemaRegistry:  # noqa: D417 - `self` is the broker
    """Serves a schema registry with Confluent's REST API, kept in the topic `_schemas` of this broker in Confluent's format.

    Close it before the broker. Several registries over one broker have the same state.

        with broker.schema_registry() as registry:
            confluent_kafka.schema_registry.SchemaRegistryClient({"url": registry.url})

    Args:
        address: `HOST:PORT`, port 0: a free one. On any other interface than loopback, everybody who can reach it can change schemas.
        tls: With it HTTPS is served: a context of the server's side, with its certificate.
        users: Names and passwords. Without it nobody is asked for one; with it every request needs one of these (HTTP's basic authentication).

    Raises:
        fletchlog.errors.InvalidArgumentError: `address` is no HOST:PORT.
        fletchlog.errors.ListenerError: The port is taken, or the address is not this machine's.
        fletchlog.errors.KafkaError: The topic cannot be created or read.
        ImportError: The extras `registry` and `serde` are not installed.
    """
    from fletchlog.registry import SchemaRegistry

    return SchemaRegistry(self, address, tls=tls, users=users)


# the one verb of a broker that is written in Python
Broker.schema_registry = _schema_registry  # type: ignore[method-assign]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


# a type checker that saw it would take every name for one of this module
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports what is asked for."""
        from importlib import import_module

        if name in _MODULES:
            value: object = import_module(f"{__name__}.{name}")
        elif name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_elsewhere(name)}")
        globals()[name] = value
        return value

    def _elsewhere(name: str) -> str:
        """Which module has a name that is looked for in this one, for the error."""
        from importlib import import_module
        from importlib.util import find_spec

        # what Python itself asks every module for begins with an underscore; a module of this package it imports next
        is_asked = name.startswith("_") or find_spec(f"{__name__}.{name}") is not None
        homes = () if is_asked else ("errors", "types", "admin", "serde", "testing", "transfer", "files")
        home = next((home for home in homes if name in import_module(f"{__name__}.{home}").__all__), None)
        return f"; there is {__name__}.{home}.{name}" if home else ""
