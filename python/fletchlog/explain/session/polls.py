"""Polls: what each `poll()` of a Java consumer returned, as it follows from its fetches and their responses.

fletchlog's consumer with the rules of the client's release replays the fetches (`derive_polls`): it gets the recorded responses, and each fetch that it
would send must be the recorded one. When a response was read and how many polls came before it is concluded from the next fetch. Where a fetch leaves
more than one way, the polls that differ are not `decided`; where no way leads to a fetch, the polls end there, and `parted` says why.

What no fetch shows is not here: polls behind the last fetch, and polls without records.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fletchlog._core import derive_polls, parse_release
from fletchlog.errors import InvalidArgumentError
from fletchlog.explain.session.client import ISOLATION
from fletchlog.explain.session.fetch_on_wire import fetch_on_wire
from fletchlog.explain.session.rows import Lane

if TYPE_CHECKING:
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.rows import FetchOnWire

# time, partitions, whether those assigned before keep their positions
_Assignment: TypeAlias = tuple[int, list[tuple[str, int]], bool]
JAVA = "apache-kafka-java"
DEFAULT_MAX_POLL_RECORDS = 500
MOST_PARTITIONS = 1_000_000
"""The replay knows every partition of a topic up to the highest one that is named: a damaged number must not take all memory."""
MOST_FETCHES = 100_000
"""Fetches of a client that are replayed."""
MOST_POLL_RECORDS = 2**31 - 1
LONG_WAIT = 3
"""Polls in a row without records of a partition whose records had arrived."""


class Run(NamedTuple):
    """Records of a partition that a poll returned; `exact`: both offsets are known, which they are not inside a batch that compaction thinned out."""

    lane: Lane
    first: int
    last: int
    records: int
    exact: bool


class Poll(NamedTuple):
    """A poll that returned records.

    Attributes:
        runs: What it returned, in the order of a for-each over Java's `ConsumerRecords`.
        fetch: Number of the first fetch that was sent at its end or later.
        buffered: Partitions whose records had arrived and were left for later polls.
        decided: Whether the recording leaves no other way.
    """

    runs: tuple[Run, ...]
    fetch: int | None
    buffered: tuple[Lane, ...]
    decided: bool


class Call(NamedTuple):
    """A call that explains a fetch: seek, pause, resume, or assign with all its partitions, each as one; `offset` is that of a seek, else -1."""

    method: str
    lane: Lane
    offset: int
    fetch: int


class Starved(NamedTuple):
    """A partition whose records had arrived and waited for `polls` polls in a row, and why."""

    lane: Lane
    polls: int
    reason: str


@dataclass(slots=True)
class Polls:
    """The polls of a client.

    Attributes:
        client: Number of the client.
        release: Its release.
        polls: Polls with records, in their order.
        calls: Calls of the program without which no way agrees with the fetches.
        parted: The first fetch that is not explained, and why; None: all are.
        agreeing: How many of its fetches are explained.
        fetches: How many it sent.
        buffered: Partitions whose records had arrived and were not returned by the last of the polls.
        max_poll_records: The value that the replay used.
        max_poll_records_from: `given`, `default` or `inferred`.
        max_poll_records_between: The lowest and the highest value that agree with its fetches.
        why_not: Why there are no polls; empty: there are.
    """

    client: int
    release: str = ""
    polls: list[Poll] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    parted: tuple[int, str] | None = None
    agreeing: int = 0
    fetches: int = 0
    buffered: list[Lane] = field(default_factory=list)
    max_poll_records: int = DEFAULT_MAX_POLL_RECORDS
    max_poll_records_from: str = "default"
    max_poll_records_between: tuple[int, int] | None = None
    why_not: str = ""

    @property
    def starved(self) -> list[Starved]:
        """Partitions whose records had arrived and waited for several polls, the longest wait first."""
        waits: dict[Lane, int] = defaultdict(int)
        worst: dict[Lane, tuple[int, Lane]] = {}
        for poll in self.polls:
            served = {run.lane for run in poll.runs}
            waiting = {lane for lane in poll.buffered if lane not in served}
            for lane in [lane for lane in waits if lane not in waiting]:
                del waits[lane]
            for lane in waiting:
                waits[lane] += 1
                if waits[lane] > worst.get(lane, (0, lane))[0]:
                    worst[lane] = (waits[lane], poll.runs[-1].lane)
        found = [Starved(lane, count, self._reason(before)) for lane, (count, before) in worst.items() if count >= LONG_WAIT]
        return sorted(found, key=lambda starved: (-starved.polls, starved.lane))

    def _reason(self, before: Lane) -> str:
        return (
            f"a fetch is returned to its end before the next one: its records waited behind those of {before}. Lower max.partition.fetch.bytes, or raise "
            f"max.poll.records ({self.max_poll_records})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Values for JSON: a run is partition, first offset, last offset, number of records, exact."""
        return {
            "client": self.client,
            "release": self.release,
            "max_poll_records": self.max_poll_records,
            "max_poll_records_from": self.max_poll_records_from,
            "max_poll_records_between": self.max_poll_records_between,
            "polls": [
                {
                    "runs": [[str(run.lane), *run[1:]] for run in poll.runs],
                    "fetch": poll.fetch,
                    "buffered": list(map(str, poll.buffered)),
                    "decided": poll.decided,
                }
                for poll in self.polls
            ],
            "calls": [[call.method, str(call.lane), call.offset, call.fetch] for call in self.calls],
            "parted": self.parted and {"fetch": self.parted[0], "why": self.parted[1]},
            "agreeing": self.agreeing,
            "fetches": self.fetches,
            "buffered": list(map(str, self.buffered)),
            "starved": [[str(starved.lane), starved.polls, starved.reason] for starved in self.starved],
            "why_not": self.why_not,
        }


def polls_of(facts: Facts, client: int, max_poll_records: int | None = None, release: str | None = None, most: int = MOST_FETCHES) -> Polls:
    """The polls of one client.

    Args:
        facts: The rows of a session.
        client: Its number.
        max_poll_records: What the program has set; None: Kafka's default if it agrees with the fetches, else a value that does.
        release: The release of Kafka whose rules the client has; None: the one that it says.
        most: So many of its fetches are replayed.

    Raises:
        fletchlog.errors.InvalidArgumentError: max_poll_records is not a positive 32-bit number, or release is none from 2.4 to 4.4.
    """
    if max_poll_records is not None and not 0 < max_poll_records <= MOST_POLL_RECORDS:
        raise InvalidArgumentError(f"max_poll_records is {max_poll_records}; give 1 to {MOST_POLL_RECORDS}")
    if release is not None:
        parse_release(release)
    _, software, version = facts.clients[client]
    fetches = _fetches(facts, client, most)
    version = release or version
    mine = facts.fetches.of(client)
    found = Polls(client, version, fetches=len(mine))
    if software != JAVA and release is None:
        found.why_not = f"the order in which {software or 'an unknown client'} returns records is its own: see the order of arrival"
        return found
    found.why_not = _refused(version, fetches)
    if found.why_not:
        return found
    used, parted = _known(fetches, most)
    if parted is not None and not used:
        found.parted, found.why_not = parted, f"its first fetch is not known: {parted[1]}"
        return found
    assignments, subscribed = _assignments(facts, client, used)
    properties = {
        "fletchlog.consumer.version": version,
        "isolation.level": ISOLATION[used[0].isolation],
        "fetch.max.bytes": str(facts.fetches.max_bytes[mine[0]]),
        "max.partition.fetch.bytes": str(facts.fetches.partition_max_bytes[mine].max()),
    }
    groups = _groups(facts, client)
    if groups:
        properties["group.id"] = groups[0]
    commits, lookups = _commits(facts, client), _lookups(facts, client)
    if (highest := _highest_partition(used, assignments, commits, lookups)) >= MOST_PARTITIONS:
        found.why_not = f"it names partition {highest:,} of a topic: no topic has as many"
        return found
    try:
        derived = derive_polls(
            (
                properties, assignments, subscribed, commits, _topics(facts, client, used) if subscribed is None else [],
                lookups, _is_consumer_protocol(facts, client), _calls_between(facts, client, used),
            ),
            [fetch.wire for fetch in used], max_poll_records,
        )  # fmt: skip
    except InvalidArgumentError as error:
        found.why_not = str(error)
        return found
    found.polls = [
        Poll(tuple(Run(Lane(*lane), *rest) for lane, *rest in runs), fetch, tuple(Lane(*lane) for lane in buffered), decided)
        for runs, fetch, buffered, decided in derived["polls"]
    ]
    found.calls = [Call(method, Lane(*lane), offset, fetch) for method, lane, offset, fetch in derived["calls"]]
    found.parted = derived["parted"] or parted
    found.agreeing = derived["agreeing"]
    found.buffered = [Lane(*lane) for lane in dict.fromkeys(derived["buffered"])]
    found.max_poll_records = derived["max_poll_records"]
    found.max_poll_records_between = derived["max_poll_records_between"]
    if max_poll_records is not None:
        found.max_poll_records_from = "given"
    elif found.max_poll_records != DEFAULT_MAX_POLL_RECORDS:
        found.max_poll_records_from = "inferred"
    return found


def _fetches(facts: Facts, client: int, most: int) -> list[FetchOnWire]:
    """Those of all its connections, in the order of arrival, and one more than are replayed."""
    connections = set(facts.fetches.connection[facts.fetches.of(client)].tolist())
    return list(islice((fetch for exchange in facts.first_fetches(connections) if (fetch := fetch_on_wire(exchange))), most + 1))


def _refused(version: str, fetches: list[FetchOnWire]) -> str:
    """Why the polls of this client cannot be derived; empty: they can."""
    try:
        parse_release(version)
    except InvalidArgumentError as error:
        return str(error)
    if not fetches:
        return "it sent no fetch"
    last: dict[int, int] = {}
    closed: dict[int, set[int]] = defaultdict(set)
    for fetch in fetches:
        before = last.setdefault(fetch.node, fetch.connection)
        if before != fetch.connection:
            closed[fetch.node].add(before)
            last[fetch.node] = fetch.connection
        if fetch.connection in closed[fetch.node]:
            return "several consumers have its client.id: give each its own"
    return ""


def _known(fetches: list[FetchOnWire], most: int) -> tuple[list[FetchOnWire], tuple[int, str] | None]:
    """The fetches before one whose response is not known, and why it is not."""
    for at, fetch in enumerate(fetches):
        if at >= most:
            return fetches[:at], (fetch.number, f"only the first {most:,} fetches are replayed")
        if fetch.unknown:
            return fetches[:at], (fetch.number, f"its response is not known: {fetch.unknown}")
    return fetches, None


def _groups(facts: Facts, client: int) -> list[str]:
    named = [event.group for event in facts.group_events if event.client == client]
    named += [item.group for item in facts.committed if item.client == client]
    named += [item.group for item in facts.positions if item.client == client and item.group]
    return list(dict.fromkeys(named))


def _commits(facts: Facts, client: int) -> list[tuple[int, list[tuple[str, int, int]]]]:
    """Its commits, each with the time at which it arrived and its offsets: mostly the positions after a poll. Those of transactions are of producers."""
    by: dict[int, tuple[int, list[tuple[str, int, int]]]] = {}
    for item in facts.committed:
        if item.client == client and not item.transactional:
            by.setdefault(item.number, (item.at_us, []))[1].append((item.lane.topic, item.lane.partition, item.offset))
    return list(by.values())


def _topics(facts: Facts, client: int, fetches: list[FetchOnWire]) -> list[tuple[int, list[str]]]:
    """The topics that its Metadata requests name since its first fetch, with their times."""
    begin = fetches[0].wire[2]
    return [(item.at_us, list(item.topics)) for item in facts.topics_asked if item.client == client and item.at_us > begin]


def _lookups(facts: Facts, client: int) -> list[tuple[int, tuple[str, int]]]:
    return [(item.at_us, (item.lane.topic, item.lane.partition)) for item in facts.positions if item.client == client]


def _highest_partition(
    fetches: list[FetchOnWire],
    assignments: list[_Assignment],
    commits: list[tuple[int, list[tuple[str, int, int]]]],
    lookups: list[tuple[int, tuple[str, int]]],
) -> int:
    """The highest number of a partition that the replay is given; -1: none."""
    given = chain(
        (partition for fetch in fetches for _, partition, _ in fetch.wire[4]),
        (partition for fetch in fetches for _, partition in fetch.wire[5]),
        (partition[1] for fetch in fetches if fetch.wire[6] for partition in fetch.wire[6][3]),
        (partition for _, lanes, _ in assignments for _, partition in lanes),
        (partition for _, offsets in commits for _, partition, _ in offsets),
        (partition for _, (_, partition) in lookups),
    )
    return max(given, default=-1)


def _is_consumer_protocol(facts: Facts, client: int) -> bool:
    return any(event.kind == "consumer-heartbeat" for event in facts.group_events if event.client == client)


def _calls_between(facts: Facts, client: int, fetches: list[FetchOnWire]) -> bool:
    """Whether the program makes calls that read from the network between polls, such as commitSync and endOffsets."""
    begin = fetches[0].wire[2]
    commits = any(item.client == client for item in facts.committed)
    return commits or any(item.client == client and item.at_us > begin and item.timestamp is not None for item in facts.positions)


def _assignments(facts: Facts, client: int, fetches: list[FetchOnWire]) -> tuple[list[_Assignment], list[str] | None]:
    """Its assignments as `derive_polls` takes them, and the topics of its subscription; None: `assign()`."""
    events = [event for event in facts.group_events if event.client == client]
    given_by = {"sync", "consumer-heartbeat"}
    syncs = [event for event in events if event.kind in given_by and event.assigned is not None and event.error is None]
    if syncs:
        topics = dict.fromkeys(topic for event in events if event.kind in {"join", "consumer-heartbeat"} for topic in event.topics)
        cooperative = any("cooperative" in (event.protocol or "") or event.kind == "consumer-heartbeat" for event in syncs)
        given = [(event.answered_us or event.at_us, [(lane.topic, lane.partition) for lane in event.assigned or ()], cooperative) for event in syncs]
        return given, list(topics)
    fetched = dict.fromkeys((topic, partition) for fetch in fetches for topic, partition, _ in fetch.wire[4])
    first = {fetch.node: fetch for fetch in reversed(fetches)}
    begin = min((fetch.wire[2] for fetch in first.values()), default=0)
    at_first = {(topic, partition) for fetch in first.values() for topic, partition, _ in fetch.wire[4]}
    at_first |= {(item.lane.topic, item.lane.partition) for item in facts.positions if item.client == client and item.at_us <= begin}
    return [(0, [lane for lane in fetched if lane in at_first], False)], None
