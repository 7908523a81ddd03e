"""Offsets at which the log has no record for the consumer, and why."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fletchlog._core import Broker
    from fletchlog.explain._story import Story
    from fletchlog.types import IsolationLevel

Range = tuple[int, int]
Lane = tuple[str, int]


class Gap(NamedTuple):
    """Offsets without a record.

    Attributes:
        first: First offset.
        last: Last offset.
        why: `compacted`: the cleaner has removed what was there; `control`: the marker with which a transaction ended; `aborted`: records
            of an aborted transaction, which read_committed hides; `open`: at or behind the first record of a transaction that was still
            open, where read_committed ends.
    """

    first: int
    last: int
    why: str


def gaps(broker: Broker, story: Story, ends: Mapping[Lane, Range], stable: Mapping[Lane, int] | None = None) -> dict[Lane, list[Gap]]:
    """The gaps of each lane from the start of its log to the first record behind the last one handed out.

    Args:
        broker: Where the topics are.
        story: What was read, from the start of each log and without a seek.
        ends: First and next offset of each lane's log.
        stable: Last stable offset of each lane, for a run under read_committed.

    Returns:
        By lane, in offset order; of every lane of `ends`.
    """
    taken = dict.fromkeys(ends, 0)
    reached = {lane: start for lane, (start, _) in ends.items()}
    for run in (run for runs in story.runs() for run in runs):
        lane = (run.topic, run.partition)
        taken[lane] += run.count
        reached[lane] = run.last_offset + 1
    found = {}
    isolation_level: IsolationLevel = "read_uncommitted" if stable is None else "read_committed"
    for lane, (start, end) in ends.items():
        readable = end if stable is None else stable[lane]
        behind = _next_record(broker, lane, reached[lane], readable, isolation_level)
        whole = taken[lane] == reached[lane] - start and behind == reached[lane]
        found[lane] = [] if whole else _gaps(broker, lane, start, behind, isolation_level)
        if readable < end:
            found[lane].append(Gap(readable, end - 1, "open"))
    return found


def _next_record(broker: Broker, lane: Lane, offset: int, end: int, isolation_level: IsolationLevel) -> int:
    """Offset of the first record from `offset` on that the consumer may see; the end if there is none."""
    for batch in broker.scan(*lane, offset, end, batch_rows=1, isolation_level=isolation_level):
        return int(batch["offset"][0].as_py())
    return end


def _gaps(broker: Broker, lane: Lane, start: int, end: int, isolation_level: IsolationLevel) -> list[Gap]:
    missing = list(_between(_offsets(broker, lane, start, end, isolation_level), start, end))
    if not missing:
        return []
    hidden: Sequence[int] = _offsets(broker, lane, missing[0][0], end, "read_uncommitted") if isolation_level == "read_committed" else []
    control = broker._control_batches(*lane, missing[0][0], end)  # noqa: SLF001 - of this package
    return [gap for first, last in missing for gap in _by_reason(first, last, hidden, control)]


def _by_reason(first: int, last: int, hidden: Sequence[int], control: Sequence[Range]) -> Iterator[Gap]:
    """One stretch of missing offsets by reason."""
    known = [Gap(max(first, a), min(last, b), "control") for a, b in control[bisect_left(control, first, key=_last) : bisect_right(control, last, key=_first)]]
    inside = hidden[bisect_left(hidden, first) : bisect_right(hidden, last)]
    known += [Gap(a, b, "aborted") for a, b in _runs(inside)]
    for gap in sorted(known):
        if gap.first > first:
            yield Gap(first, gap.first - 1, "compacted")
        yield gap
        first = gap.last + 1
    if first <= last:
        yield Gap(first, last, "compacted")


def _offsets(broker: Broker, lane: Lane, start: int, end: int, isolation_level: IsolationLevel) -> list[int]:
    found: list[int] = []
    for batch in broker.scan(*lane, start, end, isolation_level=isolation_level, columns=["offset"]):
        found += batch["offset"].to_pylist()
    return found


def _between(offsets: Sequence[int], start: int, end: int) -> Iterator[Range]:
    """The stretches of start .. end (exclusive) that no offset is in."""
    for offset in (*offsets, end):
        if offset > start:
            yield (start, offset - 1)
        start = offset + 1


def _runs(offsets: Sequence[int]) -> Iterator[Range]:
    """Offsets that follow each other, together."""
    first = 0
    for place in range(1, len(offsets) + 1):
        if place == len(offsets) or offsets[place] != offsets[place - 1] + 1:
            yield (offsets[first], offsets[place - 1])
            first = place


def _first(batch: Range) -> int:
    return batch[0]


def _last(batch: Range) -> int:
    return batch[1]
