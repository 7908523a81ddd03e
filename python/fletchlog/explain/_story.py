"""A consumer's trace as steps: the form from which the text, the pictures, the page and the comparisons are made.

A step is a tuple that begins with its code; lanes are numbers into `Story.lanes`, offsets are offsets of records:

    ("call", method, [(lane, offset or -1), ..], epoch)    the program called a method that changes what is read; names instead of lanes where
                                                           topics or a pattern were given
    ("order", [lane, ..])                                  the assignment, in request order
    ("ask", node, full, [(lane, offset), ..], [lane, ..])  a fetch request: partitions on the wire, partitions forgotten
    ("answer", node, full, [(lane, offset, records, bytes, batches, error), ..], error)   its answer, queued in this order
    ("skip", reason, [lane, ..], [lane, ..])               left out of requests from now on, and no longer for this reason
    ("take", lane, first, last, records)                   poll took these from the queue
    ("late", lane, records)                                so many of them were older than a record handed out before (timestamp order)
    ("drained", lane, why)  ("rotate", lane, why)  ("park", lane)  ("drop", lane, why)
    ("place", lane, offset or -1, how, epoch)              a position was looked up
    ("error", lane or -1, node or -1, text)
    ("return", records)                                    poll returned

`park`: buffered data of a paused partition went to the end of the queue. `epoch`: leader epoch of a committed offset, -1 if there is none.
A step is a row of the trace (`Consumer.trace`); here its fields are put into the order above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog.errors import SchemaError
from fletchlog.types import Run, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

Step = tuple[Any, ...]

COLUMNS = ("poll", "kind", "node", "full", "topic", "partition", "offset", "last_offset", "epoch", "records", "text", "partitions")
_FIELDS = {
    "take": ("offset", "last_offset", "records"),
    "late": ("records",),
    "park": (),
    "place": ("offset", "text", "epoch"),
    **dict.fromkeys(("drained", "rotate", "drop"), ("text",)),
}
"""What follows the lane in steps about one partition."""


@dataclass(frozen=True)
class Story:
    """What a consumer did, poll by poll; `polls[0]` is what happened before the first poll."""

    lanes: list[TopicPartition]
    nodes: list[int]
    """Leader of each lane as its requests went, -1 if it was never asked for."""
    polls: list[list[Step]]

    def runs(self) -> list[list[Run]]:
        """What each poll took from the queue, in that order; one list per poll."""
        return [[Run(*self.lanes[s[1]], s[2], s[3], s[4]) for s in steps if s[0] == "take"] for steps in self.polls[1:]]

    def order(self) -> list[int]:
        """Lanes in the request order of the first assignment."""
        return next((list(step[1]) for steps in self.polls for step in steps if step[0] == "order"), [])


def tell(trace: pa.Table, lanes: Sequence[tuple[str, int]] | None = None) -> Story:
    """Reads a trace (`Consumer.trace().to_pyarrow()`).

    Args:
        trace: The trace.
        lanes: Partitions in the order of their numbers; those that occur besides come after them. Default: all that occur, sorted.

    Raises:
        fletchlog.errors.SchemaError: This table is not a consumer's trace.
    """
    missing = [name for name in COLUMNS if name not in trace.column_names]
    if missing:
        raise SchemaError(f"this is not a consumer's trace: it has no column {', '.join(missing)}; it has {', '.join(trace.column_names)}")
    rows = trace.select(COLUMNS).to_pylist()
    found = {_partition(row) for event in rows for row in (event, *event["partitions"]) if row["partition"] is not None}
    given = [TopicPartition(*lane) for lane in lanes or ()]
    story = Story([*given, *sorted(found - set(given))], [], [[]])
    number = {lane: i for i, lane in enumerate(story.lanes)}
    story.nodes.extend([-1] * len(number))
    for row in rows:
        story.polls.extend([] for _ in range(len(story.polls), row["poll"] + 1))
        if row["kind"] != "poll":
            story.polls[-1].append(_step(row, number))
        if row["kind"] == "ask":
            for asked in row["partitions"]:
                story.nodes[number[_partition(asked)]] = row["node"]
    return story


def _partition(row: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _step(row: Mapping[str, Any], number: Mapping[TopicPartition, int]) -> Step:
    def lane(of: Mapping[str, Any]) -> Any:
        return number[_partition(of)] if of["partition"] is not None else of["topic"]

    def values(of: Mapping[str, Any], *names: str) -> list[Any]:
        return [-1 if of[name] is None else of[name] for name in names]

    kind, parts = row["kind"], [part for part in row["partitions"] if not part["gone"]]
    gone = [lane(part) for part in row["partitions"] if part["gone"]]
    match kind:
        case "call":
            return (kind, row["text"], [(lane(part), *values(part, "offset")) for part in parts], *values(row, "epoch"))
        case "order":
            return (kind, [lane(part) for part in parts])
        case "ask":
            return (kind, row["node"], int(row["full"]), [(lane(part), part["offset"]) for part in parts], gone)
        case "answer":
            queued = [(lane(part), *values(part, "offset", "records", "bytes", "batches", "error")) for part in parts]
            return (kind, row["node"], int(row["full"]), queued, row["text"])
        case "skip":
            return (kind, row["text"], sorted(map(lane, parts)), sorted(gone))
        case "error":
            # the text names a topic that is missing: it has no lane
            return (kind, -1 if row["partition"] is None else lane(row), *values(row, "node"), row["text"])
        case "return":
            return (kind, row["records"])
    return (kind, lane(row), *values(row, *_FIELDS[kind]))
