"""Topics into tables, each record once: `fletchlog.land`.

    >>> import fletchlog as fl
    >>> import tempfile, pyarrow.parquet
    >>> with fl.Broker.in_memory() as broker, tempfile.TemporaryDirectory() as folder:
    ...     broker.create_topic("orders")
    ...     with fl.Producer(broker) as producer:
    ...         _ = producer.send("orders", value=b"v", key=b"k")
    ...     landed = fl.land(broker, "orders", f"{folder}/orders")
    ...     again = fl.land(broker, "orders", f"{folder}/orders")
    ...     landed.rows, again.rows, pyarrow.parquet.read_table(f"{folder}/orders").num_rows
    (1, 0, 1)

The offsets that a table has are part of each of its commits, so a landing that was killed, wherever it was, neither loses nor repeats a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fletchlog._place import at, refuse_within
from fletchlog.errors import InvalidArgumentError
from fletchlog.landing.columns import check_partition_by
from fletchlog.landing.landing import Decoding, Landed, Landing, Limits
from fletchlog.landing.tables import Catalog, Format, table_at
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from typing import Protocol

    from fletchlog._place import Source
    from fletchlog.landing.positions import Positions
    from fletchlog.serde import Deserializer
    from fletchlog.types import IsolationLevel

    class Stop(Protocol):
        """A `threading.Event`, or what has these two of it."""

        def is_set(self) -> bool: ...
        def wait(self, timeout: float | None = None) -> bool: ...


__all__ = ["Landed", "land"]

_MIB = 1 << 20


class _Land:
    """`fletchlog.land`: the function, and `fletchlog.land.offsets`."""

    def __call__(
        self,
        source: Source,
        topics: str | Iterable[str],
        table: str | os.PathLike[str],
        *,
        format: Format | None = None,  # noqa: A002 - what everybody calls it
        catalog: Catalog = None,
        follow: bool = False,
        interval: float = 60.0,
        stop: Stop | None = None,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
        flatten: bool = False,
        on_error: Literal["raise", "null", "collect"] = "raise",
        isolation_level: IsolationLevel = "read_committed",
        partition_by: Literal["day", "hour"] | None = None,
        batch_bytes: int = 128 * _MIB,
        file_bytes: int = 128 * _MIB,
        compact: bool = False,
        append: bool = False,
        start_offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None,
        on_lost: Literal["raise", "skip"] = "raise",
        config: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        table_options: Mapping[str, Any] | None = None,
        on_progress: Callable[[str, int], object] | None = None,
    ) -> Landed:
        """Brings the records of topics into a table of Parquet files, a Delta or an Iceberg table: each once, up to the ends as of now, or on and on.

        A second call brings what is new. The offsets that the table has are in its own commits: a call that was killed anywhere is continued by the next
        one, without a row lost or repeated. Columns: `topic` (string), `partition` (int32), `offset` (int64), `timestamp` (timestamp[us, UTC], null if the
        record has none), `timestampType` (int32: 0 CreateTime, 1 LogAppendTime), `key` and `value` (binary, or what their deserializers
        make), `headers` (list<struct<key: string, value: binary>>). Rows of a partition are committed in the order of their offsets.

        Memory: `batch_bytes` of rows as Arrow, and what a format needs to write them: together at most some four times `batch_bytes`.

        Args:
            source: A directory, `"s3://BUCKET/PREFIX"`, `"kafka://HOST:PORT,..."`, an open `Broker`, a `Cluster`.
            topics: One topic or several, into one table.
            table: A directory, which is made if there is none; for Parquet and Delta also the URI of an object store; for Iceberg `NAMESPACE.NAME` in the
                catalog.
            format: `parquet`, `delta` or `iceberg`. None: what is there, else Iceberg with `catalog`, Delta on an object store, Parquet in a directory.
            catalog: Of an Iceberg table: a name in pyiceberg's configuration, a dict of properties (`type`, `uri`, `warehouse`, ..), or an open `Catalog`.
            follow: Continue with what arrives, until `stop`.
            interval: Seconds between commits of a call that follows. Its first one comes with the first rows.
            stop: A `threading.Event`: once it is set, what was read is committed and the call returns.
            key: Deserializer of `fletchlog.serde` with a type that does not depend on the values; None leaves bytes.
            value: Likewise.
            flatten: Fields of a decoded value as columns of their names, of a decoded key behind `key_`, instead of a struct. A field whose name is taken
                gets `value_` in front.
            on_error: As for `serde.deserialize`: "raise"; "null"; "collect": null, and columns `key_error`, `value_error`.
            isolation_level: `read_uncommitted` also takes records of aborted and open transactions.
            partition_by: `day` or `hour`: partitions by columns `day` (date) and `hour` (int), of the timestamp in UTC. None: as the table is, else none.
            batch_bytes: Rows are committed once they take this much memory, whatever the interval.
            file_bytes: With `compact`, small files become ones of up to this size.
            compact: Rewrite small files at the end, and after every 20 commits when following. Not for Iceberg.
            append: Land a topic from its beginning into a table that has rows and knows nothing of this topic.
            start_offsets: For such topics, or a new table: the offset to begin at, by partition.
            on_lost: For records that were deleted from the source before they were landed: "raise", or "skip" them, logged as a warning.
            config: Properties of a client, if the source is the address of a cluster.
            storage_options: Keyword arguments of pyarrow's file system, if the source is on an object store.
            table_options: Of a table on an object store: deltalake's `storage_options`, by the same names for Parquet.
            on_progress: Called as `on_progress(topic, rows)` with rows that were read.

        Raises:
            fletchlog.errors.TableConflictError: Another lander is at work on the table, or has committed the same topic meanwhile.
            fletchlog.errors.IllegalStateError: The table has another topic of this name (it was deleted and made again), or rows or topics and nothing of
                this one; or the source ends before the offsets that the table has.
            fletchlog.errors.OffsetOutOfRangeError: Records were deleted before they were landed.
            fletchlog.errors.SchemaError: A column has another type than in the table, or one that no table has.
            fletchlog.errors.RecordDeserializationError: A key or value cannot be decoded, under "raise".
            fletchlog.errors.InvalidTimestampError: A timestamp is beyond what microseconds in 64 bits hold.
            fletchlog.errors.UnknownTopicOrPartitionError: The source has no such topic.
            fletchlog.errors.InvalidArgumentError: No such table, format or option.
            fletchlog.errors.KafkaError: As the source raises it. In every case what was committed stays, and the next call continues.
            ImportError: A library is missing: the extras `arrow` and `tables`.
        """
        if not hasattr(topics, "__iter__"):
            raise InvalidArgumentError(f"topics is {topics!r:.40}; give the name of a topic, or a list of names")
        names = list(dict.fromkeys([topics] if isinstance(topics, str) else topics))
        starts = {(topic, partition): offset for (topic, partition), offset in (start_offsets or {}).items()}
        _check(names, starts, key=key, value=value, flatten=flatten, numbers={"interval": interval, "batch_bytes": batch_bytes, "file_bytes": file_bytes})
        check_partition_by(partition_by)
        if on_lost not in ("raise", "skip"):
            raise InvalidArgumentError(f"on_lost is {on_lost!r}; expected 'raise' or 'skip'")
        into = table_at(table, format, catalog, table_options)
        if into.format != "iceberg":
            refuse_within(table, source)
        if compact and into.format == "iceberg":
            into.compact(file_bytes)
        if stop is None:
            import threading

            stop = threading.Event()
        with at(source, config=config, storage_options=storage_options) as admin:
            return Landing(
                admin,
                names,
                into,
                Decoding(key, value, flatten, on_error),
                Limits(batch_bytes, file_bytes, interval, partition_by, compact),
                isolation_level=isolation_level,
                append=append,
                starts=starts,
                skip_lost=on_lost == "skip",
                stop=stop,
                on_progress=on_progress or (lambda *_: None),
            ).run(follow=follow)

    def offsets(
        self,
        table: str | os.PathLike[str],
        *,
        format: Format | None = None,  # noqa: A002
        catalog: Catalog = None,
        table_options: Mapping[str, Any] | None = None,
    ) -> dict[TopicPartition, int]:
        """Which offsets a table has: of each partition the offset to continue at. Committed records before it are rows of the table.

        Args:
            table: As for `land`.
            format: Likewise.
            catalog: Likewise.
            table_options: Likewise.

        Raises:
            fletchlog.errors.DirectoryError: There is no such table.
            fletchlog.errors.InvalidArgumentError: It was not landed.
        """
        found: Positions = table_at(table, format, catalog, table_options).peek()
        return {TopicPartition(topic, p): offset for topic, one in found.items() for p, offset in sorted(one.offsets.items())}


land = _Land()


def _check(names: list[str], starts: Mapping[tuple[str, int], int], *, key: Any, value: Any, flatten: bool, numbers: Mapping[str, float]) -> None:
    """Refuses what can never be right, before anything is opened."""
    if not names:
        raise InvalidArgumentError("no topic to land: give the name of one or more")
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"topics are names; got {name!r:.40}")
    for (topic, partition), offset in starts.items():
        if topic not in names:
            raise InvalidArgumentError(f"start_offsets has topic {topic!r}, which is not among the topics to land: {', '.join(names)}")
        if not isinstance(offset, int) or offset < 0:
            raise InvalidArgumentError(f"start_offsets[{topic!r}, {partition}] is {offset!r:.40}; an offset is an int from 0")
    for name, one in (("key", key), ("value", value)):
        if one is not None and getattr(one, "type", None) is None:
            such = "such as Json(SCHEMA) or Confluent(registry=URL, reader_schema=SCHEMA)"
            raise InvalidArgumentError(f"{name}= needs a deserializer with a type that does not depend on the values, {such}; got {one!r:.60}")
    if flatten and key is None and value is None:
        raise InvalidArgumentError("flatten=True makes columns of decoded values: give a deserializer as key=, value= or both")
    for name, number in numbers.items():
        if not isinstance(number, int | float) or not number > 0:
            raise InvalidArgumentError(f"{name} is {number!r:.40}; expected a number above 0")
