"""Part 21: members of ours and of Java in one group: who joins, leaves and is killed, each partition has one owner, the one that Java alone would choose."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from . import kafka
from .clients import LIMIT_SECONDS, Clients
from .conftest import CASES, SEED
from .kraft import Kraft, format_directory
from .test_6_assignors import Assignment, Group, java

PART = "21 groups of both clients"
STRATEGIES = {"range": "Range", "roundrobin": "RoundRobin", "sticky": "Sticky", "cooperative-sticky": "CooperativeSticky"}
TOPICS = {"a": 7, "orders": 4, "t-1": 1}
COURSES = max(1, CASES // 200)
CONSUMER = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "retry_backoff_ms": 50, "default_api_timeout_ms": 20_000}


class Course:
    """One group from its first member to its last, in two processes of each kind: one of them is killed."""

    def __init__(self, broker: Kraft, name: str, strategy: str, rng: random.Random, scratch: Path) -> None:
        self.name, self.strategy, self._rng = name, strategy, rng
        self._admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        self.sides = {}
        for number in (0, 1):
            self.sides["ours", number] = Clients.ours(broker.address, scratch, f"ours-{name}-{number}")
            self.sides["java", number] = Clients.java(broker.release, broker.address, scratch, f"java-{name}-{number}")
        self._joined = 0
        # process -> its side and its topics
        self.members: dict[int, tuple[tuple[str, int], list[str]]] = {}
        # what each owned when the group was stable last, by member id
        self.before: Assignment = {}

    def join(self, side: tuple[str, int]) -> None:
        """A new member."""
        self._joined += 1
        process = self._joined
        equal = self.strategy.endswith("sticky") or self._rng.random() < 0.5
        topics = list(TOPICS) if equal else sorted(self._rng.sample(list(TOPICS), self._rng.randrange(1, len(TOPICS) + 1)))
        self.members[process] = (side, topics)
        strategy = f"org.apache.kafka.clients.consumer.{STRATEGIES[self.strategy]}Assignor"
        self.sides[side].worker("group", process, ",".join(topics), self.name, **CONSUMER, client_id=f"m{process}", partition_assignment_strategy=strategy)

    def leave(self) -> None:
        """One that says so, of either kind."""
        process = self._rng.choice([process for process, (side, _) in self.members.items() if side[1] == 0])
        self.sides[self.members.pop(process)[0]].end(process)

    def kill(self, side: tuple[str, int]) -> None:
        """All members of a process."""
        self.sides[side].kill()
        self.members = {process: of for process, of in self.members.items() if of[0] != side}

    def owners(self) -> dict[int, list[str]]:
        """What each member has said to own last."""
        found: dict[int, list[str]] = {}
        for side in self.sides.values():
            found |= {note["process"]: note["owns"] for note in side.notes() if "owns" in note}
        return {process: found.get(process, []) for process in self.members}

    def _described(self) -> tuple[bool, dict[int, str], Assignment]:
        try:
            group = self._admin.describe_consumer_groups([self.name], request_timeout=10)[self.name].result(30)
        except KafkaException:  # the first group of a broker has to wait for its topic
            return False, {}, {}
        ids = {int(member.client_id[1:]): member.member_id for member in group.members}
        assignment: Assignment = {}
        for member in group.members:
            topics = assignment.setdefault(member.member_id, {})
            for tp in member.assignment.topic_partitions:
                topics.setdefault(tp.topic, []).append(tp.partition)
        sorted_ = {member: {topic: sorted(partitions) for topic, partitions in topics.items()} for member, topics in assignment.items()}
        return group.state == ConsumerGroupState.STABLE and ids.keys() == self.members.keys(), ids, sorted_

    def settle(self) -> tuple[dict[int, str], Assignment]:
        """The assignment once the group is stable, and every member has what the coordinator says: each partition has one owner."""
        wanted = sorted(f"{topic}-{p}" for topic in {t for _, topics in self.members.values() for t in topics} for p in range(TOPICS[topic]))
        end = time.monotonic() + LIMIT_SECONDS
        while True:
            stable, ids, assignment = self._described()
            owners = self.owners()
            if stable and sorted(place for of in owners.values() for place in of) == wanted:
                as_described = {process: sorted(f"{t}-{p}" for t, of in assignment[ids[process]].items() for p in of) for process in owners}
                if as_described == owners:
                    return ids, assignment
            assert time.monotonic() < end, f"{self.name} is not stable: {self.members}, {owners}, {assignment}\n{self.errors()}"
            time.sleep(0.2)

    def errors(self) -> str:
        """What went to standard error."""
        return "\n".join(f"{side.name}: {side.errors.read_text()[-800:]}" for side in self.sides.values())

    def expected(self, release: str, ids: dict[int, str]) -> tuple[Assignment, int]:
        """What Java's assignor makes of these members, from what they had when the group was stable before; and in how many rebalances."""
        members = {member: self.members[process][1] for process, member in ids.items()}  # as the broker names them
        sticky = self.strategy.endswith("sticky")
        owned = {member: topics for member, topics in self.before.items() if member in members and any(topics.values())} if sticky else {}
        rounds = 0
        while True:
            group = Group(TOPICS, members, {}, owned, dict.fromkeys(owned, 7), {}, {})
            ((found,),) = java(release, [group], self.strategy)
            assert found is not None
            # what cooperative members give up is given in the rebalance that follows
            if self.strategy != "cooperative-sticky" or found == owned or rounds == 3:
                return found, max(rounds, 1)
            owned, rounds = found, rounds + 1

    def generation(self) -> int:
        """The last one that a member has seen."""
        return max(note["generation"] for side in self.sides.values() for note in side.notes() if "generation" in note)

    def close(self) -> None:
        """Ends everything."""
        for side in self.sides.values():
            side.kill()


@pytest.fixture(scope="module", params=kafka.SERVERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kraft]:
    """One of each release."""
    scratch: Path = tmp_path_factory.mktemp("groups")
    with Kraft(request.param, format_directory(scratch / "data"), scratch) as running:
        admin = AdminClient({"bootstrap.servers": running.address, "log_level": 0})
        for topic, made in admin.create_topics([NewTopic(topic, num_partitions=n, replication_factor=1) for topic, n in TOPICS.items()]).items():
            made.result(30)
            assert topic in TOPICS
        yield running


def without_empty(assignment: Assignment) -> dict[str, Any]:
    """Topics of which a member has nothing do not count."""
    return {member: {topic: of for topic, of in topics.items() if of} for member, topics in assignment.items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(COURSES))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_mixed_group_is_shared_as_java_alone_would(strategy: str, number: int, broker: Kraft, scratch: Path, count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} mixed {strategy} {number} {broker.release}")
    course = Course(broker, f"{strategy}-{number}", strategy, rng, scratch)
    joins = [lambda side=side: course.join(side) for side in [*course.sides, *rng.choices([("ours", 0), ("java", 0)], k=2)]]
    rng.shuffle(joins)
    changes = [
        lambda: course.kill(("ours", 1)),
        lambda: course.kill(("java", 1)),
        course.leave,
        lambda: course.join(("ours", 0)),
        lambda: course.join(("java", 0)),
    ]
    rng.shuffle(changes)
    generation = 0
    try:
        for change in [*joins, *changes, course.leave]:
            change()
            ids, assignment = course.settle()
            expected, rounds = course.expected(broker.release, ids)
            more = course.generation() - generation - rounds
            generation = course.generation()
            if strategy.endswith("sticky") and more > 0 and without_empty(assignment) != without_empty(expected):
                # a busy machine has kept a member from its heartbeats, or two changes apart: another history, so only balance is known
                sizes = [sum(map(len, topics.values())) for topics in assignment.values()]
                assert max(sizes) - min(sizes) <= 1, assignment
                count(PART, after_more_rebalances_than_one_change_needs=1)
            else:
                assert without_empty(assignment) == without_empty(expected), course.members
                count(PART, assignments_as_Javas=1, members=len(ids))
            course.before = assignment
    finally:
        course.close()
