"""The audit's two passes over Arrow batches: rows are packed into few large cells, and these are looked at in order.

    map      (topic, partition, offset, ms, one, two)  ->  cells: (topic, partition, lane, block, number, base, left, right)
    shuffle  by topic, partition, lane; each task's cells sorted by topic, partition, lane, block
    reduce                                             ->  findings: one row per task and topic, partition, with what its lanes say
    merged                                             ->  one row per topic, partition

| lane    | what                          | block         | number  | base         | left                       | right       |
|---------|-------------------------------|---------------|---------|--------------|----------------------------|-------------|
| -1      | offsets and times, sorted     | offset / 2^20 | records | first offset | offsets, empty if in a row | times       |
| 0 .. 15 | hashes of different records   | 0             | dropped | 0            | first hash                 | second hash |

Offsets and first hashes are 64 bits, second hashes 32. Times are ms after the first 8 bytes, in 32 bits if they fit, else in 64. `dropped`
counts repeats that are already left out. Moving a cell of a megabyte costs Spark little more than moving a row, and no sort ever sees a
record.

A task holds 16,384 records while it packs, so cells are some 20 kB and a batch of 10,000 of them 200 MB. Looking at a lane takes 16 bytes
(and twice as many to sort) per record of a block, or of a sixteenth of the partition's different records, and 16 bytes per lateness that
occurs. These functions travel with the job by value (see `audit`): they may use numpy, pyarrow and `fletchlog.audit`'s modules `order`
and `repeats` only.
"""

from __future__ import annotations

import itertools
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fletchlog.audit.order import NO_TIME, Order
from fletchlog.audit.repeats import distinct, repeated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKED = "topic string, partition int, lane int, block bigint, number bigint, base bigint, left binary, right binary"
PACKED_SCHEMA = [
    ("topic", pa.string()), ("partition", pa.int32()), ("lane", pa.int32()), ("block", pa.int64()),
    ("number", pa.int64()), ("base", pa.int64()), ("left", pa.binary()), ("right", pa.binary()),
]  # fmt: skip
FOUND = (
    "topic string, partition int, records bigint, first_offset bigint, last_offset bigint, gaps bigint, duplicate_offsets bigint, "
    "duplicate_records bigint, timestamp_inversions bigint, inversion_max_ms bigint, lateness_p50_ms bigint, lateness_p99_ms bigint, "
    "lateness_p999_ms bigint, lateness_p9999_ms bigint, lateness_max_ms bigint, watermark_delay_ms bigint, newest_ms bigint, "
    "lateness array<bigint>"
)
NUMBERS = tuple(column.removesuffix(" bigint") for column in FOUND.split(", ") if column.endswith(" bigint"))
FOUND_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "array<bigint>": pa.list_(pa.int64())}
FOUND_SCHEMA = [(name, FOUND_TYPES[kind]) for name, kind in (column.split(" ") for column in FOUND.split(", "))]
ROWS = 1 << 14
BLOCK_BITS = 20
LANE_BITS = 4
ORDER_LANE = -1


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The map side; batches have the columns topic, partition, offset, ms, one, two."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= ROWS:
            yield _packed(pa.Table.from_batches(waiting))
            waiting, rows = [], 0
    if rows:
        yield _packed(pa.Table.from_batches(waiting))


def _packed(rows: pa.Table) -> pa.RecordBatch:
    for needed in ("topic", "partition", "offset"):
        if rows[needed].null_count:
            raise ValueError("a row of the DataFrame has no topic, partition or offset: the audit cannot say where it belongs")
    rows = rows.combine_chunks()
    topic = rows["topic"].combine_chunks()
    offset, one, two = (rows[name].to_numpy() for name in ("offset", "one", "two"))
    ms = rows["ms"].fill_null(NO_TIME).to_numpy()
    packed: list[tuple[Any, ...]] = []
    for name, partition, mine in _places(topic, rows["partition"].to_numpy()):
        packed += [(name, partition, *cell) for cell in _times(offset[mine], ms[mine])]
        packed += [(name, partition, *cell) for cell in _hashes(one[mine].view(np.uint64), two[mine].view(np.uint32))]
    columns = list(zip(*packed, strict=True))
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, PACKED_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(PACKED_SCHEMA))


def _places(topic: pa.Array, partition: Any) -> Iterator[tuple[str, int, Any]]:
    """Topic, partition and rows of each partition that occurs. Most often it is one."""
    encoded = topic.dictionary_encode()
    code, names = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()
    code = (code << 32) | partition.astype(np.int64)
    if (code == code[0]).all():
        yield names[0], int(partition[0]), slice(None)
        return
    for one, mine in _split(code):
        yield names[one >> 32], one & 0x7FFFFFFF, mine


def _split(code: Any) -> Iterator[tuple[int, Any]]:
    """Each value that occurs, and the rows that have it."""
    order = np.argsort(code, kind="stable")
    edges = np.flatnonzero(np.diff(code[order])) + 1
    for mine in np.split(order, edges):
        yield int(code[mine[0]]), mine


def _times(offset: Any, ms: Any) -> Iterator[tuple[Any, ...]]:
    rising = (offset[1:] > offset[:-1]).all()
    if not rising:
        order = np.lexsort((ms, offset))
        offset, ms = offset[order], ms[order]
    edges = np.flatnonzero(np.diff(offset >> BLOCK_BITS)) + 1
    for start, end in itertools.pairwise([0, *edges.tolist(), len(offset)]):
        mine = offset[start:end]
        in_a_row = rising and mine[-1] - mine[0] == len(mine) - 1
        yield ORDER_LANE, int(mine[0]) >> BLOCK_BITS, len(mine), int(mine[0]), b"" if in_a_row else mine.tobytes(), _shortened(ms[start:end])


def _shortened(ms: Any) -> bytes:
    low = ms.min()
    if low != NO_TIME and ms.max() - low < 1 << 32:
        return bytes(low.tobytes() + (ms - low).astype(np.uint32).tobytes())
    return bytes(bytes(8) + ms.tobytes())


def _times_of(cell: tuple[Any, ...]) -> tuple[Any, Any]:
    """The offsets and times that `_times` put into a cell."""
    number, base, left, right = cell[4:]
    offset = np.frombuffer(left, np.int64) if len(left) else np.arange(base, base + number)
    kind = np.uint32 if len(right) == 8 + 4 * number else np.int64
    return offset, np.frombuffer(right, np.int64, 1) + np.frombuffer(right, kind, offset=8).astype(np.int64)


def _hashes(one: Any, two: Any) -> Iterator[tuple[Any, ...]]:
    total = len(one)
    in_order = np.sort(one)
    # a log that repeats itself a lot would fill one lane
    if np.count_nonzero(in_order[1:] == in_order[:-1]) > total // 8:
        one, two = distinct(one, two)
    lane = (one >> np.uint64(64 - LANE_BITS)).astype(np.uint8)
    order = np.argsort(lane, kind="stable")
    one, two, lane = one[order], two[order], lane[order]
    dropped = total - len(one)
    for start, end in itertools.pairwise(np.searchsorted(lane, range((1 << LANE_BITS) + 1)).tolist()):
        if start < end:
            yield int(lane[start]), 0, dropped, 0, one[start:end].tobytes(), two[start:end].tobytes()
            dropped = 0


def find(keep: float) -> Any:
    """The reduce side, for batches of what `pack` made, sorted by topic, partition, lane and block.

    A row has the columns that its task's lanes give; `merged` combines rows.

    Args:
        keep: The share of the records that `watermark_delay_ms` keeps.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (topic, partition), cells in groupby(_cells(batches), key=lambda cell: cell[:2]):
            row: dict[str, Any] = {"topic": topic, "partition": partition, "duplicate_records": 0}
            for lane, mine in groupby(cells, key=lambda cell: cell[2]):
                if lane == ORDER_LANE:
                    row |= _order(mine, keep)
                else:
                    row["duplicate_records"] += _repeats(mine)
            yield pa.RecordBatch.from_pylist([row], schema=pa.schema(FOUND_SCHEMA))

    return run


def merged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the tasks found, one row per topic and partition, sorted."""
    whole: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        mine = whole.setdefault((row["topic"], row["partition"]), {"duplicate_records": 0})
        repeats = mine["duplicate_records"] + row["duplicate_records"]
        mine |= {name: value for name, value in row.items() if value is not None} | {"duplicate_records": repeats}
    return [dict.fromkeys(name for name, _ in FOUND_SCHEMA) | whole[place] for place in sorted(whole)]


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        numbers = [batch[name].to_pylist() for name in ("topic", "partition", "lane", "block", "number", "base")]
        data = [[cell.as_buffer() for cell in batch[name]] for name in ("left", "right")]
        yield from zip(*numbers, *data, strict=True)


def _order(cells: Iterable[tuple[Any, ...]], keep: float) -> dict[str, Any]:
    order = Order()
    for _, block in groupby(cells, key=lambda cell: cell[3]):
        parts = [_times_of(cell) for cell in block]
        offset, ms = (np.concatenate(column) for column in zip(*parts, strict=True))
        if not (offset[1:] > offset[:-1]).all():
            by = np.lexsort((ms, offset))
            offset, ms = offset[by], ms[by]
        order.add(offset, ms)
    late = order.lateness
    return {
        "records": order.records,
        "first_offset": order.first,
        "last_offset": order.last,
        "gaps": order.gaps,
        "duplicate_offsets": order.repeated_offsets,
        "timestamp_inversions": order.inversions,
        "inversion_max_ms": order.inversion_max_ms,
        "lateness_p50_ms": late.at(0.5),
        "lateness_p99_ms": late.at(0.99),
        "lateness_p999_ms": late.at(0.999),
        "lateness_p9999_ms": late.at(0.9999),
        "lateness_max_ms": late.at(1),
        "watermark_delay_ms": late.at(keep),
        "newest_ms": order.newest,
        "lateness": late.decades(),
    }


def _repeats(cells: Iterable[tuple[Any, ...]]) -> int:
    kept = list(cells)
    one, two = (np.concatenate([np.frombuffer(cell[at], kind) for cell in kept]) for at, kind in ((6, np.uint64), (7, np.uint32)))
    dropped: int = sum(cell[4] for cell in kept)
    return dropped + repeated(one, two)
