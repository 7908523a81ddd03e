"""From a topic's committed records to commits of a table, until there is nothing more to read.

```text
open       the positions of the table's last commit, compared with the source's topics
read       from there to the last stable offset, decoded batch by batch into a buffer
commit     the buffer and the positions behind it: when it has `batch_bytes`, when an
           interval is over, and when all is read
conflict   another writer was first: the positions are read again. If they are the same
           the commit is repeated, else it was another lander: an error
```
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog import ledger, serde
from fletchlog._whole import described_whole
from fletchlog.errors import IllegalStateError, InvalidArgumentError, OffsetOutOfRangeError, TableConflictError, UnknownTopicOrPartitionError
from fletchlog.interop import require
from fletchlog.landing.columns import PARTITIONS, RECORD, as_portable, conformed, flattened, merged
from fletchlog.landing.positions import Position, Positions, Wanted, copied
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from fletchlog import Broker, Cluster
    from fletchlog.admin import PartitionDescription, TopicDescription
    from fletchlog.landing.tables import Table
    from fletchlog.serde import Deserializer
    from fletchlog.types import IsolationLevel

log = logging.getLogger("fletchlog.landing")

# Of a writer that is no lander: it may be first so often, one time after the other.
_ATTEMPTS = 10
# A new leader may not know yet how far its partition was committed: a landing that follows waits so long for it.
_BEHIND_S = 60.0
# Between two looks at the source that found nothing new.
_POLL_S = 0.2
# The first commit of a landing that follows waits no longer for more rows.
_FIRST_S = 1.0


class Landed(NamedTuple):
    """What `land` did.

    Attributes:
        table: The table's place.
        format: `parquet`, `delta` or `iceberg`.
        rows: Rows that this call committed.
        commits: Its commits.
        files: Files that they added.
        compacted: Small files that were rewritten into larger ones.
        offsets: Of each partition, the offset to continue at: committed records before it are rows of the table.
        skipped: Offsets that were deleted from the source before they were read, by partition: (first, end). Only with `on_lost="skip"`.
        stopped: Whether `stop` ended it before it had read everything.
    """

    table: str
    format: str
    rows: int
    commits: int
    files: int
    compacted: int
    offsets: dict[TopicPartition, int]
    skipped: dict[TopicPartition, tuple[int, int]]
    stopped: bool


class Decoding(NamedTuple):
    """How records become rows: see `land`."""

    key: Deserializer | None
    value: Deserializer | None
    flatten: bool
    on_error: Any

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of records, in columns of types that every table has."""
        pa = require("pyarrow", "arrow")
        if self.key is not None or self.value is not None:
            batch = serde.deserialize(batch, key=self.key, value=self.value, on_error=self.on_error)
        if self.flatten:
            batch = flattened(batch, [name for name, one in (("key", self.key), ("value", self.value)) if one is not None])
        names = batch.schema.names
        return pa.RecordBatch.from_arrays([as_portable(batch.column(name), name) for name in names], names=names)


class Limits(NamedTuple):
    """When rows are committed: see `land`."""

    batch_bytes: int
    file_bytes: int
    interval: float
    partition_by: str | None
    compact: bool


class Landing:
    """One call of `land`. `stop`: returns True when it is to end; `wait(seconds)` sleeps no longer than that."""

    def __init__(
        self,
        admin: Broker | Cluster,
        topics: list[str],
        table: Table,
        decoding: Decoding,
        limits: Limits,
        *,
        isolation_level: IsolationLevel,
        append: bool,
        starts: Mapping[tuple[str, int], int],
        skip_lost: bool,
        stop: Any,
        on_progress: Callable[[str, int], object],
    ) -> None:
        self._admin, self._topics, self._table, self._decoding, self._limits = admin, topics, table, decoding, limits
        self._isolation, self._append, self._starts, self._skip_lost = isolation_level, append, starts, skip_lost
        self._stop, self._on_progress = stop, on_progress
        self._buffer: list[Any] = []
        self._bytes = self._rows = self._commits = self._files = self._compacted = 0
        self._ids: dict[str, list[str]] = {}
        self._positions: Positions = {}
        self._committed: Positions = {}
        self._skipped: dict[TopicPartition, tuple[int, int]] = {}
        # when the next commit is due, of a landing that follows
        self._due: float | None = None
        # since when a partition ends before its position
        self._behind: dict[TopicPartition, float] = {}

    def run(self, *, follow: bool) -> Landed:
        """Everything up to the ends as of now, or until `stop`."""
        try:
            described = [described_whole(self._admin, topic) for topic in self._topics]
            self._begin(described)
            if follow:
                self._due = time.monotonic() + _FIRST_S
            while True:
                before = copied(self._positions)
                for topic in described:
                    for partition in topic.partitions:
                        self._read(topic.name, partition)
                if not follow or self._stopped():
                    break
                # what has arrived is shown soon, at first; after that by the interval
                if (self._buffer and self._commits == 0) or time.monotonic() >= (self._due or 0):
                    self._commit()
                if before == self._positions:
                    self._stop.wait(_POLL_S)
                described = [self._now(topic) for topic in self._topics]
            stopped = self._stopped()
            self._commit()
            if self._limits.compact and not stopped:
                self._compacted += self._table.compact(self._limits.file_bytes)
            offsets = {TopicPartition(topic, p): offset for topic, one in self._committed.items() for p, offset in one.offsets.items()}
            return Landed(self._table.place, self._table.format, self._rows, self._commits, self._files, self._compacted, offsets, self._skipped, stopped)
        finally:
            self._table.close()

    def _stopped(self) -> bool:
        return bool(self._stop.is_set())

    def _begin(self, described: list[TopicDescription]) -> None:
        """The positions to continue at."""
        self._ids = {topic.name: ledger.lasting_names(self._admin, topic) for topic in described}
        self._committed = self._table.open(self._wanted(described))
        self._check_partition_by()
        self._positions = copied(self._committed)
        for topic in described:
            self._check_starts(topic)
            if topic.name in self._positions:
                self._check_topic(topic.name)
            else:
                self._check_new(topic.name)
                self._positions[topic.name] = Position(self._ids[topic.name][0])

    def _wanted(self, described: list[TopicDescription]) -> dict[str, Wanted]:
        return {topic.name: Wanted(self._ids[topic.name], [p.partition for p in topic.partitions]) for topic in described}

    def _check_partition_by(self) -> None:
        if self._table.schema() is None:
            return
        there, wanted = self._table.partitioned_by(), self._limits.partition_by
        if there not in PARTITIONS or wanted not in (None, there):
            asked = f", and partition_by is {wanted!r}" if wanted else "; landing takes 'day', 'hour' or none"
            raise InvalidArgumentError(f"the table {self._table.place} is partitioned by {there or 'nothing'}{asked}: land into a new table")
        self._limits = self._limits._replace(partition_by=there)

    def _check_topic(self, topic: str) -> None:
        """Whether the table's topic of this name is this one."""
        there = self._committed[topic].topic_id
        if there not in self._ids[topic]:
            raise IllegalStateError(
                f"the table {self._table.place} has topic {topic} with the id {there}, and the source's is {self._ids[topic][0]}: the topic was deleted and "
                "made again, or this is another source. Offsets mean other records there. Land it into a new table"
            )

    def _check_starts(self, topic: TopicDescription) -> None:
        """Whether the offsets to begin at are those of the source's partitions. A table that has the topic continues at its own."""
        offsets = {} if topic.name not in self._committed else self._committed[topic.name].offsets
        ends = {p.partition: p.high_watermark for p in topic.partitions}
        for (name, partition), offset in self._starts.items():
            if name != topic.name or partition in offsets:
                continue
            if partition not in ends:
                raise InvalidArgumentError(f"start_offsets has {name}-{partition}; the topic has the partitions 0 to {max(ends)}")
            if offset > ends[partition]:
                raise InvalidArgumentError(f"start_offsets begins {name}-{partition} at offset {offset}; the source ends at {ends[partition]}")

    def _check_new(self, topic: str) -> None:
        """Whether a topic of which the table knows nothing may be landed into it."""
        if self._append or any(topic == name for name, _ in self._starts):
            return
        if others := ", ".join(sorted(self._committed)):
            raise IllegalStateError(
                f"the table {self._table.place} has the topics {others} and not {topic}. To land it there too, from its beginning: append=True (--append); "
                "or give another table"
            )
        if self._table.has_rows():
            raise IllegalStateError(
                f"the table {self._table.place} has rows, and no offsets of topic {topic}: they were written by something else. To append the topic from its "
                f"beginning: append=True (--append); to continue at an offset: start_offsets={{('{topic}', 0): OFFSET}} (--start-offset {topic}:0=OFFSET)"
            )

    def _now(self, topic: str) -> TopicDescription:
        """The source's topic as it is now.

        Raises:
            IllegalStateError: It is another one.
            UnknownTopicOrPartitionError: It was deleted.
        """
        now = described_whole(self._admin, topic)
        if ledger.lasting_names(self._admin, now)[0] != self._ids[topic][0]:
            raise IllegalStateError(
                f"topic {topic} of the source was deleted and made again while it was landed; what came before that is in {self._table.place}"
            )
        return now

    def _start_of(self, topic: str, p: PartitionDescription) -> int:
        """Where a partition is read next."""
        offsets, tp = self._positions[topic].offsets, TopicPartition(topic, p.partition)
        at = offsets.setdefault(p.partition, self._starts.get((topic, p.partition), p.log_start_offset))
        if at <= p.high_watermark:
            self._behind.pop(tp, None)
        elif self._due is None or time.monotonic() - self._behind.setdefault(tp, time.monotonic()) > _BEHIND_S:
            raise IllegalStateError(
                f"{topic}-{p.partition}: the source ends at offset {p.high_watermark}, and the table {self._table.place} has it up to {at}: the source has "
                "lost records, or is an older state of the log. Land it into a new table"
            )
        return at

    def _read(self, topic: str, p: PartitionDescription) -> None:
        """A partition up to its last stable offset, or its end."""
        end = p.last_stable_offset if self._isolation == "read_committed" else p.high_watermark
        start, offsets = p.log_start_offset, self._positions[topic].offsets
        while self._start_of(topic, p) < end and not self._stopped():
            if offsets[p.partition] < start:
                self._lost(topic, p.partition, start)
                continue
            try:
                self._scan(topic, p.partition, end)
            except OffsetOutOfRangeError:
                start = next(now.log_start_offset for now in self._now(topic).partitions if now.partition == p.partition)
                if start <= offsets[p.partition]:
                    raise
            except UnknownTopicOrPartitionError:
                self._now(topic)  # says what this means here
                raise

    def _lost(self, topic: str, partition: int, start: int) -> None:
        """Records that were deleted before they were read."""
        at = self._positions[topic].offsets[partition]
        if not self._skip_lost:
            raise OffsetOutOfRangeError(
                f"{topic}-{partition}: offsets {at} to {start - 1} were deleted from the source before they were landed; they are lost to the table "
                f"{self._table.place}. To continue without them: on_lost='skip' (--skip-lost)"
            )
        log.warning("%s-%s: the source no longer has offsets %s to %s; they are not landed", topic, partition, at, start - 1)
        tp = TopicPartition(topic, partition)
        self._skipped[tp] = (self._skipped.get(tp, (at, at))[0], start)
        self._positions[topic].offsets[partition] = start

    def _scan(self, topic: str, partition: int, end: int) -> None:
        """Rows of a range of offsets, and behind the last one."""
        offsets = self._positions[topic].offsets
        scan = self._admin.scan(
            topic, partition, start_offset=offsets[partition], end_offset=end, isolation_level=self._isolation, columns=list(RECORD), timestamp_unit="us"
        )
        for batch in scan:
            rows = self._decoding.rows(batch)
            self._buffer.append(rows)
            self._bytes += rows.nbytes
            offsets[partition] = batch["offset"][-1].as_py() + 1
            self._on_progress(topic, rows.num_rows)
            if self._bytes >= self._limits.batch_bytes or (self._due is not None and time.monotonic() >= self._due):
                self._commit()
            if self._stopped():
                return
        # behind the last record there may be offsets without any
        offsets[partition] = end

    def _commit(self) -> None:
        """The buffer, and the positions behind it."""
        if self._positions != self._committed:
            for topic in self._topics:
                self._now(topic)
            self._append_rows()
        if self._due is not None:
            self._due = time.monotonic() + self._limits.interval

    def _append_rows(self) -> None:
        rows = self._buffered()
        for attempt in range(_ATTEMPTS):
            schema = merged(self._table.schema(), rows.schema, self._table.place)
            try:
                self._files += self._table.append(conformed(rows, schema), schema, self._limits.partition_by, copied(self._positions))
                break
            except TableConflictError as error:
                self._take_again(error)
                if attempt == _ATTEMPTS - 1:
                    raise
        self._rows += rows.num_rows
        self._commits += bool(rows.num_rows)
        self._committed, self._buffer, self._bytes = copied(self._positions), [], 0
        if self._limits.compact and self._commits % 20 == 0 and rows.num_rows and self._due is not None:
            self._compacted += self._table.compact(self._limits.file_bytes)

    def _take_again(self, conflict: TableConflictError) -> None:
        """The table as another writer has left it.

        Raises:
            TableConflictError: It was a lander of the same topics.
        """
        self._table.close()
        wanted = {topic: Wanted(self._ids[topic], list(self._positions[topic].offsets)) for topic in self._topics}
        found = self._table.open(wanted)
        if any(found.get(topic) != self._committed.get(topic) for topic in self._topics):
            raise TableConflictError(
                f"the table {self._table.place}: another lander has committed the same topic meanwhile. Nothing of this commit is in the table. Let one "
                "lander work on a topic at a time; the same call continues behind what the other one has committed"
            ) from conflict
        self._committed = found
        self._positions = copied(found) | {topic: self._positions[topic] for topic in self._topics}

    def _buffered(self) -> pa.Table:
        pa = require("pyarrow", "arrow")
        if self._buffer:
            return pa.Table.from_batches(self._buffer)
        return pa.Table.from_batches([self._decoding.rows(_no_records())])


def _no_records() -> pa.RecordBatch:
    """The schema of a scan with every column."""
    pa = require("pyarrow", "arrow")
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = (pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.int32(), pa.binary(), pa.binary(), pa.list_(header))
    return pa.RecordBatch.from_arrays([pa.array([], one) for one in types], names=list(RECORD))
