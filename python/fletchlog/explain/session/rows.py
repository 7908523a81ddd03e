"""What a session says, as rows: one named tuple for each kind of thing that a request asks for or a response has. Times are microseconds since 1970."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

WireBatch: TypeAlias = tuple[int, int, int, int, int, bool, bool]
WirePartition: TypeAlias = tuple[str, int, int, int, int, int, list[tuple[int, int]], list[WireBatch]]
WireResponse: TypeAlias = tuple[int, int, int, list[WirePartition]]
WireFetch: TypeAlias = tuple[int, int, int, bool, list[tuple[str, int, int]], list[tuple[str, int]], WireResponse | None]


class Lane(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's way to write it."""
        return f"{self.topic}-{self.partition}"


class Line(NamedTuple):
    """A request as the list of requests shows it."""

    number: int
    client: int
    connection: int
    api: str
    version: int
    arrived_us: int
    answered_us: int | None
    request_bytes: int
    response_bytes: int | None
    outcome: str
    fault: str | None


class Got(NamedTuple):
    """What a Fetch response has of a partition; `asked` is the offset that was asked for (-1: not known)."""

    lane: Lane
    asked: int
    error: str | None
    high_watermark: int
    last_stable: int
    log_start: int
    first: int
    last: int
    records: int
    size: int
    transactional: bool
    aborted: int


class Fetched(NamedTuple):
    """A Fetch; `named` are the partitions and offsets in the request, `wanted` has the rest of its fetch session, too: fetches share it."""

    number: int
    client: int
    connection: int
    arrived_us: int
    answered_us: int | None
    named: dict[Lane, int]
    wanted: dict[Lane, None]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    isolation: int
    got: list[Got]
    size: int


class FetchOnWire(NamedTuple):
    """A Fetch of a Java consumer with all that decides its polls; `wire` is as `derive_polls` takes it.

    Attributes:
        number: Number of the request.
        node: The node that it was sent to.
        connection: Its connection.
        isolation: 1: read_committed.
        unknown: Why its response is not known; empty: it is, or there was none.
        wire: Number, node, time, whether it is a full one, partitions with offsets, partitions taken out of the session, response.
    """

    number: int
    node: int
    connection: int
    isolation: int
    unknown: str
    wire: WireFetch


class Produced(NamedTuple):
    """A batch of a Produce."""

    number: int
    client: int
    connection: int
    arrived_us: int
    answered_us: int | None
    lane: Lane
    records: int
    size: int
    producer_id: int
    producer_epoch: int
    sequence: int
    first_timestamp: int
    max_timestamp: int
    codec: str
    transactional: bool
    acks: int
    transactional_id: str | None
    error: str | None
    base_offset: int | None
    outcome: str


class Committed(NamedTuple):
    """An offset of an OffsetCommit or TxnOffsetCommit."""

    number: int
    client: int
    connection: int
    at_us: int
    group: str
    member: str
    generation: int
    lane: Lane
    offset: int
    error: str | None
    transactional: bool


class Position(NamedTuple):
    """An offset that was looked up: committed (OffsetFetch, -1: there is none) or by time (ListOffsets)."""

    number: int
    client: int
    at_us: int
    group: str | None
    lane: Lane
    timestamp: int | None
    offset: int
    error: str | None


class GroupEvent(NamedTuple):
    """A request of a group's member; `kind` is join, sync, heartbeat, leave, consumer-heartbeat or share-heartbeat."""

    number: int
    client: int
    connection: int
    at_us: int
    answered_us: int | None
    group: str
    kind: str
    member: str
    instance: str | None
    generation: int
    error: str | None
    reason: str | None
    topics: tuple[str, ...]
    protocols: tuple[str, ...]
    protocol: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assigned: tuple[Lane, ...] | None
    leader: str | None


class TopicsAsked(NamedTuple):
    """A Metadata request that names topics: a consumer with `assign()` has partitions of these alone."""

    number: int
    client: int
    connection: int
    at_us: int
    topics: tuple[str, ...]


class TransactionEvent(NamedTuple):
    """A request about a transaction; `kind` is init, add, offsets, commit or abort."""

    number: int
    client: int
    connection: int
    at_us: int
    kind: str
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    error: str | None
    lanes: tuple[Lane, ...]


@dataclass(slots=True)
class Link:
    """A connection, as far as it was used. Times are those at which requests arrived, but `last_us`, which may be that of a response."""

    number: int
    node: int
    first_us: int
    last_us: int
    peer: str = ""
    opened_us: int = 0
    apis: Counter[str] = field(default_factory=Counter)
    clients: Counter[int] = field(default_factory=Counter)


class Refused(NamedTuple):
    """An error in a response."""

    number: int
    client: int
    connection: int
    at_us: int
    api: str
    error: str
    about: str


class Acquired(NamedTuple):
    """Records that a ShareFetch response hands to a member.

    Attributes:
        lane: The partition.
        first: Offset of the first record.
        last: Offset of the last one.
        deliveries: How often they have been delivered, this time included.
        written_ms: The largest timestamp of their batches, ms since 1970; -1: none.
    """

    lane: Lane
    first: int
    last: int
    deliveries: int
    written_ms: int


class Acknowledged(NamedTuple):
    """Records that a member acknowledges: one type for all, or a type for each. Kafka: `AcknowledgeType`, 0 is a gap."""

    lane: Lane
    first: int
    last: int
    types: tuple[int, ...]
    error: str | None


class Shared(NamedTuple):
    """A ShareFetch or ShareAcknowledge; `wanted` are the partitions of its share session."""

    number: int
    client: int
    connection: int
    arrived_us: int
    answered_us: int | None
    outcome: str
    api: str
    group: str
    member: str
    epoch: int
    wanted: tuple[Lane, ...]
    max_records: int
    batch_size: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    acquire_mode: int
    renews: bool
    lock_ms: int
    error: str | None
    acknowledged: list[Acknowledged]
    acquired: list[Acquired]
    size: int
