"""One pass over a session: its requests and responses as rows (`rows.py`), and which client each is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog._core import error_classes
from fletchlog.explain.session.fetch_on_wire import MOST_FETCHES
from fletchlog.explain.session.instances import separate
from fletchlog.explain.session.rows import (
    Committed,
    Fetched,
    Got,
    GroupEvent,
    Lane,
    Line,
    Link,
    Position,
    Produced,
    Refused,
    Shared,
    TopicsAsked,
    TransactionEvent,
)
from fletchlog.explain.session.share_facts import ShareSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fletchlog.explain.session.recorded import Connection, Exchange

_NAMES = {code: name for name, code, _, _ in error_classes() if code is not None}
_Fields = dict[str, Any]
_Sent = tuple[int, int, int, int, int, int, int, str, bool]
_UNKNOWN = ("", "")
_NO_LIMIT = 2**31


class _FetchSession:
    """What a client and a broker remember of a connection's fetches. Kafka: `FetchSession`."""

    __slots__ = ("lanes", "limit", "offsets")

    def __init__(self, offsets: dict[Lane, int]) -> None:
        self.offsets = offsets
        self.limit = 0
        """max.partition.fetch.bytes."""
        self.lanes = dict.fromkeys(offsets)

    def update(self, named: dict[Lane, int], forgotten: list[Lane]) -> None:
        """Takes the next request. Fetches share `lanes`, which is made again only if it changes: most requests name few partitions of many."""
        before = len(self.offsets)
        self.offsets.update(named)
        is_other = len(self.offsets) > before
        for lane in forgotten:
            is_other |= self.offsets.pop(lane, None) is not None
        if is_other:
            self.lanes = dict.fromkeys(self.offsets)


class Facts:
    """The rows of a session."""

    def __init__(self) -> None:
        """Of no requests yet."""
        self.clients: list[tuple[str, str, str]] = []
        self.lines: list[Line] = []
        self.fetches: list[Fetched] = []
        self.produced: list[Produced] = []
        self.committed: list[Committed] = []
        self.positions: list[Position] = []
        self.group_events: list[GroupEvent] = []
        self.transactions: list[TransactionEvent] = []
        self.topics_asked: list[TopicsAsked] = []
        self.shared: list[Shared] = []
        self.refused: list[Refused] = []
        self.throttled: list[tuple[int, int, int]] = []
        self.partitions: dict[str, int] = {}
        self.connections: dict[int, Link] = {}
        self.addresses: dict[int, str] = {}
        self.closed: dict[int, int] = {}
        """By connection: when it was closed, us since 1970."""
        self.fetch_exchanges: dict[int, list[Exchange]] = {}
        """By connection: the first fetches, to derive polls from them."""
        self.written_ends: tuple[int, dict[Lane, tuple[int, int]]] = (0, {})
        """Of so many batches the ends of partitions: `lag.written_ends`."""
        self.first_us = 0
        self.last_us = 0
        self._fetches_of: dict[int, list[Fetched]] = {}
        self._sorted = 0
        self._resets: list[Position] | None = None
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._sessions: dict[tuple[int, int], _FetchSession] = {}
        self._software: dict[int, tuple[str, str]] = {}
        self._share_sessions = ShareSessions(_error, _topic)
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._peers: dict[int, tuple[str, int]] = {}

    def opened(self, connection: Connection) -> None:
        """Takes the next connection."""
        self._peers[connection.number] = (connection.peer, connection.opened_us)
        if connection.closed_us is not None:
            self.closed[connection.number] = connection.closed_us

    def add(self, exchange: Exchange) -> None:
        """Takes the next request."""
        client, number, connection, api = self._client(exchange), exchange.number, exchange.connection, exchange.api
        at, answered = exchange.arrived_us, exchange.answered_us
        last = at if answered is None or answered < at else answered
        self.first_us = min(self.first_us or at, at)
        self.last_us = max(self.last_us, last)
        link = self.connections.get(connection)
        if link is None:
            link = self.connections[connection] = Link(connection, exchange.node, at, last, *self._peers.get(connection, ("", at)))
        link.last_us = last
        link.apis[api] += 1
        link.clients[client] += 1
        self.lines.append(
            Line(
                number, client, connection, api, exchange.version, at, answered,
                exchange.request_bytes, exchange.response_bytes, exchange.outcome, exchange.fault,
            )
        )  # fmt: skip
        read = _READERS.get(api)
        if read is None:
            return
        request, response = exchange.brief() if api in _HAS_BATCHES else (exchange.request, exchange.response)
        if request is None:
            return
        if response:
            throttle = response.get("throttle_time_ms") or 0
            if throttle > 0:
                self.throttled.append((number, client, throttle))
            # a reader of many partitions finds their errors with what it reads
            if api not in _HAS_BATCHES and _fails(response):
                self._errors(exchange, client, response)
        read(self, exchange, client, request, response or {})

    def fetches_of(self, client: int) -> list[Fetched]:
        """The fetches of a client, in the order of arrival."""
        while self._sorted < len(self.fetches):
            fetch = self.fetches[self._sorted]
            self._fetches_of.setdefault(fetch.client, []).append(fetch)
            self._sorted += 1
        return self._fetches_of.get(client, [])

    def resets(self) -> list[Position]:
        """Looked-up ends and starts of logs at which a consumer began, as auto.offset.reset says: the next fetch names this offset, and no record led to it.

        Programs look up ends for other reasons too, such as their lag.
        """
        if self._resets is None:
            self._resets = self._find_resets()
        return self._resets

    def _find_resets(self) -> list[Position]:
        looked = [position for position in self.positions if position.timestamp in {-1, -2} and not position.error]
        lanes = {(position.client, position.lane) for position in looked}
        clients = {client for client, _ in lanes}
        pending: dict[tuple[int, Lane], list[Position]] = {}
        expected: dict[tuple[int, Lane], int] = {}
        found: list[Position] = []
        at = 0
        for fetch in self.fetches:
            if fetch.client not in clients:
                continue
            while at < len(looked) and looked[at].number < fetch.number:
                pending.setdefault((looked[at].client, looked[at].lane), []).append(looked[at])
                at += 1
            for lane, offset in fetch.named.items():
                key = (fetch.client, lane)
                if key in pending and expected.get(key) != offset:
                    found += [position for position in pending.pop(key) if position.offset == offset][-1:]
            for got in fetch.got:
                if (fetch.client, got.lane) in lanes:
                    expected[fetch.client, got.lane] = got.last + 1 if got.records else got.asked
        return found

    def numbers_changed(self) -> None:
        """Forgets what is kept by the numbers of clients."""
        self._fetches_of.clear()
        self._sorted, self._resets = 0, None

    def name(self, client: int) -> str:
        """A client as a reader knows it: its id, and its software where it says so."""
        client_id, software, _ = self.clients[client]
        place = f" at {address}" if (address := self.addresses.get(client)) else ""
        return f"{client_id or software or 'a client without id'}{place}"

    def _client(self, exchange: Exchange) -> int:
        # requests before ApiVersions has arrived are of the same client
        software = self._software.get(exchange.connection, _UNKNOWN)
        if not software[0] and (name := exchange.software_name):
            software = self._software[exchange.connection] = (name, exchange.software_version or "")
        key = (exchange.client_id or "", *software)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.clients)
            self.clients.append(key)
        return number

    def _errors(self, exchange: Exchange, client: int, response: _Fields) -> None:
        at = exchange.answered_us or exchange.arrived_us
        for error, about in _errors_of(response, ""):
            if error == "MEMBER_ID_REQUIRED":
                continue
            self.refused.append(Refused(exchange.number, client, exchange.connection, at, exchange.api, error, about))

    def _lane(self, topic: str, partition: int) -> Lane:
        """One object for a partition: a session names few of them, many times."""
        key = (topic, partition)
        return self._lanes.get(key) or self._lanes.setdefault(key, Lane(topic, partition))

    def _fetch(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        lane_of = self._lane
        named: dict[Lane, int] = {}
        limit = 0
        for topic in request.get("topics") or ():
            name = _topic(topic)
            for partition in topic["partitions"]:
                named[lane_of(name, partition["partition"])] = partition["fetch_offset"]
                limit = max(limit, partition.get("partition_max_bytes", 0))
        session = self._fetch_session(exchange.connection, named, request, response)
        session.limit = limit or session.limit
        got: list[Got] = []
        is_refused, size = bool(response.get("error_code")), 0
        left = request.get("max_bytes") or _NO_LIMIT
        for topic in response.get("responses") or ():
            name = _topic(topic)
            for partition in topic["partitions"]:
                lane = lane_of(name, partition["partition_index"])
                one = _got(lane, session.offsets.get(lane, -1), partition, min(session.limit or _NO_LIMIT, left), is_first=not size)
                got.append(one)
                size += one.size
                left -= min(one.size, left)
                is_refused = is_refused or one.error is not None
        if is_refused:
            self._errors(exchange, client, response)
        kept = self.fetch_exchanges.setdefault(exchange.connection, [])
        if len(kept) <= MOST_FETCHES:
            kept.append(exchange)
        self.fetches.append(
            Fetched(
                exchange.number, client, exchange.connection, exchange.arrived_us, exchange.answered_us, named, session.lanes,
                request.get("max_wait_ms", 0), request.get("min_bytes", 0), request.get("max_bytes", 0), limit,
                _isolation(request.get("isolation_level", 0)), got, size,
            )
        )  # fmt: skip

    def _fetch_session(self, connection: int, named: dict[Lane, int], request: _Fields, response: _Fields) -> _FetchSession:
        """What the request asks for; a fetch session remembers what a request leaves out. Kafka: `FetchSession`."""
        session, epoch = request.get("session_id", 0), request.get("session_epoch", -1)
        if epoch > 0:
            state = self._sessions.get((connection, session)) or _FetchSession({})
            forgotten = [self._lane(_topic(t), p) for t in request.get("forgotten_topics_data") or () for p in t["partitions"]]
            state.update(named, [lane for lane in forgotten if lane not in named])
        else:
            state = _FetchSession(dict(named))
        if opened := response.get("session_id", 0) or session:
            self._sessions[connection, opened] = state
        return state

    def _produce(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        answers = {self._lane(_topic(t), p["index"]): p for t in response.get("responses") or () for p in t["partition_responses"]}
        if any(answer["error_code"] for answer in answers.values()):
            self._errors(exchange, client, response)
        number, connection, arrived_us, answered_us = exchange.number, exchange.connection, exchange.arrived_us, exchange.answered_us
        transactional_id, outcome = request.get("transactional_id"), exchange.outcome
        for topic in request.get("topic_data") or ():
            name = _topic(topic)
            for partition in topic["partition_data"]:
                lane = self._lane(name, partition["index"])
                answer = answers.get(lane)
                error = _error(answer["error_code"]) if answer else None
                base = answer["base_offset"] if answer and not error else None
                batches: list[_Sent] = partition.get("records") or []
                for batch in batches:
                    self.produced.append(
                        Produced(
                            number, client, connection, arrived_us, answered_us, lane, *batch, request["acks"], transactional_id, error, base, outcome,
                        )
                    )  # fmt: skip

    def _offset_commit(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        errors = {Lane(_topic(t), p["partition_index"]): _error(p["error_code"]) for t in response.get("topics") or () for p in t["partitions"]}
        generation = next((request[key] for key in ("generation_id_or_member_epoch", "generation_id", "member_epoch") if key in request), -1)
        for topic in request.get("topics") or ():
            for partition in topic["partitions"]:
                lane = self._lane(_topic(topic), partition["partition_index"])
                self.committed.append(
                    Committed(
                        exchange.number, client, exchange.connection, exchange.arrived_us, request["group_id"], request.get("member_id") or "", generation,
                        lane, partition["committed_offset"], errors.get(lane), exchange.api == "TxnOffsetCommit",
                    )
                )  # fmt: skip

    def _offset_fetch(self, exchange: Exchange, client: int, _request: _Fields, response: _Fields) -> None:
        groups = response.get("groups") or [{"group_id": _request.get("group_id"), "topics": response.get("topics")}]
        for group in groups:
            for topic in group.get("topics") or ():
                for partition in topic["partitions"]:
                    lane = self._lane(_topic(topic), partition["partition_index"])
                    self.positions.append(
                        Position(
                            exchange.number, client, exchange.answered_us or exchange.arrived_us, group["group_id"], lane, None,
                            partition["committed_offset"], _error(partition["error_code"]),
                        )
                    )  # fmt: skip

    def _list_offsets(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        asked = {Lane(_topic(t), p["partition_index"]): p["timestamp"] for t in request.get("topics") or () for p in t["partitions"]}
        for topic in response.get("topics") or ():
            for partition in topic["partitions"]:
                lane = self._lane(_topic(topic), partition["partition_index"])
                at = exchange.answered_us or exchange.arrived_us
                offset, error = partition.get("offset", -1), _error(partition["error_code"])
                self.positions.append(Position(exchange.number, client, at, None, lane, asked.get(lane), offset, error))

    def _metadata(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        if names := tuple(topic["name"] for topic in request.get("topics") or () if topic.get("name")):
            self.topics_asked.append(TopicsAsked(exchange.number, client, exchange.connection, exchange.arrived_us, names))
        for topic in response.get("topics") or ():
            if topic.get("name") and not _error(topic["error_code"]):
                self.partitions[topic["name"]] = len(topic["partitions"])

    def _group(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        for event in _group_events(exchange, client, request, response):
            self.group_events.append(event)

    def _transaction(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        kind = {"InitProducerId": "init", "AddPartitionsToTxn": "add", "AddOffsetsToTxn": "offsets"}.get(exchange.api, "")
        kind = kind or ("commit" if request.get("committed") else "abort")
        # until version 3 AddPartitionsToTxn has one transaction, whose fields Kafka names so
        inner = (request.get("transactions") or [{name.removeprefix("v3_and_below_"): value for name, value in request.items()}])[0]
        producer = response if kind == "init" and not response.get("error_code") else inner
        lanes = tuple(Lane(_topic(t), p) for t in inner.get("topics") or () for p in t["partitions"])
        error = next((error for error, _ in _errors_of(response, "")), None)
        transactional_id = inner.get("transactional_id")
        self.transactions.append(
            TransactionEvent(
                exchange.number, client, exchange.connection, exchange.arrived_us, kind, transactional_id,
                producer.get("producer_id", -1), producer.get("producer_epoch", -1), request.get("transaction_timeout_ms", -1), error, lanes,
            )
        )  # fmt: skip

    def _share(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        self.shared.append(self._share_sessions.read(exchange, client, request, response))

    def _nothing(self, _exchange: Exchange, _client: int, _request: _Fields, _response: _Fields) -> None:
        """Only its errors count."""


def gather(items: Iterable[Any]) -> Facts:
    """The facts of a session: of the connections and requests that iterating over it gives."""
    facts = Facts()
    for item in items:
        if hasattr(item, "api"):
            facts.add(item)
        else:
            facts.opened(item)
    separate(facts)
    return facts


def _topic(fields: _Fields) -> str:
    name = fields.get("topic") or fields.get("name")
    return str(name or fields.get("topic_id", "?"))


def _error(code: Any) -> str | None:
    """Kafka's name of an error code; None: no error."""
    if code in (0, None, "NONE"):
        return None
    return code if isinstance(code, str) else _NAMES.get(code, f"error {code}")


def _isolation(level: Any) -> int:
    return level if isinstance(level, int) else int(level in (True, "read_committed", "ReadCommitted"))


def _got(lane: Lane, asked: int, fields: _Fields, limit: int, *, is_first: bool) -> Got:
    """What a response has of a partition. The last batch may be a part, where the size is at its limit: that has not arrived."""
    high, stable = fields.get("high_watermark", -1), fields.get("last_stable_offset", -1)
    if stable < 0:
        stable = high
    error, aborted = _error(fields["error_code"]), len(fields.get("aborted_transactions") or ())
    arrived = fields.get("records")
    if not arrived:
        return Got(lane, asked, error, high, stable, fields.get("log_start_offset", -1), -1, -1, 0, 0, False, aborted)
    first, last, records, size, transactional, (batches, last_first, last_records, last_size) = arrived
    if size > limit and (batches > 1 or not is_first):
        # only the first batch of a response may be larger. Kafka: `LogSegment#read`
        last, records, size = last_first - 1, records - last_records, size - last_size
        if batches == 1:
            first, last, records, size = -1, -1, 0, 0
    return Got(lane, asked, error, high, stable, fields.get("log_start_offset", -1), first, last, records, size, transactional, aborted)


def _fails(fields: _Fields) -> bool:
    """Whether a response has an error at any depth: most have none, and need no names of what it is about."""
    for key, value in fields.items():
        kind = value.__class__
        if kind is list:
            if value and value[0].__class__ is dict and key != "records" and any(map(_fails, value)):
                return True
        elif kind is dict:
            if _fails(value):
                return True
        elif value and key.endswith("error_code"):
            return True
    return False


def _errors_of(fields: Any, about: str) -> Iterator[tuple[str, str]]:
    """Errors of a response at any depth, each with what it is about."""
    if isinstance(fields, dict):
        name = fields.get("topic") or fields.get("name") or fields.get("transactional_id") or fields.get("group_id")
        about = str(name) if name else about
        partition = next((fields[key] for key in ("partition_index", "index") if key in fields), None)
        place = f"{about}-{partition}" if partition is not None else about
        for key, value in fields.items():
            if key.endswith("error_code") and (error := _error(value)):
                yield error, place
            elif isinstance(value, list | dict) and key != "records":
                yield from _errors_of(value, about)
    elif isinstance(fields, list):
        for item in fields:
            if not isinstance(item, dict):
                return
            yield from _errors_of(item, about)


def _group_events(exchange: Exchange, client: int, request: _Fields, response: _Fields) -> Iterator[GroupEvent]:
    error = _error(response.get("error_code"))
    common: _Fields = {
        "number": exchange.number, "client": client, "connection": exchange.connection, "at_us": exchange.arrived_us, "answered_us": exchange.answered_us,
        "group": request["group_id"], "error": error, "reason": None, "topics": (), "protocols": (), "protocol": None, "session_timeout_ms": -1,
        "rebalance_timeout_ms": -1, "assigned": None, "leader": None, "instance": request.get("group_instance_id"),
        "member": request.get("member_id") or "", "generation": request.get("generation_id", -1),
    }  # fmt: skip
    match exchange.api:
        case "JoinGroup":
            protocols = request["protocols"]
            topics = {topic for p in protocols if isinstance(p["metadata"], dict) for topic in p["metadata"].get("topics") or ()}
            yield GroupEvent(**common | {
                "kind": "join", "member": response.get("member_id") or common["member"], "generation": response.get("generation_id", -1),
                "reason": request.get("reason"), "topics": tuple(sorted(topics)), "protocols": tuple(p["name"] for p in protocols),
                "protocol": response.get("protocol_name"), "leader": response.get("leader"), "session_timeout_ms": request["session_timeout_ms"],
                "rebalance_timeout_ms": request.get("rebalance_timeout_ms", -1),
            })  # fmt: skip
        case "SyncGroup":
            yield GroupEvent(**common | {"kind": "sync", "assigned": _lanes(response.get("assignment")), "protocol": response.get("protocol_name")})
        case "Heartbeat":
            yield GroupEvent(**common | {"kind": "heartbeat"})
        case "LeaveGroup":
            left = {(m.get("member_id"), m.get("group_instance_id")): _error(m["error_code"]) for m in response.get("members") or ()}
            for member in request.get("members") or [request]:
                inner = left.get((member.get("member_id"), member.get("group_instance_id")))
                yield GroupEvent(**common | {
                    "kind": "leave", "member": member.get("member_id") or "", "instance": member.get("group_instance_id"),
                    "reason": member.get("reason"), "error": error or inner,
                })  # fmt: skip
        case _:
            assignment = response.get("assignment")
            assigned = _lanes({"assigned_partitions": assignment.get("topic_partitions") or []}) if isinstance(assignment, dict) else None
            yield GroupEvent(**common | {
                "kind": "share-heartbeat" if exchange.api == "ShareGroupHeartbeat" else "consumer-heartbeat",
                "member": response.get("member_id") or common["member"], "instance": request.get("instance_id"),
                "generation": response.get("member_epoch", request.get("member_epoch", -1)), "topics": tuple(request.get("subscribed_topic_names") or ()),
                "rebalance_timeout_ms": request.get("rebalance_timeout_ms", -1), "assigned": assigned, "protocol": request.get("server_assignor"),
                "reason": "leaves" if request.get("member_epoch") in (-1, -2) else "joins" if request.get("member_epoch") == 0 else None,
            })  # fmt: skip


def _lanes(assignment: Any) -> tuple[Lane, ...] | None:
    if not isinstance(assignment, dict):
        return None
    topics = assignment.get("assigned_partitions") or ()
    if isinstance(topics, dict):
        return tuple(Lane(topic, partition) for topic, partitions in topics.items() for partition in partitions)
    return tuple(Lane(_topic(t), p) for t in topics for p in t["partitions"])


_HAS_BATCHES = {"Fetch", "Produce"}
_READERS: dict[str, Callable[[Facts, Exchange, int, _Fields, _Fields], None]] = {
    "Fetch": Facts._fetch,  # noqa: SLF001 - the methods of this class, by API
    "Produce": Facts._produce,  # noqa: SLF001
    "OffsetCommit": Facts._offset_commit,  # noqa: SLF001
    "TxnOffsetCommit": Facts._offset_commit,  # noqa: SLF001
    "OffsetFetch": Facts._offset_fetch,  # noqa: SLF001
    "ListOffsets": Facts._list_offsets,  # noqa: SLF001
    "Metadata": Facts._metadata,  # noqa: SLF001
    **dict.fromkeys(("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"), Facts._group),  # noqa: SLF001
    **dict.fromkeys(("ShareFetch", "ShareAcknowledge"), Facts._share),  # noqa: SLF001
    **dict.fromkeys(("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"), Facts._transaction),  # noqa: SLF001
    **dict.fromkeys(("FindCoordinator", "SaslHandshake", "SaslAuthenticate", "CreateTopics", "DescribeGroups"), Facts._nothing),  # noqa: SLF001
}
