"""Part 46: members of Java, librdkafka and ours in one group, which changes its protocol while it runs, on a real Kafka 4.4.0 and on our listener.

It begins with classic members, goes over to `group.protocol=consumer` one by one, and back. After each step every partition has one owner, and all read on;
in each phase a member is killed. Every acknowledged record is read, and no committed offset goes back.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog.errors import KafkaError
from judges.kills.served import Served
from tests.support.members import Member

from . import kafka
from .clients import LIMIT_SECONDS, Clients
from .conftest import SEED
from .kraft import Kraft, format_directory

PART = "46 groups that change their protocol"
TOPIC, PARTITIONS, GROUP = "t", 6, "g"
CLIENTS = ["ours", "java", "librdkafka"]
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "100",
}
OF_PROTOCOL = {
    "classic": {"group_protocol": "classic", "session_timeout_ms": 3000, "heartbeat_interval_ms": 200},
    "consumer": {"group_protocol": "consumer"},
}


class Group:
    """The group, whose members are named by their client and a number."""

    def __init__(self, bootstrap: str, scratch: Path) -> None:
        self._bootstrap, self._scratch = bootstrap, scratch
        self._cluster = fl.Cluster(f"kafka://{bootstrap}")
        self._started: dict[str, Clients | Member] = {}
        self.running: list[str] = []
        self._offsets: dict[int, int] = {}

    def start(self, client: str, protocol: str) -> None:
        """A member more."""
        name = f"{client}-{len(self._started)}"
        of_protocol = OF_PROTOCOL[protocol]
        if client == "librdkafka":
            words = {"bootstrap_servers": self._bootstrap, "group_id": GROUP}
            self._started[name] = Member(TOPIC, self._scratch / name, **words, **of_protocol)
        else:
            make = Clients.ours(self._bootstrap, self._scratch, name) if client == "ours" else Clients.java(kafka.NEWEST, self._bootstrap, self._scratch, name)
            make.worker("group", 1, TOPIC, GROUP, retry_backoff_ms=50, **of_protocol)
            self._started[name] = make
        self.running.append(name)
        self.settle()

    def end(self, name: str, *, kill: bool = False) -> None:
        """It leaves, or is killed (librdkafka's always)."""
        self.running.remove(name)
        member = self._started[name]
        if kill or isinstance(member, Member):
            member.kill()
        else:
            member.close()
        if self.running:
            self.settle()

    def close(self) -> None:
        """Kills what runs."""
        for name in self.running:
            self._started[name].kill()
        self._cluster.close()

    def _polled(self, name: str) -> list[int]:
        member = self._started[name]
        if isinstance(member, Member):
            return member.read()
        return [value for note in member.notes() for _, _, value in note.get("polled", [])]

    def read(self) -> set[int]:
        """The values that any member has read."""
        return {value for name in self._started for value in self._polled(name)}

    def _owners(self) -> list[int]:
        """What the running members say that they own, in the order of the partitions."""
        owned: list[int] = []
        for name in self.running:
            member = self._started[name]
            if isinstance(member, Member):
                owned += member.owns()
            else:
                last = [note["owns"] for note in member.notes() if "owns" in note][-1:]
                owned += [int(place.rpartition("-")[2]) for place in (last or [[]])[0]]
        return sorted(owned)

    def sample(self) -> dict[int, int]:
        """The committed offsets, none of which is below the one before."""
        with contextlib.suppress(KafkaError):
            now = {tp.partition: at.offset for tp, at in self._cluster.group_offsets(GROUP).items()}
            back = {p: (before, now.get(p)) for p, before in self._offsets.items() if now.get(p, -1) < before}
            assert not back, f"offsets went back: {back}"
            self._offsets = now
        return self._offsets

    def settle(self) -> None:
        """Until each partition has one owner, and each member that has any reads on."""
        end = time.monotonic() + LIMIT_SECONDS
        seen = {name: len(self._polled(name)) for name in self.running}
        while True:
            self.sample()
            has_read = [len(self._polled(name)) > seen[name] for name in self.running]
            if self._owners() == list(range(PARTITIONS)) and all(has_read):
                return
            assert time.monotonic() < end, (self.running, self._owners(), has_read)
            time.sleep(0.2)

    def kind(self) -> str:
        """classic or consumer, as the broker lists it."""
        return next(group.group_type for group in self._cluster.groups() if group.group_id == GROUP)


@pytest.fixture(params=["kafka", "ours"])
def bootstrap(request: pytest.FixtureRequest, scratch: Path) -> Iterator[str]:
    """Of a broker whose sessions are short."""
    if request.param == "kafka":
        with Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch, config=CONFIG) as broker:
            yield broker.address
        return
    directory = scratch / "data"
    fl.Broker(directory, create=True).close()
    served = Served(directory, CONFIG)
    yield served.bootstrap
    served.end()


@pytest.mark.timeout(900)
def test_a_group_goes_over_to_the_new_protocol_and_back(bootstrap: str, scratch: Path, count: Callable[..., None]) -> None:
    rng = random.Random(SEED)
    with fl.Cluster(f"kafka://{bootstrap}") as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
    writer = Clients.ours(bootstrap, scratch, "writer")
    writer.worker("producer", 1, TOPIC, PARTITIONS, 0, enable_idempotence="true")
    group = Group(bootstrap, scratch)
    kinds = []
    try:
        for client in CLIENTS:
            group.start(client, "classic")
        kinds.append(group.kind())
        for protocol in ["consumer", "classic"]:
            old = list(group.running)
            for client in rng.sample(CLIENTS, len(CLIENTS)):
                group.start(client, protocol)
                kinds.append(group.kind())
                leaving = old.pop(rng.randrange(len(old)))
                group.end(leaving, kill=not old)
            kinds.append(group.kind())
        writer.close()
        acknowledged = {value for note in writer.notes() if note.get("outcome") == "ok" for _, value, *_ in note["sends"]}
        end = time.monotonic() + LIMIT_SECONDS
        while not (acknowledged <= group.read() and sum(group.sample().values()) >= len(acknowledged)):
            assert time.monotonic() < end, "records are not read, or not committed"
            time.sleep(0.2)
    finally:
        group.close()
        writer.kill()
    assert kinds == ["classic", *["consumer"] * 4, *["consumer"] * 3, "classic"]
    count(PART, groups=1, members=9, records=len(acknowledged))
