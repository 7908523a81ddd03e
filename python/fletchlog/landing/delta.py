"""A Delta table, through `deltalake`.

The positions are application transactions of Delta's protocol, in the commit of the rows: one a partition of Kafka, `fletchlog/ID/TOPIC/PARTITION`, whose
version is the offset to continue at, and `fletchlog/ID/TOPIC`, whose version is the number of partitions. They are kept in checkpoints, where notes in
`commitInfo` are not; a commit fails if another one has written the same of them since the table was read; appends of others and OPTIMIZE do not conflict.
The names and ids of the topics are in the description of the table, for `offsets`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fletchlog.errors import StorageError, TableConflictError
from fletchlog.interop import require
from fletchlog.landing.columns import PARTITIONS, portable, with_partitions
from fletchlog.landing.positions import FORM, Position, Positions, Wanted, copied, to_json
from fletchlog.landing.tables import Format, no_table, not_landed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

_APP = "fletchlog"


class DeltaTable:
    """See the module."""

    format: Format = "delta"

    def __init__(self, place: str, table_options: Mapping[str, Any] | None) -> None:
        self._lake = require("deltalake", "tables")
        self.place, self._uri = place, place
        self._options = {name: str(value) for name, value in (table_options or {}).items()} or None
        self._table: Any = None
        self._base: Positions = {}
        # of this landing
        self._topics: set[str] = set()

    def open(self, wanted: Mapping[str, Wanted]) -> Positions:
        """As `Table.open`."""
        self._table, self._topics = self._load(), set(wanted)
        self._base = self._found(wanted)
        return copied(self._base)

    def _found(self, wanted: Mapping[str, Wanted]) -> Positions:
        """The positions of this state of the table."""
        found: Positions = {}
        if self._table is None:
            return found
        for topic, topic_id in [*self._described().items(), *((topic, name) for topic, one in wanted.items() for name in one.names)]:
            if topic in found:
                continue
            numbers = set(wanted[topic].partitions if topic in wanted else ())
            count = self._table.transaction_version(_app(topic_id, topic))
            if count is not None:
                offsets = {p: self._table.transaction_version(_app(topic_id, topic, p)) for p in sorted(numbers | set(range(count)))}
                found[topic] = Position(topic_id, {p: offset for p, offset in offsets.items() if offset is not None})
        return found

    def peek(self) -> Positions:
        """As `Table.peek`."""
        found = self.open({})
        if self._table is None:
            raise no_table(self.place)
        if not found:
            raise not_landed(self.place)
        return found

    def _load(self) -> Any:
        lake = self._lake
        if not lake.DeltaTable.is_deltatable(self._uri, self._options):
            return None
        return lake.DeltaTable(self._uri, storage_options=self._options)

    def _described(self) -> dict[str, str]:
        """Topics and their ids; none if somebody has changed the description."""
        try:
            found = json.loads(self._table.metadata().description or "")
            return {str(topic): str(topic_id) for topic, topic_id in found[_APP].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}

    def schema(self) -> pa.Schema | None:
        """As `Table.schema`."""
        if self._table is None:
            return None
        pa = require("pyarrow", "arrow")
        by = set(self._table.metadata().partition_columns)
        found = pa.schema(self._table.schema().to_arrow())
        return pa.schema([pa.field(field.name, portable(field.type, field.name)) for field in found if field.name not in by])

    def partitioned_by(self) -> str | None:
        """As `Table.partitioned_by`."""
        columns = tuple(self._table.metadata().partition_columns) if self._table is not None else ()
        for by, names in PARTITIONS.items():
            if columns == names:
                return by
        return ", ".join(columns)

    def has_rows(self) -> bool:
        """As `Table.has_rows`."""
        return self._table is not None and bool(self._table.file_uris())

    def append(self, rows: pa.Table, schema: pa.Schema, partition_by: str | None, positions: Positions) -> int:
        """As `Table.append`."""
        lake = self._lake
        rows, own = with_partitions(rows, partition_by), {topic: positions[topic] for topic in sorted(self._topics)}
        topics = {topic: one.topic_id for topic, one in own.items()}
        with self._conflicts():
            if self._table is None:
                self._table = lake.DeltaTable.create(
                    self._uri,
                    schema=rows.schema,
                    mode="error",
                    partition_by=list(PARTITIONS[partition_by]) or None,
                    description=_description(topics),
                    storage_options=self._options,
                )
            elif not topics.items() <= (described := self._described()).items():
                self._table.alter.set_table_description(_description(described | topics))
            self._check_base()
            before = self._table.version()
            lake.write_deltalake(
                self._table,
                rows,
                mode="append",
                schema_mode=None if self.schema() == schema else "merge",
                partition_by=list(PARTITIONS[partition_by]) or None,
                writer_properties=lake.WriterProperties(compression="ZSTD", compression_level=1),
                commit_properties=lake.CommitProperties(
                    custom_metadata={"fletchlog": json.dumps({"form": FORM, "topics": to_json(own)}, separators=(",", ":"))},
                    app_transactions=list(_transactions(lake, own)),
                ),
            )
        self._base = copied(positions)
        return self._files_since(before)

    def _check_base(self) -> None:
        """Own changes (of the description, by OPTIMIZE) take the table as it is by then, another lander's commits included."""
        for topic in self._base.keys() & self._topics:
            one = self._base[topic]
            for partition, offset in one.offsets.items():
                if self._table.transaction_version(_app(one.topic_id, topic, partition)) != offset:
                    raise TableConflictError(f"the table {self.place}: another lander has committed {topic}-{partition} since it was read")

    def _files_since(self, before: int) -> int:
        """How many files the last commit has added."""
        history = self._table.history(1)
        found = history[0].get("operationMetrics", {}).get("num_added_files", 0) if self._table.version() > before else 0
        return int(found)

    @contextmanager
    def _conflicts(self) -> Iterator[None]:
        """Says what the errors of a commit mean."""
        exceptions = self._lake.exceptions
        try:
            yield
        except exceptions.DeltaError as error:
            if isinstance(error, exceptions.CommitFailedError) or "already exists" in str(error):
                raise TableConflictError(f"the table {self.place}: another writer has committed since it was read ({error})") from error
            raise StorageError(f"the table {self.place} could not be written: {error}; what was committed stays, and the same call continues") from error

    def compact(self, target_bytes: int) -> int:
        """As `Table.compact`."""
        if self._table is None:
            return 0
        with self._conflicts():
            found = self._table.optimize.compact(target_size=target_bytes)
        return int(found["numFilesRemoved"])

    def close(self) -> None:
        """As `Table.close`."""
        self._table = None


def _app(topic_id: str, topic: str, partition: int | None = None) -> str:
    return "/".join([_APP, topic_id, topic, *([] if partition is None else [str(partition)])])


def _transactions(lake: Any, positions: Positions) -> Iterator[Any]:
    for topic, one in positions.items():
        yield lake.Transaction(_app(one.topic_id, topic), max(one.offsets, default=-1) + 1)
        for partition, offset in one.offsets.items():
            yield lake.Transaction(_app(one.topic_id, topic, partition), offset)


def _description(topics: Mapping[str, str]) -> str:
    return json.dumps({_APP: dict(topics)})
