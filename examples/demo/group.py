"""Part 2: three members of six streams each share six partitions under the legacy range assignor, then one of them leaves."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from demo.report import Report

GROUP = "flights-group"
MEMBERS = ("machine-1", "machine-2", "machine-3")
STREAMS = 6
IDLE_WARNING = "No broker partitions consumed by consumer thread"


def share(broker: Any, topic: str, report: Report, progress: Progress) -> None:
    """Consumes the topic: the first half with all members, the rest after one of them has left."""
    import fletchlog as fl

    described = broker.describe_topic(topic).partitions
    report.heading(f"2. {len(MEMBERS)} members of {STREAMS} streams share {len(described)} partitions (legacy range assignor)")
    total = sum(p.high_watermark - p.log_start_offset for p in described)
    task = progress.add_task("consuming as a group", total=total)
    warnings = _Warnings()
    logger = logging.getLogger("fletchlog")
    logger.addHandler(warnings)
    propagate, logger.propagate = logger.propagate, False
    workers = _Workers(lambda count: progress.advance(task, count))
    consumers = {}
    try:
        for member in MEMBERS:
            config = {"group.id": GROUP, "consumer.id": member, "auto.offset.reset": "smallest"}
            consumers[member] = fl.legacy.LegacyConsumer(broker, config)
        streams = {m: consumer.create_message_streams({topic: STREAMS})[topic] for m, consumer in consumers.items()}
        before = consumers[MEMBERS[0]].owners()[topic]
        idle_before = warnings.take()
        leaver = next(m for m in MEMBERS if _owned(before, f"{GROUP}_{m}"))
        workers.allow(total // 2)
        for member in MEMBERS:
            workers.start(member, streams[member])
        workers.wait(lambda: workers.consumed >= total // 2)
        workers.stop(leaver)
        left_after = workers.consumed
        consumers[leaver].close()
        stayed = next(m for m in MEMBERS if m != leaver)
        after = consumers[stayed].owners()[topic]
        idle_after = warnings.take()
        workers.allow(total)
        workers.wait(lambda: workers.consumed >= total)
    finally:
        workers.stop_all()
        for consumer in consumers.values():
            consumer.close()
        logger.removeHandler(warnings)
        logger.propagate = propagate
    threads = {f"{GROUP}_{m}-{i}": m for m in MEMBERS for i in range(STREAMS)}
    left = {thread for thread, member in threads.items() if member == leaver}
    expected = _rule(fl, topic, len(before), MEMBERS), _rule(fl, topic, len(before), [m for m in MEMBERS if m != leaver])
    report.data["group"] = {
        "threads": sorted(threads),
        "owners": {str(p): thread for p, thread in before.items()},
        "idle": sorted(set(threads) - set(before.values())),
        "left": leaver,
        "left_after_records": left_after,
        "owners_after": {str(p): thread for p, thread in after.items()},
        "idle_after": sorted(set(threads) - left - set(after.values())),
        "consumed": workers.per_member,
    }
    report.rows(_table(before, idle_before, MEMBERS), left=2)
    report.say(f"{leaver} leaves after {left_after:,} records:")
    report.rows(_table(after, idle_after, [m for m in MEMBERS if m != leaver]), left=2)
    report.say(
        "With more threads than partitions the first six threads in the order of their names get one partition each: all on one machine. "
        "No more than two streams per machine would use all three."
    )
    report.check("group: owners", before, expected[0])
    report.check("group: owners after one has left", after, expected[1])
    report.check("group: idle threads that were warned about", sorted(set(idle_before)), sorted(set(threads) - set(before.values())))
    report.check("group: records consumed by all members together", workers.consumed, total)
    report.check("group: records consumed twice or never", workers.disorder(total), 0)


def _rule(fl: Any, topic: str, partitions: int, members: Any) -> dict[int, str]:
    """The same assignment from the pure function."""
    assigned = fl.assign.legacy_range({topic: partitions}, {f"{GROUP}_{member}": {topic: STREAMS} for member in members})
    return {partition: thread for thread, topics in assigned.items() for partition in topics[topic]}


def _owned(owners: dict[int, str], consumer: str) -> list[int]:
    return sorted(partition for partition, thread in owners.items() if thread.rpartition("-")[0] == consumer)


def _table(owners: dict[int, str], idle: list[str], members: Any) -> list[dict[str, Any]]:
    rows = []
    for member in members:
        mine = {partition: thread for partition, thread in sorted(owners.items()) if thread.rpartition("-")[0] == f"{GROUP}_{member}"}
        owning = ", ".join(f"p{partition}" for partition in mine)
        rows.append(
            {
                "member": member,
                "owns": f"{owning} ({len(set(mine.values()))} streams)" if mine else "nothing",
                "idle_streams": STREAMS - len(set(mine.values())),
                "warnings": sum(1 for thread in set(idle) if thread.rpartition("-")[0] == f"{GROUP}_{member}"),
            }
        )
    return rows


class _Warnings(logging.Handler):
    """Thread ids that the engine warned about."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._threads: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(IDLE_WARNING):
            self._threads.append(text.removeprefix(IDLE_WARNING).split()[0])

    def take(self) -> list[str]:
        """Those since the last call."""
        taken, self._threads = self._threads, []
        return taken


class _Workers:
    """One thread per stream, as the legacy consumer wants it."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance
        self._changed = threading.Condition()
        self._running: dict[str, tuple[threading.Event, list[threading.Thread]]] = {}
        self._runs: list[Any] = []
        self._failure: BaseException | None = None
        self._allowed = 0
        self.consumed = 0
        self.per_member: dict[str, int] = {}

    def start(self, member: str, streams: list[Any]) -> None:
        """Polls each stream by a thread of its own."""
        stop = threading.Event()
        self.per_member[member] = 0
        threads = [threading.Thread(target=self._work, args=(member, stream, stop), daemon=True) for stream in streams]
        self._running[member] = stop, threads
        for thread in threads:
            thread.start()

    def allow(self, records: int) -> None:
        """Threads pause when so many records have been consumed in all (one poll each may go beyond)."""
        with self._changed:
            self._allowed = records
            self._changed.notify_all()

    def stop(self, member: str) -> None:
        """Ends the threads of a member; what they polled counts as consumed."""
        stop, threads = self._running.pop(member)
        with self._changed:
            stop.set()
            self._changed.notify_all()
        for thread in threads:
            thread.join()

    def stop_all(self) -> None:
        """Ends all threads."""
        for member in list(self._running):
            self.stop(member)

    def wait(self, reached: Callable[[], bool]) -> None:
        """Waits for a state of the counters."""
        with self._changed:
            if not self._changed.wait_for(lambda: reached() or self._failure is not None, timeout=120):
                raise TimeoutError(f"the group makes no progress after {self.consumed:,} records")
        if self._failure is not None:
            raise self._failure

    def disorder(self, total: int) -> int:
        """Records outside one unbroken ascent per partition."""
        position: dict[int, int] = {}
        wrong = 0
        for run in sorted(self._runs, key=lambda run: (run.partition, run.first_offset)):
            wrong += abs(run.first_offset - position.get(run.partition, 0))
            position[run.partition] = run.last_offset + 1
        return wrong + abs(total - sum(position.values()))

    def _work(self, member: str, stream: Any, stop: threading.Event) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: stop.is_set() or self.consumed < self._allowed)
                if stop.is_set():
                    return
                records = stream.poll(timeout_ms=100)
                if not len(records):
                    continue
                with self._changed:
                    self._runs += records.runs()
                    self.per_member[member] += len(records)
                    self.consumed += len(records)
                    self._changed.notify_all()
                self._advance(len(records))
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
            with self._changed:
                self._failure = error
                self._changed.notify_all()
