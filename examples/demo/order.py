"""Part 3: the same records polled in the order of Kafka 2.6 and in the order of KIP-387, as a picture and in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.explain import picture, shapes

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from demo.report import Report

ORDERS = (
    ("partition", "Kafka 2.6: poll() keeps to one partition until its fetched records are used up"),
    ("kip-387", "KIP-387: every poll() turns to the next partition"),
)
# enough for three rounds of the first order, few enough to see single polls
DRAWN_POLLS = 72


def compare(broker: Any, topic: str, report: Report, progress: Progress, path: Path) -> None:
    """Polls everything in both orders and draws the first polls of each."""
    import fletchlog as fl

    report.heading("3. The same records polled in two orders")
    described = broker.describe_topic(topic).partitions
    total = sum(p.high_watermark - p.log_start_offset for p in described)
    explanations, numbers = [], {}
    rows: list[dict[str, Any]] = []
    for order, _ in ORDERS:
        # a node answers at once, also when all it was asked for is at its end: nothing here depends on time
        config: dict[str, Any] = {"auto.offset.reset": "earliest", "fetch.max.wait.ms": 0, "fletchlog.consumer.version": "2.6", "fletchlog.fetch.order": order}
        polls, count = [], 0
        task = progress.add_task(f"polling: {order}", total=total)
        with fl.Consumer(broker, config | {"fletchlog.trace": True}) as consumer:
            consumer.assign([fl.TopicPartition(topic, p.partition) for p in described])
            while count < total:
                records = consumer.poll(timeout_ms=5000)
                if not len(records):
                    break
                polls.append(records.runs())
                count += len(records)
                progress.update(task, completed=count)
            explanations.append(consumer.explain())
        lengths = picture.run_lengths(explanations[-1].story)
        every = sorted(length for item in lengths.values() for length in item)
        report.check(f"{order}: records polled", count, total)
        report.check(f"{order}: offsets of each partition ascend without a gap", _in_order(polls), True)
        row = {
            "order": order,
            "polls": len(polls),
            "records": count,
            "runs": len(every),
            "typical_run": every[len(every) // 2],
            "longest_run": every[-1],
        }
        rows.append(row)
        numbers[order] = row | {"run_lengths": {f"{t}-{p}": item for (t, p), item in sorted(lengths.items())}}
    headline = "Same records, same settings: which partition does each poll() return?"
    drawing = picture.draw(explanations, headline, titles=[title for _, title in ORDERS], polls=DRAWN_POLLS)
    path.write_bytes(shapes.to_png(drawing))
    report.data["order"] = numbers
    report.rows(rows)
    report.say(f"A run is how many records come from one partition before another has its turn. Picture: {path}")
    classic, fair = rows
    report.check_that("runs are longer in Kafka's order than in KIP-387's", classic["typical_run"] > fair["typical_run"])


def _in_order(polls: list[Any]) -> bool:
    expected: dict[tuple[str, int], int] = {}
    for run in (run for runs in polls for run in runs):
        if run.first_offset != expected.get((run.topic, run.partition), 0) or run.last_offset != run.first_offset + run.count - 1:
            return False
        expected[run.topic, run.partition] = run.last_offset + 1
    return True
