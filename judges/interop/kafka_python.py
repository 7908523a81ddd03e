"""kafka-python's programs for plans of faults: the lines of `java/plans/Plans.java`, and the same words printed."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

with warnings.catch_warnings():
    # it reads its schemas by calls that newer Pythons are to drop
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.errors import KafkaError

RECORDS = 5
PATIENCE = 10.0
Config = dict[str, Any]


def word(error: BaseException) -> str:
    """Its class."""
    return type(error).__name__


def sends(seen: list[str], topic: str, config: Config) -> None:
    """Five records, one request each: the error of each."""
    producer = KafkaProducer(**config)
    try:
        for number in range(RECORDS):
            try:
                producer.send(topic, value=b"%d" % number, partition=0).get(30)
                seen.append("written")
            except KafkaError as error:
                seen.append(word(error))
    finally:
        producer.close(5)


def transacts(seen: list[str], topic: str, config: Config) -> None:
    """Three transactions: the outcome of each, and of the aborts."""
    pause = config.pop("pause_ms", 0)
    producer = KafkaProducer(**config)
    try:
        producer.init_transactions()
        for number in range(3):
            try:
                producer.begin_transaction()
                producer.send(topic, value=b"%d" % number, partition=0)
                if number == 0 and pause:
                    producer.flush()
                    time.sleep(pause / 1000)
                producer.commit_transaction()
                seen.append("committed")
            except KafkaError as error:
                seen.append(word(error))
                producer.abort_transaction()
                seen.append("aborted")
    finally:
        producer.close(5)


def consumes(seen: list[str], topic: str, config: Config) -> None:
    """Five records and two commits: the values, and the outcome of each commit."""
    consumer = KafkaConsumer(**config)
    try:
        consumer.subscribe([topic])
        read, deadline = 0, time.monotonic() + PATIENCE
        while read < RECORDS:
            if time.monotonic() > deadline:
                seen.append("nothing came")
                return
            try:
                for record in [record for of in consumer.poll(200).values() for record in of]:
                    read, deadline = read + 1, time.monotonic() + PATIENCE
                    seen.append(record.value.decode())
                    if record.value in (b"1", b"4"):
                        seen.append(commit(consumer, record))
            except KafkaError as error:
                seen.append(word(error))
    finally:
        consumer.close()


def commit(consumer: Any, record: Any) -> str:
    """The outcome of a commit of what comes after a record."""
    try:
        consumer.commit({TopicPartition(record.topic, record.partition): OffsetAndMetadata(record.offset + 1, "", -1)})
    except KafkaError as error:
        return word(error)
    return "committed"


class Changes(ConsumerRebalanceListener):
    """Notes what is assigned and what is revoked."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def _changed(self, what: str, partitions: Any) -> None:
        self._seen.append(f"{what}:{','.join(map(str, sorted(of.partition for of in partitions)))}")

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._changed("assigned", assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._changed("revoked", revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        self._changed("lost", lost)


def belongs(seen: list[str], topic: str, config: Config) -> None:
    """A member until a record "stop" comes."""
    consumer = KafkaConsumer(**config)
    try:
        consumer.subscribe([topic], listener=Changes(seen))
        while True:
            try:
                if any(record.value == b"stop" for of in consumer.poll(50).values() for record in of):
                    return
            except KafkaError as error:
                seen.append(word(error))
    finally:
        consumer.close()


def typed(value: str) -> Any:
    """A property of a line."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() else value


def main() -> None:
    """Runs programs, one per line of standard input."""
    programs: dict[str, Callable[[list[str], str, Config], None]] = {"sends": sends, "transacts": transacts, "consumes": consumes, "belongs": belongs}
    for line in sys.stdin:
        kind, bootstrap, topic, *properties = line.split()
        config = {name.replace(".", "_"): typed(value) for name, value in (given.split("=", 1) for given in properties)}
        seen: list[str] = []
        try:
            programs[kind](seen, topic, config | {"bootstrap_servers": bootstrap})
        except KafkaError as error:
            seen.append(word(error))
        sys.stdout.write(" ".join(seen) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
