"""What the threads of `workload` noted, and whether a directory holds what it then has to hold.

A note is a list: a word and its arguments. What is about to be done is noted before ("transaction", "keep", "commit", "create",
"delete"), what was acknowledged afterwards ("sent", "ended", "kept", "committed", "created", "marked", "deleted", "not-created"). A note
of the first kind without one of the second is open: the directory may hold either. What a check finds settles it; the notes of
the check ("ends", "settled", and those above) belong to the history of the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fletchlog as fl

PRODUCERS, PARTITIONS = 3, 3
SENT, TRANSACTIONAL, COMPACTED, GROUP, TRANSACTIONAL_ID = "sent", "transactional", "compacted", "group", "transactions"
TOPICS = {
    SENT: (PARTITIONS, {"internal.segment.bytes": 1500, "index.interval.bytes": 200}),
    TRANSACTIONAL: (2, {"internal.segment.bytes": 1500}),
    COMPACTED: (1, {"cleanup.policy": "compact", "internal.segment.bytes": 1000, "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 0}),
}
CONFIG = {"fletchlog.durability": "fsync", "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}

Note = list[Any]


@dataclass
class History:
    """What is acknowledged, and what is open."""

    sent: dict[str, tuple[int, int]] = field(default_factory=dict)  # value -> partition, offset
    ends: dict[int, int] = field(default_factory=dict)  # partition -> an end that was seen
    transactions: dict[str, int] = field(default_factory=dict)  # -> its records
    ended: dict[str, bool] = field(default_factory=dict)  # -> whether it was committed
    kept: dict[str, list[str]] = field(default_factory=dict)  # key -> the acknowledged value and those tried since
    topics: dict[str, bool] = field(default_factory=dict)  # -> whether it exists; what is open is not there
    marks: dict[str, str] = field(default_factory=dict)  # topic -> a value in it
    commits: list[int | None] = field(default_factory=lambda: [None])  # the acknowledged one and those tried since
    errors: list[str] = field(default_factory=list)

    def take(self, notes: Iterable[Note]) -> History:
        """Adds notes."""
        for note in notes:
            self._take(note)
        return self

    def _take(self, note: Note) -> None:
        match note:
            case ["sent", value, partition, offset]:
                self.sent[value] = (partition, offset)
            case ["ends", partition, end]:
                self.ends[partition] = end
            case ["transaction", name, records]:
                self.transactions[name] = records
            case ["ended", name, committed]:
                self.ended[name] = committed
            case ["keep", key, value]:
                self.kept.setdefault(key, [""]).append(value)
            case ["kept", key, value]:
                values = self.kept[key]
                self.kept[key] = values[values.index(value) :]
            case ["commit", offset]:
                self.commits.append(offset)
            case ["committed", offset]:
                self.commits = self.commits[len(self.commits) - 1 - self.commits[::-1].index(offset) :]
            case ["create" | "delete", topic]:
                self.topics.pop(topic, None)
                self.marks.pop(topic, None)
            case ["created" | "deleted" | "not-created" as what, topic]:
                self.topics[topic] = what == "created"
            case ["settled", topic, exists]:
                self.topics[topic] = exists
            case ["marked", topic, value]:
                self.marks[topic] = value
            case ["error", text]:
                self.errors.append(text)
            case _:
                raise ValueError(f"a note that nobody knows: {note}")


def read(broker: fl.Broker, topic: str, isolation: str = "read_uncommitted") -> list[fl.types.Record]:
    """Every record of a topic, by a consumer."""
    found: list[fl.types.Record] = []
    with fl.Consumer(broker, {"isolation.level": isolation, "fetch.max.wait.ms": 0}) as consumer:
        consumer.assign([fl.TopicPartition(topic, partition) for partition in range(len(broker.describe_topic(topic).partitions))])
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(consumer.assignment())
        positions: dict[fl.TopicPartition, int] = {}
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records = list(consumer.poll(timeout_ms=10_000))
            before, positions = positions, {partition: consumer.position(partition) for partition in ends}
            if not records and positions == before:
                raise RuntimeError(f"{topic} cannot be read to its end: nothing comes at {positions}, and it ends at {ends}")
            found += records
    return found


class Check:
    """Holds an open broker against a history. `wrong` has a line for each promise that is not kept, `notes` what is settled now."""

    def __init__(self, broker: fl.Broker, history: History, *, gapless: bool) -> None:
        """`gapless`: no send has failed, so no producer may have left one out."""
        self.broker, self.history, self.gapless = broker, history, gapless
        self.wrong = [f"a thread of the workload ended: {error}" for error in history.errors]
        self.notes: list[Note] = []
        self.there = set(broker.topics())
        self._topics()
        for topic, look in ((SENT, self._sent), (TRANSACTIONAL, self._transactions), (COMPACTED, self._compacted), (SENT, self._committed)):
            if topic in self.there:
                look()

    def _topics(self) -> None:
        history = self.history
        for topic, exists in history.topics.items():
            if exists != (topic in self.there):
                self.wrong.append(f"topic {topic} is {'lost' if exists else 'there again'}")
        for topic, value in history.marks.items():
            if topic in self.there and value.encode() not in [record.value for record in read(self.broker, topic)]:
                self.wrong.append(f"topic {topic} has lost its record {value}")
        names = {*history.topics, *TOPICS, *self.there} - {"__consumer_offsets", "__transaction_state"}
        self.notes += [["settled", topic, topic in self.there] for topic in sorted(names)]

    def _sent(self) -> None:
        found: dict[str, tuple[int, int]] = {}
        last: dict[tuple[str, str, int], int] = {}
        for record in read(self.broker, SENT):
            value, place = (record.value or b"").decode(), (record.partition, record.offset)
            if value in found:
                self.wrong.append(f"{value} is there twice, at {found[value]} and {place}")
            found[value] = place
            run, producer, number = value.split("-")
            before = last.get((run, producer, record.partition))
            if before is not None and int(number) <= before:
                self.wrong.append(f"{value} at {place} comes after number {before} of its producer")
            elif before is not None and self.gapless and int(number) != before + PARTITIONS:
                self.wrong.append(f"{value} at {place} follows number {before} of its producer: one is missing in between")
            last[run, producer, record.partition] = int(number)
        for value, place in self.history.sent.items():
            if found.get(value) != place:
                self.wrong.append(f"{value} was acknowledged at {place}, and is " + (f"at {found[value]}" if value in found else "lost"))
        for partition in range(PARTITIONS):
            end = 1 + max((offset for at, offset in found.values() if at == partition), default=-1)
            if end < self.history.ends.get(partition, 0):
                self.wrong.append(f"{SENT}-{partition} ends at {end}, and was seen to end at {self.history.ends[partition]}")
            self.notes.append(["ends", partition, end])

    def _transactions(self) -> None:
        # The next producer of this name decides what is open.
        with fl.Producer(self.broker, {"transactional.id": TRANSACTIONAL_ID}) as producer:
            producer.init_transactions()
        written = Counter((record.value or b"").decode() for record in read(self.broker, TRANSACTIONAL))
        visible = {(record.value or b"").decode() for record in read(self.broker, TRANSACTIONAL, "read_committed")}
        self.wrong += [f"{value} is there {count} times" for value, count in written.items() if count > 1]
        for name, records in self.history.transactions.items():
            seen = sum(f"{name}/{number}" in visible for number in range(records))
            committed = self.history.ended.get(name)
            if seen not in (0, records):
                self.wrong.append(f"transaction {name} is torn: {seen} of its {records} records are visible")
            elif committed is not None and (seen > 0) != committed:
                self.wrong.append(f"transaction {name} was {'committed' if committed else 'aborted'}, and its records are {'' if seen else 'not '}visible")
            if committed is None:
                self.notes.append(["ended", name, seen > 0])

    def _compacted(self) -> None:
        latest = {(record.key or b"").decode(): (record.value or b"").decode() for record in read(self.broker, COMPACTED)}
        for key, values in self.history.kept.items():
            found = latest.get(key, "")
            if found not in values:
                self.wrong.append(f"the newest value of key {key} is {found or 'lost'}, not {' or '.join(values)}")
            else:
                self.notes.append(["kept", key, found])

    def _committed(self) -> None:
        with fl.Consumer(self.broker, {"group.id": GROUP, "enable.auto.commit": False}) as consumer:
            consumer.assign([(SENT, 0)])
            found = consumer.committed((SENT, 0))
        offset = None if found is None else found.offset
        if offset not in self.history.commits:
            self.wrong.append(f"the group's offset is {offset}, not one of {self.history.commits}")
        else:
            self.notes.append(["committed", offset])


def damage(directory: Path) -> list[str]:
    """What `verify` says of a closed directory. What belonged to no topic was put aside as it was found, and is not looked at."""
    if not any(entry.is_dir() for entry in directory.iterdir()):
        return []  # No topic was made before the process ended.
    return [
        f"verify: {report.name}: {problem.reason}"
        for report in fl.files.verify(directory)
        if not report.ok and not report.name.endswith("-stray")
        for problem in (*report.damaged, *report.index_problems)
    ]
