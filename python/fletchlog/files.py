"""The files of a log directory without a broker: check them, look into one, read it.

The values are tuples: comparable, picklable, hashable unless a field is a list or a dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fletchlog._core import inspect_segment, segment_records, verify

if TYPE_CHECKING:
    from pathlib import Path

    from fletchlog._core import Table


class SegmentInspection(NamedTuple):
    """A `.log` file, as `inspect_segment` found it.

    Attributes:
        path: The file.
        size: Its bytes.
        batches: Arrow table with one row per batch.
        tail: (position, reason) where batches end before the end of the file, else None.
    """

    path: Path
    size: int
    batches: Table
    tail: tuple[int, str] | None


class Problem(NamedTuple):
    """Something wrong with a file.

    Attributes:
        path: The file.
        position: Byte position in it.
        reason: What is wrong.
    """

    path: Path
    position: int
    reason: str


class SegmentReport(NamedTuple):
    """One segment, as `verify` found it.

    Attributes:
        path: The `.log` file.
        base_offset: First offset it may hold.
        next_offset: Last offset of its last batch + 1; the base offset if it is empty.
        size: Bytes of the file.
        batches: Number of batches.
        records: Number of records, control records included.
        max_timestamp: Largest timestamp in ms, -1 none.
    """

    path: Path
    base_offset: int
    next_offset: int
    size: int
    batches: int
    records: int
    max_timestamp: int


class ProducerState(NamedTuple):
    """What the log has of one producer id.

    Attributes:
        producer_id: Producer id.
        epoch: Its newest epoch.
        last_sequence: Last sequence of its newest batch, -1 none.
        last_offset: Last offset of its newest batch, -1 none.
        last_timestamp: Time in ms of its newest batch or marker.
        expired: The default of `producer.id.expiration.ms` has passed: a writer forgets it when it opens the log, or at its next check.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    expired: bool


class Cut(NamedTuple):
    """What opening a log for writing after an unclean stop would remove.

    Attributes:
        path: The `.log` file.
        start: First byte that would go.
        size: Bytes of the file.
        reason: Why.
    """

    path: Path
    start: int
    size: int
    reason: str


class PartitionReport(NamedTuple):
    """A partition's directory, as `verify` found it.

    Attributes:
        path: The directory.
        name: Its name, `<topic>-<partition>`.
        ok: Nothing is damaged and every index agrees with the log.
        segments: Number of segments.
        batches: Batches of all segments.
        records: Records of all segments, control records included.
        damaged: Damaged batches and tails.
        index_problems: Index, snapshot and checkpoint files that do not agree with the log; they can be rebuilt.
        holes: Offsets [from, to) that no batch has: compaction, or a lost segment. Not wrong by themselves.
        producers: Number of producer ids.
        open_transactions: (producer id, first offset) of transactions without a marker.
        would_cut: What recovery after an unclean stop would remove, and why.
        log_start_offset: First readable offset.
        log_end_offset: Next offset to be written.
        segment_reports: The segments, in order.
        producer_states: The producers, by id.
    """

    path: Path
    name: str
    ok: bool
    segments: int
    batches: int
    records: int
    damaged: list[Problem]
    index_problems: list[Problem]
    holes: list[tuple[int, int]]
    producers: int
    open_transactions: list[tuple[int, int]]
    would_cut: list[Cut]
    log_start_offset: int
    log_end_offset: int
    segment_reports: list[SegmentReport]
    producer_states: list[ProducerState]


__all__ = [
    "Cut",
    "PartitionReport",
    "Problem",
    "ProducerState",
    "SegmentInspection",
    "SegmentReport",
    "inspect_segment",
    "segment_records",
    "verify",
]
