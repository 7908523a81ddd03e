"""Reading a topic of any place at once: `fletchlog.scan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog import _place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from typing import Any

    from fletchlog._place import Source
    from fletchlog.serde._deserialize import OnError
    from fletchlog.serde.outcome import Deserializer
    from fletchlog.types import Column, IsolationLevel, Scan, ScanOrder, TimestampUnit


def scan(
    source: Source,
    topic: str,
    partition: int | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    *,
    batch_rows: int = 131072,
    include_headers: bool = False,
    isolation_level: IsolationLevel = "read_uncommitted",
    order: ScanOrder = "offset",
    columns: Iterable[Column] | None = None,
    start_time: datetime | int | None = None,
    end_time: datetime | int | None = None,
    tail: int | None = None,
    timestamp_unit: TimestampUnit = "us",
    key: Deserializer | None = None,
    value: Deserializer | None = None,
    on_error: OnError = "raise",
    unnest: bool = False,
    config: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Scan:
    """The records of a topic, wherever it is, as a stream of Arrow batches: for pandas, polars, DuckDB, pyarrow, without a consumer.

        fl.scan("data/", "orders").to_pandas()
        fl.scan("kafka://h1:9092", "orders", start_time=yesterday).to_polars()
        fl.scan("data/", "orders", value=fl.serde.Avro(schema), unnest=True).to_pandas()
        duckdb.sql("select key, count(*) from s group by key")  # s = fl.scan(...)

    Nothing is written, committed or locked: a directory may be the one of a running broker.

    Args:
        source: A directory, `"s3://BUCKET/PREFIX"` or another object store, `"kafka://HOST:PORT,..."`, an open `Broker`, a `Cluster`.
        topic: Name of the topic.
        partition: See `Broker.scan`, as for all that follows.
        start_offset: First offset.
        end_offset: End, exclusive.
        batch_rows: Most rows of a batch.
        include_headers: Adds the column `headers`.
        isolation_level: `read_committed` leaves out aborted and open transactions.
        order: `offset`, or `timestamp`: partitions merged by time.
        columns: Only these columns.
        start_time: Only records of this time or later.
        end_time: Only records before this time.
        tail: Only this many of the last records of each partition.
        timestamp_unit: `us`, or `ms`, which holds every timestamp of Kafka.
        key: Deserializer of the keys, such as `serde.String()`: the column has its Arrow type.
        value: Deserializer of the values, such as `serde.Avro(SCHEMA)`: a struct.
        on_error: For keys and values that cannot be decoded: `raise`, `null`, or `collect`: null, and columns `key_error`, `value_error`.
        unnest: Each field of a struct is a column, `value.FIELD`.
        config: Properties of a client, if the source is the address of a cluster: `security.protocol`, `ssl.*`, `sasl.*`, ..
        storage_options: Keyword arguments of pyarrow's file system, if the source is on an object store.

    Raises:
        TypeError: `topic` is no name; `fl.scan_topic` takes several.
        fletchlog.errors.DirectoryError: There is no such directory, bucket or prefix.
        fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic or partition.
        fletchlog.errors.RecordDeserializationError: While it is read, under `raise`: a key or value cannot be decoded.
        fletchlog.errors.InvalidArgumentError: As for `Broker.scan`; `config` or `storage_options` for a source that takes none.
    """
    if not isinstance(topic, str):
        raise TypeError(f"scan takes the name of one topic, got {topic!r:.60}; scan_topic and scans.dataset take several")
    # What is opened here is not closed: the scan reads it later, and it goes with the scan.
    place = _place.opened(source, config=config, storage_options=storage_options)
    return place.scan(
        topic,
        partition,
        start_offset,
        end_offset,
        batch_rows=batch_rows,
        include_headers=include_headers,
        isolation_level=isolation_level,
        order=order,
        columns=columns,
        start_time=start_time,
        end_time=end_time,
        tail=tail,
        timestamp_unit=timestamp_unit,
        key=key,
        value=value,
        on_error=on_error,
        unnest=unnest,
    )
