"""How evenly an order serves its partitions, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fletchlog.types import Run

Lane = tuple[str, int]


@dataclass(frozen=True)
class PartitionFairness:
    """One partition: how long its runs are and how long it waited.

    Attributes:
        topic: Topic.
        partition: Partition.
        records: Records handed out.
        runs: Number of runs: records of this partition with none of another in between, over as many polls as it took.
        shortest_run: Records in the shortest run.
        typical_run: Records in the median run.
        longest_run: Records in the longest run.
        worst_wait_polls: Most polls in a row that returned none of its records while it still had some.
        worst_wait_records: Most records of other partitions that came between two of its own, or before its first.
    """

    topic: str
    partition: int
    records: int
    runs: int
    shortest_run: int
    typical_run: int
    longest_run: int
    worst_wait_polls: int
    worst_wait_records: int


@dataclass(frozen=True)
class Fairness:
    """A whole run of polls.

    Attributes:
        polls: Number of polls.
        records: Records handed out.
        runs: Number of runs.
        typical_run: Records in the median run.
        longest_run: Records in the longest run.
        jain: Jain's index, the mean over rounds of as many polls as there are partitions: (sum x)^2 / (n * sum x^2) over the records x
            of each of the n partitions that were not finished when the round began. 1: all the same; 1/n: one got everything. None
            if no round had two unfinished partitions.
        worst_wait_polls: The worst of all partitions.
        worst_wait_records: The worst of all partitions.
        partitions: Per partition, sorted.
    """

    polls: int
    records: int
    runs: int
    typical_run: int
    longest_run: int
    jain: float | None
    worst_wait_polls: int
    worst_wait_records: int
    partitions: list[PartitionFairness]


def fairness(polls: Sequence[Sequence[Run]], ends: Mapping[Lane, tuple[int, int]] | None = None) -> Fairness:
    """Measures what each poll took from the queue (`Records.runs()`), in turn.

    Args:
        polls: Runs of each poll in drain order.
        ends: First and next offset of each partition's log; with it, partitions that came too late to be polled at all count, and
            a wait that lasts to the end counts where records are left.
    """
    lengths = _run_lengths(polls)
    ends = ends or {}
    lanes = sorted(set(lengths) | {lane for lane, (start, end) in ends.items() if end > start})
    last_poll = {(run.topic, run.partition): number for number, runs in enumerate(polls) for run in runs}
    last_offset = {(run.topic, run.partition): run.last_offset for runs in polls for run in runs}
    unfinished = {lane for lane in lanes if last_offset.get(lane, -1) + 1 < ends.get(lane, (0, 0))[1]}
    waits = _waits(polls, lanes, unfinished)
    each = [
        PartitionFairness(*lane, sum(own), len(own), min(own, default=0), _median(own), max(own, default=0), waits[lane][0], waits[lane][1])
        for lane in lanes
        for own in [lengths.get(lane, [])]
    ]
    every = [length for own in lengths.values() for length in own]
    return Fairness(
        polls=len(polls),
        records=sum(every),
        runs=len(every),
        typical_run=_median(every),
        longest_run=max(every, default=0),
        jain=_jain(polls, lanes, {lane: len(polls) if lane in unfinished else last_poll[lane] for lane in lanes}),
        worst_wait_polls=max((p.worst_wait_polls for p in each), default=0),
        worst_wait_records=max((p.worst_wait_records for p in each), default=0),
        partitions=each,
    )


def jain(shares: Sequence[float]) -> float:
    """Jain's index of some shares; 1 if all of them are 0.

    >>> jain([1, 1, 1, 1]), jain([1, 0, 0, 0])
    (1.0, 0.25)
    """
    squares = sum(share * share for share in shares)
    return float(sum(shares) ** 2 / (len(shares) * squares)) if squares else 1.0


def _run_lengths(polls: Sequence[Sequence[Run]]) -> dict[Lane, list[int]]:
    lengths: dict[Lane, list[int]] = {}
    before: Lane | None = None
    for run in (run for runs in polls for run in runs):
        lane = (run.topic, run.partition)
        if lane == before:
            lengths[lane][-1] += run.count
        else:
            lengths.setdefault(lane, []).append(run.count)
        before = lane
    return lengths


def _waits(polls: Sequence[Sequence[Run]], lanes: Sequence[Lane], unfinished: set[Lane]) -> dict[Lane, tuple[int, int]]:
    """Worst wait of each lane in polls and in records, from the first poll on."""
    worst = dict.fromkeys(lanes, (0, 0))
    # poll after the last one that had its records, and records handed out up to them
    since: dict[Lane, tuple[int, int]] = dict.fromkeys(lanes, (0, 0))
    done = 0

    def waited(lane: Lane, number: int) -> None:
        poll, records = since[lane]
        worst[lane] = (max(worst[lane][0], number - poll), max(worst[lane][1], done - records))

    for number, runs in enumerate(polls):
        for run in runs:
            lane = (run.topic, run.partition)
            waited(lane, number)
            done += run.count
            since[lane] = (number + 1, done)
    for lane in unfinished:
        waited(lane, len(polls))
    return worst


def _jain(polls: Sequence[Sequence[Run]], lanes: Sequence[Lane], finished_in: Mapping[Lane, int]) -> float | None:
    width = max(1, len(lanes))
    found = []
    for start in range(0, len(polls) - width + 1, width):
        waiting = [lane for lane in lanes if finished_in[lane] >= start]
        if len(waiting) < 2:  # noqa: PLR2004 - alone, everyone gets an equal share
            continue
        got = Counter[Lane]()
        for runs in polls[start : start + width]:
            for run in runs:
                got[(run.topic, run.partition)] += run.count
        found.append(jain([got[lane] for lane in waiting]))
    return sum(found) / len(found) if found else None


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0
