"""A consumer's trace as steps: the form from which the text, the pictures, the page and the comparisons are made.

A step is a tuple that begins with its code; lanes are numbers into `Story.lanes`, offsets are offsets of records:

    ("call", method, [(lane, offset or -1), ..])           the program called a method that changes what is read
    ("order", [lane, ..])                                  the assignment, in request order
    ("ask", node, full, [(lane, offset), ..], [lane, ..])  a fetch request: partitions on the wire, partitions forgotten
    ("answer", node, full, [(lane, offset, records, bytes, batches, error), ..], error)   its answer, queued in this order
    ("skip", reason, [lane, ..], [lane, ..])               left out of requests from now on, and no longer for this reason
    ("take", lane, first, last, records)                   poll took these from the queue
    ("late", lane, records)                                so many of them were older than a record handed out before (timestamp order)
    ("drained", lane, why)  ("rotate", lane, why)  ("park", lane)  ("drop", lane, why)
    ("place", lane, offset or -1, how)                     a position was looked up
    ("error", lane or -1, node or -1, text)
    ("return", records)                                    poll returned

`park`: buffered data of a paused partition went to the end of the queue.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog.errors import SchemaError
from fletchlog.types import Run, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

Step = tuple[Any, ...]

COLUMNS = ("poll", "kind", "node", "topic", "partition", "offset", "bytes", "batches", "records", "full", "text")
_ALONE = {"partition-drained": "drained", "moved-to-end": "rotate", "discarded": "drop"}


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


def natural(partition: tuple[str, int]) -> tuple[str, int]:
    """Lanes go by topic and number."""
    return (partition[0], partition[1])


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
    rows = _Rows(trace, lanes)
    reader = _Reader(rows)
    return Story(rows.lanes, reader.nodes, reader.read())


class _Rows:
    """The columns as plain arrays. A trace of ten thousand polls over two hundred partitions has millions of rows."""

    def __init__(self, trace: pa.Table, lanes: Sequence[tuple[str, int]] | None) -> None:
        self.count = trace.num_rows
        self.poll = _longs(trace, "poll")
        self.kinds, self.kind = _texts(trace, "kind")
        self.texts, self.text = _texts(trace, "text")
        self.node = _longs(trace, "node")
        self.offset = _longs(trace, "offset")
        self.bytes = _longs(trace, "bytes")
        self.batches = _longs(trace, "batches")
        self.records = _longs(trace, "records")
        self.full = _longs(trace, "full")
        self.topics, self.topic = _texts(trace, "topic")
        self.partition = _longs(trace, "partition")
        found = {(t, p) for t, p in set(zip(self.topic, self.partition, strict=True)) if t >= 0}
        named = {(t, p): TopicPartition(self.topics[t], p) for t, p in found}
        given = [TopicPartition(*lane) for lane in lanes or ()]
        # a topic given to subscribe() is a lane without a number; it is no lane of the pictures
        rest = sorted(set(named.values()) - set(given), key=lambda tp: (tp.partition < 0, tp))
        self.lanes = [tp for tp in [*given, *rest] if tp.partition >= 0]
        number = {tp: i for i, tp in enumerate([*self.lanes, *(tp for tp in rest if tp.partition < 0)])}
        self.lane_of = {key: number[tp] for key, tp in named.items()}
        self.name_of = named

    def lane(self, row: int) -> int:
        return self.lane_of.get((self.topic[row], self.partition[row]), -1)

    def why(self, row: int) -> str:
        return self.texts[self.text[row]] if self.text[row] >= 0 else ""


class _Reader:
    def __init__(self, rows: _Rows) -> None:
        self.rows = rows
        self.nodes = [-1] * len(rows.lanes)
        self.left_out: dict[int, str] = {}

    def read(self) -> list[list[Step]]:
        rows = self.rows
        polls: list[list[Step]] = [[]]
        row = 0
        while row < rows.count:
            while rows.poll[row] >= len(polls):
                polls.append([])
            steps = polls[rows.poll[row]]
            row, found = self._next(row)
            steps.extend(found)
        return polls

    def _follow(self, row: int, *kinds: str) -> Iterator[int]:
        while row < self.rows.count and self.rows.kinds[self.rows.kind[row]] in kinds:
            yield row
            row += 1

    def _next(self, row: int) -> tuple[int, list[Step]]:
        rows = self.rows
        kind, lane, why = rows.kinds[rows.kind[row]], rows.lane(row), rows.why(row)
        match kind:
            case "called":
                given = list(self._follow(row + 1, "called-partition"))
                named = [(rows.lane(i), rows.offset[i]) if rows.partition[i] >= 0 else (rows.topics[rows.topic[i]], -1) for i in given]
                return row + 1 + len(given), [("call", why, named)]
            case "assigned":
                all_of_it = [row]
                for i in self._follow(row + 1, "assigned"):
                    if rows.records[i] == 0:
                        break
                    all_of_it.append(i)
                return row + len(all_of_it), [("order", [rows.lane(i) for i in all_of_it])]
            case "request-sent":
                return self._ask(row)
            case "response-read":
                return self._answer(row)
            case "excluded":
                return self._skip(row)
            case "records-returned":
                return row + 1, [("take", lane, rows.offset[row], int(why), rows.records[row])]
            case "late":
                return row + 1, [("late", lane, rows.records[row])]
            case "paused":
                return row + 1, [("park", lane)]
            case "reset":
                return row + 1, [("place", lane, rows.offset[row], why)]
            case "error":
                return row + 1, [("error", lane, rows.node[row], why)]
            case "poll-returned":
                return row + 1, [("return", rows.records[row])]
            case _ if kind in _ALONE:
                return row + 1, [(_ALONE[kind], lane, why)]
        return row + 1, []

    def _ask(self, row: int) -> tuple[int, list[Step]]:
        rows = self.rows
        asked: list[tuple[int, int]] = []
        forgotten: list[int] = []
        end = row + 1
        for i in self._follow(row + 1, "request-partition", "request-forgotten"):
            lane = rows.lane(i)
            self.nodes[lane] = rows.node[row]
            if rows.kinds[rows.kind[i]] == "request-partition":
                asked.append((lane, rows.offset[i]))
            else:
                forgotten.append(lane)
            end = i + 1
        return end, [("ask", rows.node[row], rows.full[row], asked, forgotten)]

    def _answer(self, row: int) -> tuple[int, list[Step]]:
        rows = self.rows
        parts = [
            (rows.lane(i), rows.offset[i], rows.records[i], rows.bytes[i], rows.batches[i], _error(rows.why(i)))
            for i in self._follow(row + 1, "response-queued")
        ]
        return row + 1 + len(parts), [("answer", rows.node[row], rows.full[row], parts, _error(rows.why(row)))]

    def _skip(self, row: int) -> tuple[int, list[Step]]:
        came: dict[str, list[int]] = {}
        went: dict[str, list[int]] = {}
        end = row
        for i in self._follow(row, "excluded"):
            lane, why = self.rows.lane(i), self.rows.why(i)
            before = self.left_out.pop(lane, "")
            if before:
                went.setdefault(before, []).append(lane)
            if why:
                came.setdefault(why, []).append(lane)
                self.left_out[lane] = why
            end = i + 1
        reasons = dict.fromkeys([*came, *went])
        return end, [("skip", reason, sorted(came.get(reason, [])), sorted(went.get(reason, []))) for reason in reasons]


def _error(text: str) -> str:
    return "" if text == "NONE" else text


def _longs(trace: pa.Table, name: str) -> array[int]:
    import pyarrow as pa

    column = trace[name].cast(pa.int64()).fill_null(-1).combine_chunks()
    return array("q", _buffer(column, 8))


def _texts(trace: pa.Table, name: str) -> tuple[list[str], array[int]]:
    import pyarrow as pa

    column = trace[name].cast(pa.string()).combine_chunks().dictionary_encode()
    codes = column.indices.cast(pa.int32()).fill_null(-1)
    return column.dictionary.to_pylist(), array("i", _buffer(codes, 4))


def _buffer(column: Any, size: int) -> bytes:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return b""
    return memoryview(buffer)[column.offset * size : (column.offset + len(column)) * size].tobytes()
