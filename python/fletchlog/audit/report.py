"""What an audit found, as values, thresholds and one HTML page."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from fletchlog.audit.words import shown
from fletchlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PartitionAudit:
    """One partition. Times are milliseconds; None where no record has a timestamp, or where rows alone (Spark, a cluster) do not show it.

    Attributes:
        topic: Topic.
        partition: Partition.
        records: Records, markers of transactions left out.
        first_offset: Of the first record, -1 without records.
        last_offset: Of the last record, -1 without records.
        gaps: Offsets between them that no record has.
        gaps_markers: Of these, offsets of transaction markers.
        gaps_compaction: Of these, offsets that the cleaner has compacted.
        gaps_unexplained: The rest: lost, or never written.
        duplicate_records: Records with the key and value of an earlier one.
        duplicate_values: Records with the value of an earlier one, with any key.
        duplicate_keys: Records with the key of an earlier one; no key is no duplicate.
        duplicate_sequences: Batches whose producer id, epoch and first sequence occurred before.
        timestamp_inversions: Records with a lower timestamp than the one before.
        inversion_max_ms: The furthest of these steps back.
        lateness_p50_ms: How far records are behind the highest timestamp up to them: the median.
        lateness_p99_ms: The smallest lateness that 99 % do not exceed: the watermark delay that keeps 99 %.
        lateness_p999_ms: The delay that keeps 99.9 %.
        lateness_p9999_ms: The delay that keeps 99.99 %.
        lateness_max_ms: The delay that keeps all.
        skew: Records as a multiple of the topic's mean per partition.
        behind_ms: How far its newest timestamp is behind the newest of the topic: idle partitions hold watermarks back.
    """

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    gaps: int
    gaps_markers: int | None
    gaps_compaction: int | None
    gaps_unexplained: int | None
    duplicate_records: int
    duplicate_values: int | None
    duplicate_keys: int | None
    duplicate_sequences: int | None
    timestamp_inversions: int
    inversion_max_ms: int | None
    lateness_p50_ms: int | None
    lateness_p99_ms: int | None
    lateness_p999_ms: int | None
    lateness_p9999_ms: int | None
    lateness_max_ms: int | None
    skew: float
    behind_ms: int | None


@dataclass(frozen=True)
class KeyAudit:
    """One key of a topic.

    Attributes:
        topic: Topic.
        key: Key.
        records: Records of it.
        partitions: Partitions that have it: with more than one there is no order between its records.
        duplicate_records: Records with the value of an earlier one of this key in the same partition.
        timestamp_inversions: Records with a lower timestamp than the one of this key before it in the same partition.
        inversion_max_ms: The furthest of these steps back, None without one.
    """

    topic: str
    key: bytes
    records: int
    partitions: int
    duplicate_records: int
    timestamp_inversions: int
    inversion_max_ms: int | None


def compared(partitions: list[PartitionAudit], newest: Mapping[int, int | None]) -> list[PartitionAudit]:
    """With what a partition is among the others of its topic."""
    mean = sum(p.records for p in partitions) / max(1, len(partitions))
    latest = max((ms for ms in newest.values() if ms is not None), default=None)
    found = []
    for p in partitions:
        mine = newest[p.partition]
        behind = None if latest is None or mine is None else latest - mine
        found.append(replace(p, skew=round(p.records / mean, 3) if mean else 0.0, behind_ms=behind))
    return found


SECOND = 1000
THRESHOLDS = tuple(field.name for field in fields(PartitionAudit) if field.name not in {"topic", "partition"})
# None in a report about a DataFrame; about a cluster all but those of values and keys
FILES_ONLY = frozenset({"gaps_markers", "gaps_compaction", "gaps_unexplained", "duplicate_values", "duplicate_keys", "duplicate_sequences"})


@dataclass(frozen=True)
class AuditReport:
    """What `audit` found. A notebook shows it as tables.

    Attributes:
        source: Where the records are.
        partitions: Every partition, sorted.
        keys: The keys with the most findings: in several partitions, inverted, repeated.
        keys_in_several_partitions: Number of keys that more than one partition of their topic has, per topic.
        lateness: Per topic, how many records are late by less than 1 ms, 10 ms, 100 ms, .. (powers of ten).
    """

    source: str
    partitions: list[PartitionAudit]
    keys: list[KeyAudit]
    keys_in_several_partitions: dict[str, int]
    lateness: dict[str, list[int]]

    def __repr__(self) -> str:
        from fletchlog.explain.words import counted

        found = [counted(len(self.partitions), "partition"), counted(sum(p.records for p in self.partitions), "record")]
        return f"<fletchlog.audit.AuditReport of {self.source}: {', '.join(found)}>"

    def breaches(self, most: Mapping[str, float]) -> list[str]:
        """A sentence per partition and threshold that it exceeds; empty: none.

        Args:
            most: `{column: most}` for columns of `PartitionAudit`.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such column, or a report about a DataFrame or a cluster does not have it.
        """
        unknown = sorted(set(most) - set(THRESHOLDS))
        if unknown:
            raise InvalidArgumentError(f"there is no column {', '.join(unknown)} to hold to; there are {', '.join(THRESHOLDS)}")
        absent = sorted(name for name in set(most) & FILES_ONLY if any(getattr(p, name) is None for p in self.partitions))
        if absent:
            raise InvalidArgumentError(f"rows alone do not tell {', '.join(absent)}; hold the files to it: fletchlog.audit.run(directory)")
        return [
            f"{p.topic}-{p.partition}: {name} is {_exact(name, getattr(p, name))}, at most {_exact(name, limit)} are allowed"
            for p in self.partitions
            for name, limit in most.items()
            if (getattr(p, name) or 0) > limit
        ]

    def to_dict(self) -> dict[str, Any]:
        """As values for JSON; keys as text, with backslashes where they are none."""
        found = asdict(self)
        for key in found["keys"]:
            key["key"] = key["key"].decode("utf-8", "backslashreplace")
        return found

    def _repr_html_(self) -> str:
        from fletchlog.audit import html

        return "".join(html.tables(self, {}))

    def html(self, most: Mapping[str, float] | None = None) -> str:
        """One page that needs no network.

        Args:
            most: `{column: most}` as for `breaches`: the page says whether each partition keeps it, and marks those that do not.

        Raises:
            fletchlog.errors.InvalidArgumentError: As `breaches`.
        """
        from fletchlog.audit import html

        return html.page(self, most or {})


def _exact(name: str, value: float) -> str:
    """With its unit where it has one: `3,600,000 ms (1 h)`."""
    text = f"{int(value) if value == int(value) else value:,}"
    return f"{text} ms ({shown(name, value)})" if name.endswith("_ms") and value >= SECOND else text
