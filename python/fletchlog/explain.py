"""Why records come in this order: the story of some polls, told from the consumer's own trace.

    print(fl.explain.explain(broker, ["orders", "payments"], polls=20).text())

The engine decides everything that is told here; this module only puts it into words. The hash buckets are computed once more
to show them, and left out if they would not lead to the order that the consumer has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fletchlog as fl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# 4.2 (KAFKA-19820): the partitions of a subscription are sorted by name, no hash table is involved
SORTED_SINCE = (4, 2)
WIDTH = 116


@dataclass(frozen=True)
class Place:
    """One partition in the order in which the consumer asks for them."""

    topic: str
    partition: int
    node: int
    hash: int
    bucket: int | None
    """Bucket of Java's hash table; None where no table decides."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Explanation:
    """What `explain` saw."""

    release: str
    order: str
    subscribed: bool
    buckets: int | None
    places: list[Place]
    polls: list[list[fl.Run]]
    """What each poll took from the queue, in that order."""
    events: list[dict[str, Any]]
    """The consumer's trace."""

    def text(self) -> str:
        """The whole story, for a terminal."""
        return "\n".join([*self._request_order(), "", *self._poll_by_poll()])

    def _request_order(self) -> list[str]:
        lines = ["In which order partitions are asked for"]
        if self.buckets is not None:
            kept = "taken by subscribe()" if self.subscribed else "given to assign()"
            lines += _wrap(
                f"The partitions {kept} are kept in a Java hash table, here of {self.buckets} buckets, and asked for in the order in "
                "which it is walked: bucket by bucket, the partitions of a topic together from where the topic first occurs. The "
                "bucket is (h ^ h>>>16) & "
                f"{self.buckets - 1} with h = 31 * (31 + partition) + hash of the topic's name, so it is stable, but not the order given."
            )
        elif self.subscribed and _version(self.release) >= SORTED_SINCE:
            lines += _wrap(f"Since release 4.2 the partitions of a subscription are sorted by topic and partition; {self.release} does so.")
        else:
            lines += _wrap("This is the order that the consumer computed for its partitions.")
        width = max((len(str(place)) for place in self.places), default=0)
        for number, place in enumerate(self.places, 1):
            table = "" if place.bucket is None else f"   hash {place.hash:>11}   bucket {place.bucket:>3}"
            lines.append(f"  {number:>3}. {place!s:<{width}}   node {place.node}{table}")
        return lines

    def _poll_by_poll(self) -> list[str]:
        rule = {
            "kip-387": "KIP-387: each poll takes from the next partition in turn",
            "timestamp": "by timestamp: each poll takes the oldest record that is buffered",
        }.get(self.order, f"Java client {self.release}: a poll takes what was fetched first until it is used up")
        lines = [f"Poll by poll ({rule})"]
        told: list[tuple[int, list[str], tuple[str, ...] | None]] = []
        for number in sorted({event["poll"] for event in self.events if event["poll"] > 0}):
            mine = [event for event in self.events if event["poll"] == number]
            told.append((number, _tell(mine), _alike(mine)))
        index = 0
        while index < len(told):
            number, sentences, kind = told[index]
            last = index
            while kind is not None and last + 1 < len(told) and told[last + 1][2] == kind:
                last += 1
            lines += _wrap(f"poll {number}: {sentences[0]}", "  ", "      ")
            for sentence in sentences[1:]:
                lines += _wrap(sentence, "      ", "        ")
            if last > index:
                until = told[last][0]
                lines.append(f"  poll {number + 1}{f' to {until}' if until > number + 1 else ''}: the same, with the records that follow")
            index = last + 1
        return lines


def explain(
    broker: fl.Broker,
    topics: Sequence[str],
    config: Mapping[str, Any] | None = None,
    *,
    polls: int = 20,
    subscribe: bool = False,
    timeout_ms: int = 1000,
) -> Explanation:
    """Runs a consumer over all partitions of `topics` from their beginning and tells what happened.

    Nothing is committed, so the broker may be open for reading only.

    Args:
        broker: Where the topics are.
        topics: Topics in the order in which a program would give them.
        config: Consumer properties, e.g. `{"fletchlog.consumer.version": "3.9"}`.
        polls: At most so many polls; fewer if nothing is left to read.
        subscribe: Use subscribe() with a group of one member instead of assign().
        timeout_ms: Of each poll.

    Raises:
        fletchlog.errors.KafkaError: As the consumer raises it.
    """
    if polls < 1:
        raise fl.errors.InvalidArgumentError(f"polls is {polls}; give 1 or more")
    described = {topic: broker.describe_topic(topic) for topic in dict.fromkeys(topics)}
    leaders = {(topic, p.partition): p.leader for topic, description in described.items() for p in description.partitions}
    given: dict[str, Any] = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"} | dict(config or {}) | {"trace": "true"}
    if subscribe:
        given.setdefault("group.id", "fletchlog-explain")
    taken: list[list[fl.Run]] = []
    with fl.Consumer(broker, given) as consumer:
        if subscribe:
            consumer.subscribe(list(described))
        else:
            consumer.assign([fl.TopicPartition(*tp) for tp in leaders])
        order = consumer.assignment()
        for _ in range(polls):
            records = consumer.poll(timeout_ms=timeout_ms)
            # a subscription has its partitions only now; should this poll have moved one, the buckets are left out
            order = order or consumer.assignment()
            if not len(records):
                break
            taken.append(records.runs())
        events = consumer.trace().to_pyarrow().to_pylist()
    release = str(given.get("fletchlog.consumer.version", "2.6"))
    places, buckets = _places(order, leaders, release, subscribe=subscribe)
    return Explanation(
        release=release,
        order=str(given.get("fletchlog.fetch.order", "partition")),
        subscribed=subscribe,
        buckets=buckets,
        places=places,
        polls=taken,
        events=events,
    )


def java_hash(topic: str, partition: int) -> int:
    """Java's `TopicPartition.hashCode()` as a signed 32-bit number."""
    value = 0
    data = topic.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    value = (31 * (31 + partition) + value) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _places(
    order: Iterable[fl.TopicPartition], leaders: Mapping[tuple[str, int], int], release: str, *, subscribe: bool
) -> tuple[list[Place], int | None]:
    order = list(order)
    buckets = None if subscribe and _version(release) >= SORTED_SINCE else _table_size(len(order), preset=subscribe)

    def bucket(topic: str, partition: int) -> int | None:
        if buckets is None:
            return None
        value = java_hash(topic, partition) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    found = [Place(topic, partition, leaders.get((topic, partition), -1), java_hash(topic, partition), bucket(topic, partition)) for topic, partition in order]
    if buckets is not None and not _follows(found):
        return [Place(p.topic, p.partition, p.node, p.hash, None) for p in found], None
    return found, buckets


def _follows(places: list[Place]) -> bool:
    """Whether walking the buckets and putting topics together gives this order."""
    walked = sorted(places, key=lambda place: place.bucket if place.bucket is not None else -1)
    topics = list(dict.fromkeys(place.topic for place in walked))
    return [place for topic in topics for place in walked if place.topic == topic] == places


def _table_size(count: int, *, preset: bool) -> int:
    # new HashMap() begins with 16 buckets, new HashMap(n) with the power of two at or above n; both double above 3/4
    size = 1 << (max(count, 1) - 1).bit_length() if preset else 16
    while count * 4 > size * 3:
        size *= 2
    return size


def _version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def _name(event: Mapping[str, Any]) -> str:
    return f"{event['topic']}-{event['partition']}"


def _alike(events: list[dict[str, Any]]) -> tuple[str, ...] | None:
    """Polls that only go on with one buffered partition are told once; None for all others."""
    kinds = [event["kind"] for event in events if event["kind"] not in {"poll-started", "poll-returned", "excluded"}]
    if kinds != ["records-returned"]:
        return None
    returned = next(event for event in events if event["kind"] == "records-returned")
    return (_name(returned), str(returned["records"]))


def _tell(events: list[dict[str, Any]]) -> list[str]:
    """Sentences about one poll, in the order in which things happened."""
    sentences: list[str] = []
    index = 0
    while index < len(events):
        first = events[index]
        group = [first]
        while index + 1 < len(events) and _belongs(first, events[index + 1]):
            index += 1
            group.append(events[index])
        sentence = _sentence(first, group)
        if sentence:
            sentences.append(sentence)
        index += 1
    return sentences or ["nothing to do"]


def _belongs(first: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether an event is told in the sentence that `first` begins."""
    kind = str(event["kind"])
    match first["kind"]:
        case "request-sent":
            return kind in {"request-partition", "request-forgotten"}
        case "response-read":
            return kind == "response-queued"
        case "excluded" | "reset":
            return (kind, str(event["text"])) == (first["kind"], first["text"])
    return False


def _sentence(event: Mapping[str, Any], group: list[dict[str, Any]]) -> str | None:
    because = f": {event['text']}" if event["text"] else ""
    names = ", ".join(_name(e) for e in group if e["topic"] is not None)
    match event["kind"]:
        case "request-sent":
            wanted = [f"{_name(e)} from {e['offset']:,}" for e in group if e["kind"] == "request-partition"]
            dropped = [_name(e) for e in group if e["kind"] == "request-forgotten"]
            kind = "" if event["full"] is None else " (a full fetch)" if event["full"] else " (only what changed)"
            out = f"; it may forget {', '.join(dropped)}" if dropped else ""
            return f"asks node {event['node']}{kind} for {', '.join(wanted) or 'nothing new'}{out}"
        case "response-read":
            parts = [f"{_name(e)}{_size(e)}" for e in group[1:]]
            return f"reads the answer of node {event['node']}; to the end of the queue go, in this order: {', '.join(parts) or 'nothing'}"
        case "excluded":
            # without a position there is no question yet; what happens about it is told next
            return None if "no position" in event["text"] else f"asks nothing about {names}{because}"
        case "records-returned":
            last = f" to {int(event['text']):,}" if str(event["text"]).isdecimal() else ""
            return f"takes {event['records']:,} records of {names}, offsets {event['offset']:,}{last}"
        case "late":
            return f"{event['records']:,} records of {names} are late: older than one returned before them"
        case "partition-drained":
            return f"{names} is used up{because}; the next in the queue has its turn"
        case "moved-to-end":
            return f"{names} goes behind all others in the order of requests{because}"
        case "paused":
            return f"{names} is paused, what was fetched of it goes to the end of the queue"
        case "discarded":
            return f"what was fetched of {names} is thrown away{because}"
        case "reset":
            return f"positions of {names}{because}"
        case "error":
            return f"error at {names}{because}"
        case "poll-returned" if event["records"] == 0:
            return "returns nothing"
    return None


def _size(event: Mapping[str, Any]) -> str:
    if event["records"] is None or event["batches"] is None:
        return ""
    return f" ({event['records']:,} records in {event['batches']:,} batches)" if event["records"] else " (empty)"


def _wrap(text: str, first: str = "  ", rest: str = "  ") -> list[str]:
    import textwrap

    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False)
