"""Our part of the load on a cluster; `java/clients/Load.java` does the same with Java's clients.

`python -m judges.interop.load BOOTSTRAP` reads lines that start workers, each with a thread and a number of its own:
"producer N TOPIC PARTITIONS FIRST k=v..", "transactions N TOPIC PARTITIONS FIRST k=v..", "group N TOPIC,.. GROUP k=v..",
"copy N FROM TO FIRST GROUP k=v..". Values are numbers that count from FIRST. "end N" ends a worker, the end of the input ends all.

Prints one JSON object a line: an operation {process, begin, end (nanoseconds of CLOCK_MONOTONIC), outcome (ok, failed, unknown),
transaction, isolation, group, polled: [[partition, offset, value]..], sends: [[partition, value, offset, source]..], error}; {process,
begin, end, moved: [partition..]}, which the process reads on from elsewhere; {process, at, owns: [partition..], generation} after an assignment;
{ended: N}; {surprise: text}.
"""

# ruff: noqa: T201

from __future__ import annotations

import contextlib
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import fletchlog as fl
from fletchlog.errors import KafkaError, KafkaTimeoutError

PAUSE_SECONDS = 0.02
POLL_MS = 200
PRINTING = threading.Lock()
Op = dict[str, Any]


def note(line: Op) -> None:
    """One line, whole."""
    with PRINTING:
        print(json.dumps(line), flush=True)


def place(tp: Any) -> str:
    """As Java prints it."""
    return f"{tp.topic}-{tp.partition}"


def until_decided(call: Callable[[], object]) -> None:
    """Again while it times out."""
    while True:
        with contextlib.suppress(KafkaTimeoutError):
            call()
            return


class Worker:
    """One client, or the two of a copy."""

    def __init__(self, address: str, words: list[str]) -> None:
        self.kind, self.process = words[0], int(words[1])
        self.words = [word for word in words[2:] if "=" not in word]
        self.config = {"bootstrap.servers": address} | dict(word.split("=", 1) for word in words if "=" in word)
        self.ending = threading.Event()
        self.moved: list[str] = []
        self.moved_at = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            {"producer": self.produce, "transactions": self.transactions, "group": self.group, "copy": self.copy}[self.kind]()
            note({"ended": self.process})
        except BaseException as failure:  # noqa: BLE001
            note({"surprise": f"{self.kind} {self.process}: {failure!r}"})

    def known(self, scope: str) -> dict[str, str]:
        """Those properties that this client has: a copy has two."""
        names = {key.name for key in fl.admin.config_table() if key.scope == scope}
        return {name: value for name, value in self.config.items() if name in names}

    def producer(self) -> fl.Producer:
        """With its transactions, if it has any."""
        producer = fl.Producer(self.known("producer"))
        if "transactional.id" in self.config:
            until_decided(producer.init_transactions)
        return producer

    def consumer(self, topics: str, group: str) -> fl.Consumer:
        """A member of the group."""
        consumer = fl.Consumer(self.known("consumer") | {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"})

        def owns(without: list[Any]) -> None:
            owned = sorted(place(tp) for tp in consumer.assignment() if tp not in without)
            note({"process": self.process, "at": time.monotonic_ns(), "owns": owned, "generation": consumer.group_metadata().generation_id})

        def assigned(partitions: list[Any]) -> None:
            self.moved += map(place, partitions)
            self.moved_at = time.monotonic_ns()
            owns([])

        consumer.subscribe(topics.split(","), on_assigned=assigned, on_revoked=owns)
        return consumer

    def produce(self) -> None:
        """One record after the other, each in an operation."""
        topic, partitions, value = self.words[0], int(self.words[1]), int(self.words[2])
        with self.producer() as producer:
            while not self.ending.is_set():
                begin, where = time.monotonic_ns(), value % partitions

                def decided(at: Any, failure: Any, value: int = value, begin: int = begin, where: int = where) -> None:
                    op = self.op(begin, "unknown" if failure else "ok")
                    op["sends"].append([f"{topic}-{where}", value, None if failure else at.offset, None])
                    self.finished(op, failure)

                producer.send(topic, b"%d" % value, partition=where, callback=decided)
                value += 1
                time.sleep(PAUSE_SECONDS)

    def op(self, begin: int, outcome: str, *, transaction: bool = False) -> Op:
        """An operation that has begun."""
        return {"process": self.process, "begin": begin, "end": None, "outcome": outcome, "transaction": transaction, "sends": []}

    def finished(self, op: Op, error: object = None) -> None:
        """Prints it."""
        op["end"] = op["end"] or time.monotonic_ns()
        note(op | ({"error": repr(error)} if error else {}))

    def transactions(self) -> None:
        """Some records in each; one of four is aborted."""
        topic, partitions, value = self.words[0], int(self.words[1]), int(self.words[2])
        producer = self.producer()
        while not self.ending.is_set():
            op = self.op(time.monotonic_ns(), "unknown", transaction=True)
            records = [(f"{topic}-{random.randrange(partitions)}", value + i, None) for i in range(random.randrange(1, 11))]
            value += len(records)
            producer = self.carry_out(producer, op, records, commit=random.randrange(4) > 0)
            time.sleep(5 * PAUSE_SECONDS)
        producer.close()

    def carry_out(self, producer: fl.Producer, op: Op, records: list[Any], *, commit: bool, offsets: Any = None) -> fl.Producer:
        """A transaction to its end; the producer to go on with."""
        futures: list[fl.types.RecordFuture] = []
        error = None
        try:
            producer.begin_transaction()
            for where, value, _ in records:
                topic, partition = where.rsplit("-", 1)
                futures.append(producer.send(topic, b"%d" % value, partition=int(partition)))
            if offsets is not None:
                producer.send_offsets_to_transaction(*offsets)
            until_decided(producer.commit_transaction if commit else producer.abort_transaction)
            op["outcome"] = "ok" if commit else "failed"
        except KafkaError as failure:
            error = failure
            try:
                until_decided(producer.abort_transaction)
                op["outcome"] = "failed"
            except KafkaError:
                # the new producer ends what was open, one way or the other
                producer.close(0)
                producer = self.producer()
        op["end"] = time.monotonic_ns()
        for i, (where, value, source) in enumerate(records):
            done = futures[i] if i < len(futures) and futures[i].done() else None
            op["sends"].append([where, value, done.result().offset if done and done.exception() is None else None, source])
        self.finished(op, error)
        return producer

    def poll(self, consumer: fl.Consumer, op: Op, group: str) -> list[Any]:
        """One poll, noted in the operation."""
        records = list(consumer.poll(timeout_ms=POLL_MS))
        if self.moved:
            self.note_moved(op["begin"])
            op["begin"] = self.moved_at
        op["end"] = time.monotonic_ns()
        op |= {"isolation": self.config.get("isolation.level", "read_uncommitted"), "group": group}
        op["polled"] = [[place(r), r.offset, int(r.value)] for r in records]
        return records

    def note_moved(self, begin: int) -> None:
        """The process reads on from elsewhere."""
        note({"process": self.process, "begin": begin, "end": time.monotonic_ns(), "moved": self.moved})
        self.moved = []

    def group(self) -> None:
        """Reads and commits."""
        with self.consumer(self.words[0], self.words[1]) as consumer:
            while not self.ending.is_set():
                op = self.op(time.monotonic_ns(), "ok")
                if self.poll(consumer, op, self.words[1]):
                    self.finished(op)
                # another member may have the partitions, or the coordinator moves: the next commit counts
                with contextlib.suppress(KafkaError):
                    consumer.commit()

    def copy(self) -> None:
        """Each record once to the other topic, with its offset in the same transaction."""
        source, target, value, group = self.words[0], self.words[1], int(self.words[2]), self.words[3]
        producer = self.producer()
        with self.consumer(source, group) as consumer:
            while not self.ending.is_set():
                op = self.op(time.monotonic_ns(), "unknown", transaction=True)
                polled = self.poll(consumer, op, group)
                if not polled:
                    continue
                op["end"] = None
                records = [(f"{target}-{r.partition}", value + i, int(r.value)) for i, r in enumerate(polled)]
                value += len(records)
                positions = {fl.TopicPartition(r.topic, r.partition): r.offset + 1 for r in polled}
                producer = self.carry_out(producer, op, records, commit=True, offsets=(positions, consumer.group_metadata()))
                if op["outcome"] != "ok":
                    self.go_back(consumer)
        producer.close()

    def go_back(self, consumer: fl.Consumer) -> None:
        """To what the group has committed."""
        begin = time.monotonic_ns()

        def seek() -> None:
            for tp, at in consumer.committed(consumer.assignment()).items():
                consumer.seek(tp, at.offset if at else 0)

        until_decided(seek)
        self.moved += map(place, consumer.assignment())
        self.note_moved(begin)


def main() -> None:
    """Until the input ends."""
    workers: dict[str, Worker] = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == "end":
            workers[words[1]].ending.set()
        else:
            workers[words[1]] = Worker(sys.argv[1], words)
    for worker in workers.values():
        worker.ending.set()
    for worker in workers.values():
        worker.thread.join()


if __name__ == "__main__":
    main()
