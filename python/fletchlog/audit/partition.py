"""One partition, looked at batch by batch. In memory are a batch, the keys of the topic, a spool of 32 MiB and the latenesses that occur."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fletchlog._core import inspect_segment, segment_files
from fletchlog.audit.keys import NO_KEY
from fletchlog.audit.order import NO_TIME, Order
from fletchlog.audit.report import PartitionAudit
from fletchlog.audit.spool import Spool
from fletchlog.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fletchlog.audit.keys import Keys

# what a missing key or value counts as; two of them are the same
NULL = (np.uint64(0x6A09E667F3BCC908), np.uint64(0xBB67AE8584CAA73B))
MIX = (np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F))


@dataclass
class Finding:
    """A partition, and what its topic adds up."""

    audit: PartitionAudit
    order: Order


@dataclass
class Files:
    """The files of a partition: what a directory has beside the records.

    Attributes:
        folder: Where they are.
        cleaned: The offset up to which the cleaner has compacted the partition.
    """

    folder: Path
    cleaned: int


def look(batches: Iterable[Any], files: Files | None, place: tuple[str, int], keys: Keys) -> Finding:
    """Reads a partition to its end.

    Args:
        batches: Its records in offset order, as batches that pyarrow takes.
        files: Its files; None: only the records are there.
        place: Topic and partition.
        keys: The keys of the topic, which are added to.
    """
    order, gaps = Order(), _Gaps(0 if files is None else files.cleaned)
    new_keys = keyed = 0
    same_records = same_values = 0
    with ExitStack() as stack:
        records, values = stack.enter_context(Spool()), stack.enter_context(Spool())
        for each in batches:
            batch = pa.record_batch(each)
            offset, ms = batch["offset"].to_numpy(), _milliseconds(batch["timestamp"])
            gaps.add(offset)
            order.add(offset, ms)
            number, fresh = keys.add(batch["key"], ms, place[1])
            new_keys += fresh
            keyed += int(np.count_nonzero(number != NO_KEY))
            key, value = _hashes(batch["key"]), _hashes(batch["value"])
            owners = records.add(key[0] * MIX[0] + value[0], key[1] * MIX[1] + value[1], number)
            keys.repeat(owners)
            same_records += len(owners)
            same_values += len(values.add(value[0], value[1], number))
        for owners in records.repeats():
            keys.repeat(owners)
            same_records += len(owners)
        same_values += sum(len(owners) for owners in values.repeats())
    written = None if files is None else _Batches(files.folder, order.first, gaps.cleaned_to, order.last)
    if written is not None and order.records and (written.first is None or written.first > order.first):
        raise OffsetOutOfRangeError(f"{place[0]}-{place[1]}: the files of offsets from {order.first} on were deleted while they were audited; audit it again")
    return Finding(_audit(place, order, gaps, written, (same_records, same_values, keyed - new_keys)), order)


def _audit(place: tuple[str, int], order: Order, gaps: _Gaps, written: _Batches | None, same: tuple[int, int, int]) -> PartitionAudit:
    late = order.lateness
    compaction = None if written is None else gaps.cleaned - written.markers_cleaned
    return PartitionAudit(
        topic=place[0],
        partition=place[1],
        records=order.records,
        first_offset=order.first,
        last_offset=order.last,
        gaps=order.gaps,
        gaps_markers=None if written is None else written.markers,
        gaps_compaction=compaction,
        gaps_unexplained=None if written is None or compaction is None else order.gaps - written.markers - compaction,
        duplicate_records=same[0],
        duplicate_values=same[1],
        duplicate_keys=same[2],
        duplicate_sequences=None if written is None else written.repeated_sequences,
        timestamp_inversions=order.inversions,
        inversion_max_ms=order.inversion_max_ms,
        lateness_p50_ms=late.at(0.5),
        lateness_p99_ms=late.at(0.99),
        lateness_p999_ms=late.at(0.999),
        lateness_p9999_ms=late.at(0.9999),
        lateness_max_ms=late.at(1),
        skew=0.0,
        behind_ms=None,
    )


class _Gaps:
    """Missing offsets below the offset up to which the cleaner has compacted; a gap counts by its first offset."""

    def __init__(self, checkpoint: int) -> None:
        self.checkpoint = checkpoint
        self.cleaned = 0
        self.cleaned_to = -1
        """Where the last such gap ends."""
        self._last: int | None = None

    def add(self, offsets: Any) -> None:
        if not len(offsets):
            return
        before = np.concatenate([[offsets[0] - 1 if self._last is None else self._last], offsets[:-1]])
        self._last = int(offsets[-1])
        mine = np.flatnonzero((offsets - before > 1) & (before + 1 < self.checkpoint))
        if len(mine):
            self.cleaned += int((offsets[mine] - before[mine] - 1).sum())
            self.cleaned_to = int(offsets[mine[-1]])


class _Batches:
    """What only the batches of the files show; segment after segment, so that memory holds the batches of one."""

    def __init__(self, folder: Path, first: int, cleaned_to: int, last: int) -> None:
        self.first: int | None = None
        self.markers = 0
        self.markers_cleaned = 0
        self.repeated_sequences = 0
        with Spool() as seen:
            for path in segment_files(folder):
                table: Any = inspect_segment(path).batches.to_pyarrow()
                if self.first is None and table.num_rows:
                    self.first = table["base_offset"][0].as_py()
                control = table["control"]
                offsets = table.filter(control)["base_offset"].to_numpy()
                # no record has a marker's offset, so each between the first and the last record is in a gap
                self.markers += int(np.count_nonzero((offsets > first) & (offsets < last)))
                self.markers_cleaned += int(np.count_nonzero((offsets > first) & (offsets < cleaned_to)))
                mine = table.filter(pc.and_(pc.is_valid(table["producer_id"]), pc.invert(control)))
                self.repeated_sequences += len(seen.add(*_sequences(mine)))
            self.repeated_sequences += sum(len(owners) for owners in seen.repeats())


def _sequences(batches: pa.Table) -> tuple[Any, Any, Any]:
    """Producer id; epoch and first sequence in one number."""
    one, epoch, sequence = (batches[name].to_numpy().astype(np.int64) for name in ("producer_id", "producer_epoch", "base_sequence"))
    return one.view(np.uint64), ((epoch << 32) | (sequence & 0xFFFFFFFF)).view(np.uint64), one


def _milliseconds(column: pa.Array) -> Any:
    ms = pc.cast(column, pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return ms.fill_null(NO_TIME).to_numpy()


def _hashes(column: pa.Array) -> tuple[Any, Any]:
    """Two 64-bit hashes of each cell, by Python's keyed hash of bytes, the second one of the cell with a byte before it."""
    cells = column.fill_null(b"").to_pylist()
    one = np.fromiter(map(hash, cells), np.int64, len(cells)).view(np.uint64)
    two = np.fromiter((hash(b"\x01" + cell) for cell in cells), np.int64, len(cells)).view(np.uint64)
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        one[null], two[null] = NULL
    return one, two
