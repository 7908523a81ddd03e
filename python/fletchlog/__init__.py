"""Kafka's log and Kafka's exact ordering rules, embedded; results are Arrow record batches.

    >>> import fletchlog as fl
    >>> with fl.Broker.in_memory() as broker:
    ...     broker.create_topic("orders", partitions=3)
    ...     with fl.Producer(broker) as producer:
    ...         _ = producer.send("orders", value=b"v", key=b"k")
    ...     broker.scan("orders").to_pyarrow().num_rows
    1

Importing this package starts no thread, takes no lock and imports neither pyarrow nor pandas, polars or pyspark. What is written in
Python is imported when it is asked for first.
"""

from __future__ import annotations

from fletchlog._core import (
    Broker,
    Cluster,
    Consumer,
    Faults,
    LegacyConsumer,
    LegacyStream,
    Listener,
    Producer,
    RecordFuture,
    Records,
    Scan,
    Table,
    Transaction,
    __version__,
    config_table,
    inspect_segment,
    segment_records,
    verify,
)

# not from `typing`, which takes longer to import than all of this; type checkers know the name
TYPE_CHECKING = False
if TYPE_CHECKING:
    from fletchlog import assign, audit, errors, explain
    from fletchlog.configs import BrokerConfig, ConsumerConfig, ProducerConfig, TopicConfig
    from fletchlog.errors import KafkaError
    from fletchlog.explain import load_trace, replay, save_trace
    from fletchlog.types import (
        CleanedPartition,
        ConfigEntry,
        ConfigKey,
        ConsumerGroupMetadata,
        Cut,
        GroupDescription,
        GroupListing,
        GroupMember,
        Metrics,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionDescription,
        PartitionLag,
        PartitionReport,
        Problem,
        ProducerState,
        Record,
        RecordMetadata,
        Run,
        SegmentInspection,
        SegmentReport,
        TopicDescription,
        TopicPartition,
        TransactionDescription,
    )

__all__ = [
    "Broker",
    "BrokerConfig",
    "CleanedPartition",
    "Cluster",
    "ConfigEntry",
    "ConfigKey",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "Cut",
    "Faults",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "KafkaError",
    "LegacyConsumer",
    "LegacyStream",
    "Listener",
    "Metrics",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "PartitionLag",
    "PartitionReport",
    "Problem",
    "Producer",
    "ProducerConfig",
    "ProducerState",
    "Record",
    "RecordFuture",
    "RecordMetadata",
    "Records",
    "Run",
    "Scan",
    "SegmentInspection",
    "SegmentReport",
    "Table",
    "TopicConfig",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "__version__",
    "assign",
    "audit",
    "config_table",
    "errors",
    "explain",
    "inspect_segment",
    "load_trace",
    "replay",
    "save_trace",
    "segment_records",
    "verify",
]

# module -> what of it is found here
_LAZY = {
    "assign": {"assign"},
    "audit": {"audit"},
    "configs": {"BrokerConfig", "ConsumerConfig", "ProducerConfig", "TopicConfig", "configs"},
    "errors": {"KafkaError", "errors"},
    "explain": {"explain", "load_trace", "replay", "save_trace"},
    "interop": {"interop"},
    "types": {
        "types",
        "CleanedPartition",
        "ConfigEntry",
        "ConfigKey",
        "ConsumerGroupMetadata",
        "Cut",
        "GroupDescription",
        "GroupListing",
        "GroupMember",
        "Metrics",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "PartitionDescription",
        "PartitionLag",
        "PartitionReport",
        "Problem",
        "ProducerState",
        "Record",
        "RecordMetadata",
        "Run",
        "SegmentInspection",
        "SegmentReport",
        "TopicDescription",
        "TopicPartition",
        "TransactionDescription",
    },
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# a type checker that saw it would believe in every name
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports what is asked for."""
        from importlib import import_module

        for home, names in _LAZY.items():
            if name in names:
                module = import_module(f"fletchlog.{home}")
                value = module if name == home else getattr(module, name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
