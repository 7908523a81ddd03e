"""What a notebook shows of records, tables, topics: small HTML tables, plain enough for light and dark pages."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fletchlog._core import Broker, Records, Table
    from fletchlog.admin import TopicDescription

ROWS = 10
# of a key or value, so that a row stays a line
BYTES = 40


def records(value: Records) -> str:
    """The runs of a poll, and its first rows."""
    runs = value.runs()
    rows = [(f"{run.topic}-{run.partition}", f"{run.first_offset:,}", f"{run.last_offset:,}", f"{run.count:,}") for run in runs[:ROWS]]
    head = f"{counted(len(value), 'record')} of {counted(len(value.partitions()), 'partition')}, in the order in which poll took them"
    text = grid(head, ("partition", "first offset", "last offset", "records"), rows, more=len(runs) - ROWS)
    if not len(value):
        return text
    first = []
    for row in value:
        first.append((f"{row.topic}-{row.partition}", f"{row.offset:,}", row.timestamp, _bytes(row.key), _bytes(row.value)))
        if len(first) == ROWS:
            break
    return text + grid("The first rows", ("partition", "offset", "timestamp, ms", "key", "value"), first, more=len(value) - ROWS)


def table(value: Table) -> str:
    """The first rows of a table."""
    whole = value.to_pyarrow()
    rows = [tuple("" if cell is None else cell for cell in row.values()) for row in whole.slice(0, ROWS).to_pylist()]
    return grid(counted(len(value), "row"), whole.column_names, rows, more=len(value) - ROWS)


def broker(value: Broker) -> str:
    """The topics of a broker, while it is open."""
    from fletchlog.errors import ClosedError

    try:
        return _topics(value)
    except ClosedError:
        return f"<pre>{html.escape(repr(value))}</pre>"


def _topics(value: Broker) -> str:
    described = [value.describe_topic(topic) for topic in value.topics()]
    rows = [
        (
            topic.name,
            len(topic.partitions),
            f"{sum(p.high_watermark - p.log_start_offset for p in topic.partitions):,}",
            f"{sum(max(p.size_bytes, 0) for p in topic.partitions):,}",
        )
        for topic in described
    ]
    return grid(f"{counted(len(described), 'topic')} on {counted(len(value.nodes), 'node')}", ("topic", "partitions", "offsets", "bytes"), rows)


def topic(value: TopicDescription) -> str:
    """The partitions of a topic."""
    rows = [(p.partition, p.leader, f"{p.log_start_offset:,}", f"{p.high_watermark:,}", f"{p.size_bytes:,}", p.segments) for p in value.partitions]
    return grid(value.name, ("partition", "leader", "log start", "high watermark", "bytes", "segments"), rows)


def grid(caption: str, columns: Iterable[str], rows: Sequence[Sequence[Any]], *, more: int = 0) -> str:
    """A table with a caption; `more` rows are only counted."""
    heads = "".join(f'<th scope="col">{html.escape(str(column))}</th>' for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    rest = f"<p><small>and {more:,} more</small></p>" if more > 0 else ""
    return (
        f'<table><caption style="caption-side:top;text-align:left">{html.escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{rest}"
    )


def _bytes(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = value[:BYTES].decode("utf-8", "backslashreplace")
    return text + ("…" if len(value) > BYTES else "")
