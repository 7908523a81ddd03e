"""How clients use connections and metadata: a client for each record, storms of metadata, topics that do not exist, requests that are given up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import distinct, mixed, np, repeated
from fletchlog.explain.session.finding import found, seconds, several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.rows import Produced, Refused

MANY = 15
SHORT = 12
MANY_METADATA = 30
LOOKUPS = ("OffsetFetch", "ListOffsets")
REFRESHED_FOR = {"UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"}
"""Errors after which a client asks for metadata."""


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about connections and metadata."""
    for client in scene.facts.lines.client[distinct(scene.facts.lines.client)[0]].tolist():
        yield from _connections(scene, client)
        yield from _metadata(scene, client)
        yield from _lookups(scene, client)
    yield from _given_up(scene)
    yield from _missing(scene)


def _connections(scene: Scene, client: int) -> Iterator[Finding]:
    links = [link for link in scene.facts.connections.values() if client in link.clients]
    requests = {link.number: link.clients[client] for link in links}
    work = [link.number for link in links if not link.apis.keys().isdisjoint(("Produce", "Fetch", "Metadata"))]
    short = [connection for connection in work if requests[connection] <= SHORT]
    if len(short) < MANY or any(member.client == client for group in scene.groups.values() for member in group.members.values()):
        return
    length, produces = _length(scene, client), scene.clients[client].requests.get("Produce", 0)
    what = "producer" if produces else "client"
    yield found(
        "client-per-record", "warning", 71,
        f"{scene.name(client)} makes a new {what} again and again: {len(short)} connections in {seconds(length)}, each with few requests"
        f"{f' ({produces} Produce in all)' if produces else ''}.",
        f"Make one {what} when the program starts and use it for everything; it is thread-safe.", _numbers(scene, client, "ApiVersions"), scene.name(client),
    )  # fmt: skip


def _length(scene: Scene, client: int) -> int:
    """From the first to the last request of a client, us."""
    times = scene.facts.lines.arrived_us[scene.facts.lines.client == client]
    return int(times[-1] - times[0])


def _numbers(scene: Scene, client: int, *apis: str) -> list[int]:
    """The requests of a client of these APIs."""
    lines = scene.facts.lines
    numbers: list[int] = lines.number[(lines.client == client) & lines.are(*apis)].tolist()
    return numbers


def _metadata(scene: Scene, client: int) -> Iterator[Finding]:
    counted = scene.clients[client].requests
    if counted.get("Metadata", 0) + counted.get("DescribeCluster", 0) < MANY_METADATA:
        return
    asked = _numbers(scene, client, "Metadata", "DescribeCluster")
    work = counted.get("Produce", 0) + counted.get("Fetch", 0)
    length = _length(scene, client)
    failed = {r.number for r in scene.facts.refused if r.client == client and r.error in REFRESHED_FOR}
    connections = len({int(scene.facts.lines.connection[scene.facts.lines.at(number)]) for number in asked})
    often = len(asked) >= MANY_METADATA and len(asked) > 0.8 * work and len(asked) * 1_000_000 > length
    if often and 2 * len(failed) < len(asked) and len(asked) > 3 * connections:
        yield found(
            "metadata-storm", "warning", 54,
            f"{scene.name(client)} asks for metadata all the time: {len(asked)} requests in {seconds(length)}, {work} for records.",
            "Do not list topics before every send or poll; the client keeps its metadata up to date by itself.", asked, scene.name(client),
        )  # fmt: skip


def _lookups(scene: Scene, client: int) -> Iterator[Finding]:
    """Offsets that are looked up before almost every record: committed ones, or the ends of logs."""
    counted, records = scene.clients[client].requests, scene.clients[client].records_read
    asked = sum(counted.get(api, 0) for api in LOOKUPS)
    if records < MANY_METADATA or asked < 0.8 * records or asked * 1_000_000 < _length(scene, client):
        return
    # librdkafka asks for each partition by a request of its own: of many, once
    of_lanes = Counter(position.lane for position in scene.facts.positions if position.client == client)
    if max(of_lanes.values(), default=0) < MANY_METADATA:
        return
    which = max(LOOKUPS, key=lambda api: counted.get(api, 0))
    what = "its committed offsets" if which == LOOKUPS[0] else "the ends of logs"
    yield found(
        "lookup-per-record", "warning", 53,
        f"{scene.name(client)} asks for {what} for almost every record: {asked} requests for {records} records. It waits for each of them.",
        "Ask once after an assignment, or every few seconds; what was read and committed since then the program knows itself.",
        _numbers(scene, client, *LOOKUPS), scene.name(client),
    )  # fmt: skip


def _given_up(scene: Scene) -> Iterator[Finding]:
    """Batches that were sent again over another connection before the response to the first was ready, or after its client had closed the connection."""
    before: dict[tuple[object, ...], Produced] = {}
    by: dict[int, list[tuple[Produced, Produced]]] = {}
    batches = scene.facts.produced
    uses = Counter(batches.client[distinct(batches.client, batches.connection)[0]].tolist())
    moved = np.flatnonzero(np.isin(batches.client, [client for client, count in uses.items() if count > 1]))
    columns = batches.client, batches.lane, batches.producer_id, batches.sequence, batches.first_timestamp, batches.records, batches.size
    for batch in batches.rows(moved[repeated(mixed(*(column[moved] for column in columns)), 2)]):
        key = (batch.client, batch.lane, batch.producer_id, batch.sequence, batch.first_timestamp, batch.records, batch.size)
        first = before.get(key)
        if first and first.connection != batch.connection:
            late = first.answered_us is not None and first.answered_us > batch.arrived_us
            if late or first.outcome == "client gone":
                by.setdefault(batch.client, []).append((first, batch))
        before[key] = batch
    for client, pairs in by.items():
        waited = max(again.arrived_us - first.arrived_us for first, again in pairs)
        yield found(
            "request-timeout", "error", 72,
            f"{scene.name(client)} gave up {len(pairs)} Produce requests after at most {seconds(waited)}, closed the connection and sent the batches again, "
            f"while the broker was at work on them: its request time-out is shorter than the broker needs.",
            "Raise request.timeout.ms (librdkafka: socket.timeout.ms) above what the broker needs, and look for what makes the broker slow.",
            [number for first, again in pairs for number in (first.number, again.number)], scene.name(client),
        )  # fmt: skip


def _missing(scene: Scene) -> Iterator[Finding]:
    by: dict[str, list[Refused]] = {}
    for refused in scene.facts.refused:
        if refused.error in {"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"} and refused.api in {"Metadata", "Produce", "Fetch", "ListOffsets"}:
            by.setdefault(refused.about, []).append(refused)
    for topic, items in by.items():
        if len(items) >= 3 and topic and topic not in scene.facts.partitions:  # noqa: PLR2004 - a topic may be created after the first request
            yield found(
                "topic-missing", "error", 84,
                f"{several(scene.name(item.client) for item in items)} asks for the topic {topic}, which does not exist ({len(items)} responses said so).",
                "Create the topic, or correct its name in the program.", [item.number for item in items], topic,
            )  # fmt: skip
