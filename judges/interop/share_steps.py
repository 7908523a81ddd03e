"""What calls of share consumers do, step by step: of Kafka's consumer, and of `fl.ShareConsumer`.

A scenario is words: steps between `|`, each a verb and its arguments. Records are named `topic-partition-offset`. What a step returns or raises is a row
of the outcome. Acknowledgements that callbacks were called with are compared at the end, by partition and error: when they arrive is up to threads.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import fletchlog as fl
from fletchlog.errors import ClosedError, IllegalStateError, KafkaError, KafkaTimeoutError, WakeupError

from . import kafka

Row = tuple[str, Any]
SHORT_LOCK = "group share.record.lock.duration.ms=1000"
SCENARIOS = {
    "a renewed record comes again, before others": "produce 4 | explicit | until 4 | release t-0-0 | renew t-0-1 | release t-0-2 | accept t-0-3 | until 1 | accept t-0-1 | until 2 "
    "| accept t-0-0 t-0-2 | commit | commit",
    "new records wait until renewed ones are done": "produce 3 | explicit | until 3 | renew t-0-0 t-0-1 | accept t-0-2 | produce 2 | until 2 | accept t-0-0 t-0-1 | until 2 "
    "| accept t-0-3 t-0-4 | commit",
    "renewed again and again": "group share.record.lock.duration.ms=4000 | produce 2 | explicit | until 2 | renew t-0-0 t-0-1 | until 2 | sleep 1200 | renew t-0-0 t-0-1 | until 2 | sleep 1200 "
    "| renew t-0-0 t-0-1 | until 2 | sleep 1200 | renew t-0-0 t-0-1 | until 2 | accept t-0-0 t-0-1 | commit | poll 500",
    "renewed by a commit": "produce 3 | explicit | until 3 | renew t-0-0 | accept t-0-1 t-0-2 | commit | poll 1000 | accept t-0-0 | commit | poll 500",
    "renewed by a commit without waiting": "produce 2 | explicit | until 2 | renew t-0-0 | accept t-0-1 | commit_async | sleep 500 | poll 1000 | accept t-0-0 | commit | poll 500",
    "renewed records are acknowledged before the next poll": "produce 3 | explicit | until 3 | renew t-0-0 t-0-1 | accept t-0-2 | until 2 | accept t-0-0 | poll 300 | accept t-0-1 | poll 300",
    "renewal is disabled": "group share.renew.acknowledge.enable=false | produce 2 | explicit | until 2 | renew t-0-0 | accept t-0-1 | poll 1500 | poll 500",
    "released records come with new ones": "produce 3 | explicit | until 3 | release t-0-0 t-0-2 | accept t-0-1 | produce 2 | until 4 | accept t-0-0 t-0-2 t-0-3 t-0-4 | commit",
    "every record is acknowledged before the next poll": "produce 3 | explicit | until 3 | accept t-0-0 | poll 500 | poll 0 | accept t-0-1 | poll 0 | reject t-0-2 | poll 500",
    "a part is committed": "produce 3 | explicit | until 3 | commit | accept t-0-1 | commit | commit | poll 500 | accept t-0-1 | accept t-0-0 | reject t-0-2 | commit | poll 500",
    "implicit": "produce 2 | implicit | until 2 | accept t-0-0 | poll 500 | produce 2 | until 2 | commit | commit | poll 500",
    "a close releases what was not committed": "produce 2 | implicit | until 2 | close | implicit b | until 2 b | commit_async b | close b | implicit c | poll 4000 c | close c",
    "a close sends what is acknowledged": "produce 4 | explicit | until 4 | accept t-0-0 | release t-0-1 | reject t-0-2 | close | explicit b | until 2 b | close b",
    "what is not there": "topic t 2 | produce 2 | explicit | until 2 | accept t-0-7 | accept t-1-0 | reject t-0-0 | accept t-0-0 | accept t-0-1 | commit | accept t-0-0 | poll 500",
    "before the first poll": "explicit | accept t-0-0 | commit | commit_async | lock | poll 3000 | produce 1 | until 1 | lock | accept t-0-0 | commit",
    "wakeups": "produce 1 | explicit | wakeup | poll 500 | until 1 | wakeup | accept t-0-0 | commit | poll 500 | poll 300 | wakeup | close | poll 300",
    "a wakeup before a poll": "produce 2 | explicit | until 2 | wakeup | accept t-0-0 | poll 500 | accept t-0-1 | poll 500 | poll 500",
    "after the close": "produce 1 | explicit | until 1 | close | close | poll 300 | accept t-0-0 | commit | commit_async | unsubscribe | subscription | wakeup",
    "another subscription": "topic u 1 | produce 2 | produce 2 u | explicit | until 2 | subscribe u | subscription | accept t-0-0 t-0-1 | until 2 | accept u-0-0 u-0-1 | commit | unsubscribe "
    "| subscription | poll 300",
    "a lock ends": f"{SHORT_LOCK} | produce 3 | explicit | until 3 | accept t-0-0 | commit | sleep 1600 | accept t-0-1 t-0-2 | commit | until 2 | accept t-0-1 t-0-2 | poll 500",
    "a lock ends before the next poll": f"{SHORT_LOCK} | produce 2 | explicit | until 2 | sleep 1600 | accept t-0-0 t-0-1 | until 2 | accept t-0-0 t-0-1 | commit",
    "a batch is larger than max.poll.records": "produce 6 | explicit max.poll.records=4 | until 6 | accept t-0-0 t-0-1 t-0-2 t-0-3 t-0-4 t-0-5 | poll 500",
    "batches, and max.poll.records": "produce 3 | produce 3 | produce 3 | implicit max.poll.records=4 | until 9 | commit",
    "a record limit": "produce 10 | implicit max.poll.records=4 share.acquire.mode=record_limit | until 10 | commit",
    "deliveries are used up": "group share.delivery.count.limit=2 | produce 1 | explicit | until 1 | release t-0-0 | until 1 | release t-0-0 | poll 1500 | poll 500",
    "the topic is deleted": "produce 2 | explicit | until 2 | delete t | sleep 500 | accept t-0-0 t-0-1 | commit | poll 500",
}


class Steps(Protocol):
    """A process with share consumers."""

    def step(self, op: str, member: str, **words: Any) -> Any:
        """What a call returns; `{"raised": error}`."""


def key(topic: str, partition: int) -> str:
    """A partition without what makes the name of the topic unique."""
    return f"{topic.rpartition('-')[2]}-{partition}"


def name(error: Exception | None) -> str:
    """As the Java program names it."""
    match error:
        case None:
            return ""
        case ClosedError() | IllegalStateError():
            return "IllegalStateException"
        case WakeupError():
            return "WakeupException"
        case KafkaTimeoutError():
            return "7"
        case KafkaError():
            return "UnknownServerException" if error.code == -1 else str(error.code)
    return type(error).__name__


class Java:
    """Kafka's share consumers, in a JVM."""

    def __init__(self, address: str) -> None:
        command = [*kafka.JVM, "-cp", kafka.classpath("share", kafka.server(kafka.NEWEST)), "ShareSteps", address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def step(self, op: str, member: str, **words: Any) -> Any:
        """See `Steps`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, "name": member, **words}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """Ends the JVM."""
        with self._process:
            self._process.kill()


class Ours:
    """`fl.ShareConsumer`."""

    def __init__(self, address: str) -> None:
        self._place = f"kafka://{address}"
        self._members: dict[str, fl.ShareConsumer[Any, Any]] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._callbacks: dict[str, list[tuple[str, list[int], str]]] = {}

    def step(self, op: str, member: str, **words: Any) -> Any:
        """See `Steps`."""
        try:
            return self._open(member, words["config"]) if op == "open" else self._step(op, member, words)
        except KafkaError as error:
            return {"raised": name(error)}

    def _open(self, member: str, config: Mapping[str, str]) -> str:
        calls = self._callbacks.setdefault(member, [])
        self._records[member] = {}
        given = dict(config)
        self._members[member] = fl.ShareConsumer(
            self._place,
            given,
            group=given.pop("group.id"),
            on_acknowledgement=lambda tp, offsets, error: calls.append((key(tp.topic, tp.partition), sorted(offsets), name(error))),
        )
        return "open"

    def _step(self, op: str, member: str, words: Mapping[str, Any]) -> Any:
        consumer, records = self._members[member], self._records[member]
        match op:
            case "poll":
                polled = list(consumer.poll(words["ms"]))
                records.update({f"{key(record.topic, record.partition)}-{record.offset}": record for record in polled})
                return [[f"{key(record.topic, record.partition)}-{record.offset}", record.delivery_count] for record in polled]
            case "ack":
                _, partition, offset = words["at"].split("-")
                consumer.acknowledge(records.get(words["at"], (words["topic"], int(partition), int(offset))), words["kind"])
                return "acknowledged"
            case "commit":
                return {key(tp.topic, tp.partition): name(error) for tp, error in sorted(consumer.commit(10_000).items())}
            case "subscribe":
                consumer.subscribe(words["topics"])
            case "subscription":
                return sorted(topic.rpartition("-")[2] for topic in consumer.subscription())
            case "lock":
                return consumer.acquisition_lock_timeout
            case "callbacks":
                return [list(call) for call in self._callbacks[member]]
            case _:
                getattr(consumer, op)()
        return None


class Run:
    """Runs a scenario with topics and a group of its own."""

    def __init__(self, members: Steps, place: str, unique: str) -> None:
        self._members, self._unique, self.outcome = members, unique, list[Row]()
        self._cluster, self._producer = fl.Cluster(place), fl.Producer(place, {"linger.ms": 1000, "batch.size": 1 << 20})
        self._opened: list[str] = []

    def __call__(self, scenario: str) -> list[Row]:
        """The rows of its steps."""
        steps = [step.split() for step in scenario.split("|")]
        made = {words[1]: int(words[2]) for words in steps if words[0] == "topic"}
        for topic, partitions in ({"t": 1} | made).items():
            self._cluster.create_topic(self._name(topic), partitions=partitions)
        given = dict(word.split("=") for words in steps if words[0] == "group" for word in words[1:])
        self._cluster.alter_group_config(self._name("g"), {"share.auto.offset.reset": "earliest"} | given)
        # as the listener sees it
        time.sleep(0.7)
        for verb, *words in steps:
            if verb not in ("topic", "group"):
                self._run(verb, words)
        for member in self._opened:
            self._step("close", member)
        calls = [call for member in self._opened for call in self._members.step("callbacks", self._name(member))]
        acknowledged: dict[tuple[str, str], list[int]] = {}
        for partition, offsets, error in calls:
            acknowledged.setdefault((partition, error), []).extend(offsets)
        self.outcome.append(("callbacks", sorted((*at, sorted(offsets)) for at, offsets in acknowledged.items())))
        self._producer.close()
        self._cluster.close()
        return self.outcome

    def _name(self, common: str) -> str:
        return f"{self._unique}-{common}"

    def _step(self, op: str, member: str, **words: Any) -> None:
        self.outcome.append((f"{op} {member} {words.get('at', '')}", self._members.step(op, self._name(member), **words)))

    def _run(self, verb: str, words: Sequence[str]) -> None:
        match verb:
            case "produce":
                topic = self._name(words[1] if len(words) > 1 else "t")
                sent = [self._producer.send(topic, value=b"%d" % number, partition=0) for number in range(int(words[0]))]
                self._producer.flush()
                assert all(future.result(10) for future in sent)
            case "sleep":
                time.sleep(int(words[0]) / 1000)
            case "delete":
                self._cluster.delete_topic(self._name(words[0]))
            case "explicit" | "implicit":
                member = next((word for word in words if "=" not in word), "a")
                given = dict(word.split("=") for word in words if "=" in word)
                config = {"group.id": self._name("g"), "share.acknowledgement.mode": verb, **given}
                self._members.step("open", self._name(member), config=config)
                self._members.step("subscribe", self._name(member), topics=[self._name("t")])
                self._opened.append(member)
            case "until":
                self._until(int(words[0]), words[1] if len(words) > 1 else "a")
            case "poll":
                self._step("poll", words[1] if len(words) > 1 else "a", ms=int(words[0]))
            case "accept" | "release" | "reject" | "renew":
                for at in words:
                    self._step("ack", "a", at=at, kind=verb, topic=self._name(at.partition("-")[0]))
            case "subscribe":
                self._step("subscribe", "a", topics=[self._name(topic) for topic in words])
            case _:
                self._step(verb, words[0] if words else "a")

    def _until(self, count: int, member: str) -> None:
        """Polls until there are so many records; what each poll returned that returned any."""
        polls: list[Any] = []
        found, end = 0, time.monotonic() + 15
        while found < count and time.monotonic() < end:
            polled = self._members.step("poll", self._name(member), ms=500)
            if polled:
                polls.append(polled)
            if isinstance(polled, dict):
                break
            found += len(polled)
        self.outcome.append((f"until {count} {member}", polls))
