"""Options and columns of the sink: those of Spark's kafka sink, and where to stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fletchlog import ledger
from fletchlog._place import STORE
from fletchlog.spark import typed
from fletchlog.spark.errors import OptionError
from fletchlog.spark.options import boolean, check_properties, duration_ms, log, nearest, place_of, target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

# name -> default and meaning; the page of the options is made from it
KNOWN = {
    "path": ("", "Directory of the log, where the driver can write it. This or `kafka.bootstrap.servers`."),
    "kafka.bootstrap.servers": ("", "A cluster, `h1:9092,h2:9092`. Other `kafka.*` options are properties of the clients, first of the producer."),
    "topic": ("", "Topic of every row. Goes before the column `topic`."),
    "partitions": (
        "",
        (
            "Makes the topic of the option `topic` with this many partitions, if it does not exist, and its directory. A topic that exists stays as it is; one "
            "with fewer partitions is an error."
        ),
    ),
    "topic.*": (
        "",
        (
            "Properties of the topic that is made, `topic.cleanup.policy` for example. Without `partitions` it has one partition. A topic that exists keeps "
            "its own."
        ),
    ),
    "stagingPath": ("the path with `.staging`", "Where tasks put rows for the driver, if there are many; every executor must see it."),
    "maxInlineBytes": ("`4194304`", "Bytes of a task that travel in the message that ends it; more goes to a file under `stagingPath`."),
    "stagingRetention": ("`1d`", "Staged rows that nothing was added to for so long are of a driver that is gone: the next write removes them."),
    "lockTimeout": ("`60s`", "How long a commit waits for another process that has the directory open. A cluster has no lock, so it does nothing there."),
    "transactionPerTask": (
        "`false`",
        "Into a cluster: each task writes in a transaction of its own. A batch is not atomic then, and must be cut into the same tasks when it is repeated.",
    ),
    "missingLedger": (
        "`fail`",
        (
            "A batch that is not the first one, no entry of its query or `txnAppId` in the ledger, and records in the topic: `fail`, `append` the batch, or "
            "`skip` it, because it is there. For one run."
        ),
    ),
    "txnAppId": ("", "With `txnVersion`: a write of this name and number is done once, in `foreachBatch` for example."),
    "txnVersion": ("", "Number of the write: greater than that of the write before."),
    **typed.known(reading=False),
}
# Spark's own, which it passes on.
_OF_SPARK = {"checkpointlocation", "queryname"}
# Bytes of a task that travel in its commit message; more goes to a file.
MAX_INLINE_BYTES = 4 << 20
_OF_TOPIC = "topic."
# Name -> types, in the order in which Spark's kafka sink looks at them.
COLUMNS = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("double", "timestamp"),
}
# What a transaction of the driver's own needs; a property given by the user replaces the first group only.
DEFAULTS = ledger.PRODUCER | {"batch.size": str(1 << 20), "linger.ms": "1000", "buffer.memory": str(128 << 20), "transaction.timeout.ms": "900000"}
REFUSED = {
    "kafka.key.serializer": "keys are bytes or text; set key.format, or cast the column",
    "kafka.value.serializer": "values are bytes or text; set value.format, or cast the column",
    "kafka.transactional.id": "the sink has its own, and one transaction for each batch",
    "kafka.enable.idempotence": "the sink always writes in transactions",
    "kafka.acks": "the sink always writes in transactions, with acks=all",
}


@dataclass(frozen=True)
class NewTopic:
    """What a topic is made with, if there is none."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class SinkOptions:
    """Checked options of a write."""

    path: str | None
    source: str
    topic: str | None
    new_topic: NewTopic | None
    staging_path: str | None
    staging_retention_ms: float
    checkpoint: str | None
    max_inline_bytes: int
    lock_timeout_ms: float
    task_transactions: bool
    typed: tuple[typed.Typed, ...]
    missing_ledger: str
    app: tuple[str, int] | None
    producer: Mapping[str, Any] = field(repr=False)  # may have passwords
    client: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Checks the options of `df.write` and `df.writeStream`.

        Raises:
            OptionError: What is wrong and what to write instead.
        """
        given = {name.lower(): value for name, value in options.items()}
        place, source = target(given)
        if place is not None and place.kind == STORE:
            raise OptionError(f"option path: object stores are read-only, {source} cannot be written; write into a directory or a cluster")
        path = None if place is None else place.name
        producer, client = _properties(given)
        if path is None and "locktimeout" in given:
            log.warning("option lockTimeout has no effect: a cluster has no lock")
        task_transactions = boolean(given, "transactionPerTask", default=False)
        if path is not None and task_transactions:
            raise OptionError("option transactionPerTask: a directory has one writer, the driver; this is for kafka.bootstrap.servers")
        # Beside the directory, not in it: Kafka does not start over a log.dir with a folder that is no partition.
        beside = None if path is None else path + ".staging"
        staging = _staging(given["stagingpath"]) if "stagingpath" in given else beside
        if path is not None and staging is not None and (staging == path or staging.startswith(path + "/")):
            raise OptionError(f"option stagingPath: {staging} is inside of the directory {path}; Kafka allows only partitions there")
        topic = given["topic"].strip() if "topic" in given else None
        return cls(
            path=path,
            source=source,
            topic=topic,
            new_topic=_new_topic(given, topic),
            staging_path=staging,
            staging_retention_ms=duration_ms(given, "stagingRetention", "1d"),
            checkpoint=given.get("checkpointlocation"),
            max_inline_bytes=_whole(given, "maxInlineBytes", MAX_INLINE_BYTES),
            lock_timeout_ms=duration_ms(given, "lockTimeout", "60s"),
            task_transactions=task_transactions,
            typed=typed.parse(given, reading=False),
            missing_ledger=_missing_ledger(given, task_transactions=task_transactions),
            app=_app(given),
            producer=producer,
            client=client,
        )

    def check_schema(self, schema: StructType) -> None:
        """Spark does not check the columns of a sink of Python. The texts are those of its kafka sink, which passes over columns that it does not know.

        Raises:
            OptionError: A column is missing, unknown or of another type.
        """
        found = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
        encoded = {one.column for one in self.typed}
        for name, kinds in COLUMNS.items():
            if name == "topic" and self.topic is not None:
                continue
            if name in found and found[name] not in kinds and name not in encoded:
                raise OptionError(f"{name} attribute unsupported type {found[name]}. {name} must be a(n) {' or '.join(kinds)}")
            if name == "topic" and name not in found:
                raise OptionError("topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.")
            if name == "value" and name not in found:
                raise OptionError("Required attribute 'value' not found")
        for name in found.keys() - COLUMNS.keys():
            raise OptionError(f"column {name}: a record has only {', '.join(COLUMNS)}")
        typed.Encoder(self.typed, self.topic).check(schema)


def _new_topic(given: Mapping[str, str], topic: str | None) -> NewTopic | None:
    import fletchlog as fl

    config = {name.removeprefix(_OF_TOPIC): value for name, value in given.items() if name.startswith(_OF_TOPIC)}
    if "partitions" not in given and not config:
        return None
    if topic is None:
        raise OptionError("options partitions and topic.* say how the topic of the option topic is made, which is missing")
    known = [key.name for key in fl.admin.config_table() if key.scope == "topic"]
    for name in config:
        if name not in known:
            raise OptionError(f"option {_OF_TOPIC}{name}: a topic has no property {name}{nearest(name, known)}")
    partitions = _whole(given, "partitions", 1)
    if partitions == 0:
        raise OptionError("option partitions: a topic has at least 1")
    return NewTopic(partitions, config)


def _staging(text: str) -> str:
    place = place_of("stagingPath", text)
    if place.kind == STORE:
        raise OptionError(f"option stagingPath: {place} is an object store; tasks stage rows in a directory, which the driver and every executor have to see")
    return place.name


def _missing_ledger(given: Mapping[str, str], *, task_transactions: bool) -> str:
    value = given.get("missingledger", "fail").strip().lower()
    if value not in {"fail", "append", "skip"}:
        raise OptionError(f"option missingLedger: expected fail, append or skip, got {value}")
    if value == "skip" and task_transactions:
        raise OptionError("option missingLedger: skip is for a batch that was written as a whole; some tasks of a batch may be missing with transactionPerTask")
    return value


def _app(given: Mapping[str, str]) -> tuple[str, int] | None:
    if ("txnappid" in given) != ("txnversion" in given):
        raise OptionError("options txnAppId and txnVersion go together: the application, and a number that grows with every write of it")
    if "txnappid" not in given:
        return None
    return given["txnappid"], _whole(given, "txnVersion", 0)


def _whole(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name.lower(), str(default)).strip()
    if not value.isdecimal() or int(value) >= 1 << 62:
        raise OptionError(f"option {name}: expected a whole number from 0, got {value}")
    return int(value)


def _properties(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of the producer; and those of the clients that ask a cluster beside it. Connections, TLS and SASL are in both."""
    import fletchlog as fl

    names = {scope: {key.name for key in fl.admin.config_table() if key.scope == scope} for scope in ("producer", "consumer")}
    producer, client = dict(DEFAULTS), {}
    known = {name.lower() for name in KNOWN}
    for name, value in given.items():
        if name in REFUSED:
            raise OptionError(f"option {name} is refused: {REFUSED[name]}")
        if name == "kafka.bootstrap.servers":
            continue
        if name.startswith("kafka."):
            name_of_kafka = name[6:]
            if "kafka.bootstrap.servers" not in given and name_of_kafka not in names["producer"]:
                log.warning("option %s is no property of the producer; it has no effect", name)
                continue
            if name_of_kafka not in names["consumer"] - names["producer"]:
                producer[name_of_kafka] = value
            if name_of_kafka not in names["producer"] - names["consumer"]:
                client[name_of_kafka] = value
        elif name not in known | _OF_SPARK and not name.startswith((_OF_TOPIC, *typed.OF_REGISTRY)):
            raise OptionError(f"unknown option {name} for writing with format fletchlog{nearest(name, KNOWN)}")
    check_properties("Producer", {name[6:]: value for name, value in given.items() if name.startswith("kafka.") and name != "kafka.bootstrap.servers"})
    return producer, client
