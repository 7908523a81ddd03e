"""The audit itself, over the files of a directory, with Arrow's vectorised functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fletchlog._core import Broker, inspect_segment
from fletchlog.audit.report import AuditReport, KeyAudit, PartitionAudit
from fletchlog.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import pyarrow as pa

# lateness below 1 ms, 10 ms, .. up to 10^10 ms (115 days); the last one takes the rest
DECADES = 12
WORST_KEYS = 20


def audit(directory: str | PathLike[str], topics: Sequence[str] = (), *, keys: int = WORST_KEYS) -> AuditReport:
    """Looks at every record of some topics of a directory, ours or a real broker's; changes nothing.

    Args:
        directory: The broker's directory; another process may be writing to it.
        topics: Topics; none: all but Kafka's internal ones.
        keys: How many keys to list.

    Raises:
        fletchlog.errors.KafkaError: As `Broker` and `Broker.scan` raise it.
    """
    root = Path(directory)
    with Broker(root, read_only=True) as broker:
        known = broker.topics(include_internal=True)
        missing = [topic for topic in topics if topic not in known]
        if missing:
            raise UnknownTopicOrPartitionError(f"{root} has no topic {', '.join(missing)}; it has {', '.join(broker.topics()) or 'none'}")
        found = [_Topic(broker, root, topic) for topic in (dict.fromkeys(topics) or broker.topics())]
    partitions = [partition for topic in found for partition in topic.partitions]
    worst = sorted((key for topic in found for key in topic.keys(keys)), key=_badness, reverse=True)
    return AuditReport(
        source=str(root),
        partitions=sorted(partitions, key=lambda p: (p.topic, p.partition)),
        keys=worst[:keys],
        keys_in_several_partitions={topic.name: topic.spread for topic in found},
        lateness={topic.name: topic.lateness for topic in found},
    )


def _badness(key: KeyAudit) -> tuple[int, int, int, int]:
    return (key.partitions, key.timestamp_inversions, key.duplicate_records, key.records)


@dataclass
class _Batches:
    """What only the batches of the files tell."""

    markers: set[int] = field(default_factory=set)
    repeated_sequences: int = 0


class _Topic:
    def __init__(self, broker: Broker, root: Path, name: str) -> None:
        self.name = name
        self.lateness = [0] * DECADES
        self.newest: dict[int, int] = {}
        self.tables: list[pa.Table] = []
        described = broker.describe_topic(name)
        compacted = "compact" in described.config.get("cleanup.policy", "")
        partitions = []
        for p in described.partitions:
            folder = _folder(root, f"{name}-{p.partition}")
            cleaned = p.high_watermark if compacted else _cleaned(folder)
            partitions.append(self._partition(broker.scan(name, partition=p.partition).to_pyarrow(), p.partition, _batches(folder), cleaned))
        mean = sum(p.records for p in partitions) / max(1, len(partitions))
        newest = max(self.newest.values(), default=None)
        self.partitions = [
            replace(
                p,
                skew=round(p.records / mean, 3) if mean else 0.0,
                behind_ms=newest - self.newest[p.partition] if newest is not None and p.partition in self.newest else None,
            )
            for p in partitions
        ]
        self.spread = self._spread()

    def _partition(self, rows: pa.Table, partition: int, batches: _Batches, cleaned: int) -> PartitionAudit:
        import pyarrow as pa
        import pyarrow.compute as pc

        offsets = rows["offset"].combine_chunks()
        ms = pc.divide(rows["timestamp"].cast(pa.int64()), 1000).combine_chunks()
        late = pc.subtract(pc.cumulative_max(ms, skip_nulls=True), ms).drop_null()
        steps = pc.subtract(ms[1:], ms[:-1]) if len(ms) > 1 else pa.array([], pa.int64())
        back = steps.filter(pc.less(steps, 0))
        if len(ms) > ms.null_count:
            self.newest[partition] = pc.max(ms).as_py()
        for decade, count in enumerate(_decades(late)):
            self.lateness[decade] += count
        late = late.sort() if len(late) else late
        markers, compaction, unexplained = _gaps(offsets, batches.markers, cleaned)
        values = rows.select(["key", "value"])
        self.tables.append(_per_key(rows.append_column("ms", ms), partition))
        return PartitionAudit(
            topic=self.name,
            partition=partition,
            records=len(rows),
            first_offset=offsets[0].as_py() if len(rows) else -1,
            last_offset=offsets[-1].as_py() if len(rows) else -1,
            gaps=markers + compaction + unexplained,
            gaps_markers=markers,
            gaps_compaction=compaction,
            gaps_unexplained=unexplained,
            duplicate_records=len(rows) - _distinct(values),
            duplicate_values=len(rows) - _distinct(values.select(["value"])),
            duplicate_keys=len(rows) - rows["key"].null_count - pc.count_distinct(rows["key"], mode="only_valid").as_py(),
            duplicate_sequences=batches.repeated_sequences,
            timestamp_inversions=len(back),
            inversion_max_ms=-pc.min(back).as_py() if len(back) else (0 if len(late) else None),
            lateness_p50_ms=_share(late, 50, 100),
            lateness_p99_ms=_share(late, 99, 100),
            lateness_p999_ms=_share(late, 999, 1000),
            lateness_p9999_ms=_share(late, 9999, 10_000),
            lateness_max_ms=_share(late, 1, 1),
            skew=0.0,
            behind_ms=None,
        )

    def _merged(self) -> pa.Table:
        import pyarrow as pa

        merged: pa.Table = pa.concat_tables(self.tables).group_by("key").aggregate(
            [("records", "sum"), ("partition", "count"), ("repeated", "sum"), ("inverted", "sum"), ("furthest", "max")]
        )
        return merged

    def _spread(self) -> int:
        import pyarrow.compute as pc

        if not self.tables:
            return 0
        self.merged = self._merged()
        self.tables = []
        spread: int = pc.sum(pc.greater(self.merged["partition_count"], 1)).as_py() or 0
        return spread

    def keys(self, most: int) -> list[KeyAudit]:
        """The keys with most to complain about."""
        import pyarrow.compute as pc

        if self.spread == 0 and not hasattr(self, "merged"):
            return []
        table = self.merged
        bad = pc.or_(pc.greater(table["partition_count"], 1), pc.greater(pc.add(table["repeated_sum"], table["inverted_sum"]), 0))
        table = table.filter(bad)
        order = [(name, "descending") for name in ("partition_count", "inverted_sum", "repeated_sum", "records_sum")]
        table = table.take(pc.sort_indices(table, sort_keys=[*order, ("key", "ascending")])[:most])
        return [
            KeyAudit(self.name, row["key"], row["records_sum"], row["partition_count"], row["repeated_sum"], row["inverted_sum"], row["furthest_max"])
            for row in table.to_pylist()
        ]


def _per_key(rows: pa.Table, partition: int) -> pa.Table:
    """One row per key of a partition: records, repeats, inversions, the furthest of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = rows.filter(pc.is_valid(rows["key"])).select(["key", "value", "offset", "ms"])
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("key", "ascending"), ("offset", "ascending")])).combine_chunks()
    same = pc.equal(rows["key"][1:], rows["key"][:-1]) if len(rows) else pa.chunked_array([pa.array([], pa.bool_())])
    step = pc.subtract(rows["ms"][1:], rows["ms"][:-1]) if len(rows) else pa.chunked_array([pa.array([], pa.int64())])
    back = pc.and_(same, pc.fill_null(pc.less(step, 0), False))
    first = [pa.array([None], pa.int64())] if len(rows) else []
    furthest = pa.chunked_array([*first, *pc.if_else(back, pc.negate(step), None).cast(pa.int64()).chunks], pa.int64())
    by_key = rows.append_column("furthest", furthest).group_by("key").aggregate([("offset", "count"), ("furthest", "count"), ("furthest", "max")])
    kinds = rows.group_by(["key", "value"]).aggregate([]).group_by("key").aggregate([([], "count_all")])
    joined = by_key.join(kinds, "key")
    return pa.table(
        {
            "key": joined["key"],
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(joined)),
            "records": joined["offset_count"],
            "repeated": pc.subtract(joined["offset_count"], joined["count_all"]),
            "inverted": joined["furthest_count"],
            "furthest": joined["furthest_max"],
        }
    )


def _distinct(rows: pa.Table) -> int:
    return len(rows.group_by(rows.column_names).aggregate([]))


def _gaps(offsets: pa.Array, markers: set[int], cleaned: int) -> tuple[int, int, int]:
    """Offsets between the first and the last record without one: markers, cleaned away, unexplained."""
    import pyarrow.compute as pc

    if not len(offsets):
        return 0, 0, 0
    jumps = pc.indices_nonzero(pc.greater(pc.subtract(offsets[1:], offsets[:-1]), 1)).to_pylist()
    counts = [0, 0, 0]
    for jump in jumps:
        start, end = offsets[jump].as_py() + 1, offsets[jump + 1].as_py()
        inside = sum(1 for offset in range(start, end) if offset in markers) if end - start < len(markers) else sum(start <= m < end for m in markers)
        counts[0] += inside
        counts[1 if start < cleaned else 2] += end - start - inside
    return counts[0], counts[1], counts[2]


def _share(ascending: pa.Array, part: int, whole: int) -> int | None:
    """The smallest value that at least `part` of `whole` do not exceed."""
    if not len(ascending):
        return None
    rank = -(-part * len(ascending) // whole)
    value: int = ascending[rank - 1].as_py()
    return value


def _decades(late: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    below = [pc.sum(pc.less(late, 10**power)).as_py() or 0 for power in range(DECADES - 1)]
    return [now - before for now, before in zip([*below, len(late)], [0, *below], strict=True)]


def _folder(root: Path, name: str) -> Path:
    # one node: the directory itself is the log.dir; several: one folder each
    return next((folder for folder in [root / name, *sorted(root.glob(f"node-*/{name}"))] if folder.is_dir()), root / name)


def _cleaned(folder: Path) -> int:
    """Up to which offset the cleaner has been over a partition. Kafka: OffsetCheckpointFile `cleaner-offset-checkpoint`."""
    path = folder.parent / "cleaner-offset-checkpoint"
    topic, _, partition = folder.name.rpartition("-")
    if not path.is_file():
        return 0
    lines = (line.rsplit(" ", 2) for line in path.read_text().splitlines()[2:])
    return next((int(line[2]) for line in lines if line[:2] == [topic, partition]), 0)


def _batches(folder: Path) -> _Batches:
    import pyarrow.compute as pc

    found = _Batches()
    seen: Counter[tuple[int, int, int]] = Counter()
    for path in sorted(folder.glob("*.log")):
        table: Any = inspect_segment(path).batches.to_pyarrow()
        found.markers.update(table.filter(table["control"])["base_offset"].to_pylist())
        mine = table.filter(pc.and_(pc.is_valid(table["producer_id"]), pc.invert(table["control"])))
        seen.update(zip(*(mine[name].to_pylist() for name in ("producer_id", "producer_epoch", "base_sequence")), strict=True))
    found.repeated_sequences = sum(count - 1 for count in seen.values())
    return found
