"""`fletchlog consume --share-group`: the records that a member of a share group acquires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.cli.interrupts import held
from fletchlog.cli.terminal import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

# A share group has no end: without --follow the command ends when no record has come for this long.
IDLE_MS = 5_000
POLL_MS = 1_000
# Most records of a poll, Kafka's default.
MOST = 500


def polls(place: Any, topics: list[str], group: str, client: Mapping[str, Any], limit: int | None, *, follow: bool) -> Iterator[pa.RecordBatch]:
    """Acquired records, with headers. Those of a poll are accepted when the next batch is asked for, that is, when they were written."""
    import fletchlog as fl

    given = {"share.acquire.mode": "record_limit", **client, "share.acknowledgement.mode": "explicit"}
    given["max.poll.records"] = min(int(given.get("max.poll.records", MOST)), limit if limit is not None else MOST)
    left, idle_ms = limit, 0
    with fl.ShareConsumer(place, given, group=group, topics=topics) as consumer, progress() as bar:
        task = bar.add_task("consuming", total=limit)
        while left is None or left > 0:
            records = consumer.poll(POLL_MS)
            if not records:
                idle_ms += POLL_MS
                if idle_ms >= IDLE_MS and not follow:
                    return
                continue
            idle_ms = 0
            taken = records if left is None else records[:left]
            yield from taken.to_pyarrow(include_headers=True, timestamp_unit="ms").to_batches()
            with held():
                if len(taken) < len(records):
                    consumer.acknowledge(records, "release")
                consumer.acknowledge(taken)
                consumer.commit()
            bar.advance(task, len(taken))
            left = None if left is None else left - len(taken)
