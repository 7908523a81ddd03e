"""What a session says: columns of all requests, fetches and batches (`columns.py`), rows of the rest (`rows.py`), and which client each is of."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fletchlog._core import Session, error_classes, exchange_columns
from fletchlog.explain.session.columns import Batches, Fetches, Lines, column, distinct, np, optional, split
from fletchlog.explain.session.instances import separate
from fletchlog.explain.session.rows import (
    Committed,
    GroupEvent,
    Lane,
    Link,
    Position,
    Refused,
    Shared,
    TopicsAsked,
    TransactionEvent,
)
from fletchlog.explain.session.share_facts import shares_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fletchlog.explain.session.columns import Array, Tables
    from fletchlog.explain.session.recorded import Connection, Exchange

_NAMES = {code: name for name, code, _, _ in error_classes() if code is not None}
_Fields = dict[str, Any]
_UNKNOWN = ("", "")


class Facts:
    """The rows of a session."""

    def __init__(self) -> None:
        """Of no requests."""
        self.clients: list[tuple[str, str, str]] = []
        tables = exchange_columns([])
        self.lines = Lines(tables, str)
        self.fetches = Fetches(self.lines, tables, _error)
        self.produced = Batches(self.lines, tables, _error)
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
        self.written_ends: dict[Lane, tuple[int, int]] | None = None
        """What `lag.written_ends` found."""
        self.first_us = 0
        self.last_us = 0
        self._exchanges: Sequence[Exchange] | Session = ()
        self._resets: list[Position] | None = None
        self._lanes: dict[tuple[str, int], Lane] = {}

    def read(self, connections: Iterable[Connection], exchanges: Sequence[Exchange] | Session, tables: Tables) -> None:
        """Takes a session: its connections, requests, and the columns of these."""
        self._exchanges = exchanges
        self.lines = lines = Lines(tables, lambda place: exchanges[place].api)
        self._number_clients()
        self.fetches, self.produced = Fetches(lines, tables, _error), Batches(lines, tables, _error)
        self._lanes = {(lane.topic, lane.partition): lane for lane in lines.named.lanes}
        if len(lines):
            self._link({connection.number: connection for connection in connections})
        place, ms = column(tables["throttled"]["place"]), column(tables["throttled"]["ms"])
        self.throttled = list(zip(lines.number[place].tolist(), lines.client[place].tolist(), ms.tolist(), strict=True))
        read = lines.are(*_READERS)
        read[column(tables["failed"]["place"])] = True
        places = np.flatnonzero(read)
        for at, client in zip(places.tolist(), lines.client[places].tolist(), strict=True):
            self._add(exchanges[at], client)
        self.throttled.sort()
        self.committed += self._commits(tables["commits"])
        self.committed.sort(key=attrgetter("number"))
        self.positions += self._positions(tables["positions"])
        self.shared += shares_of(lines, tables, _error)
        self.group_events += self._heartbeats(tables["heartbeats"])
        self.group_events.sort(key=attrgetter("number"))

    def _heartbeats(self, columns: dict[str, bytes]) -> Iterator[GroupEvent]:
        """Heartbeats of classic groups."""
        lines, text = self.lines, self.lines.named.text
        place, group, member, instance, generation, error = map(column, columns.values())
        values = (
            lines.number[place].tolist(), lines.client[place].tolist(), lines.connection[place].tolist(), lines.arrived_us[place].tolist(),
            optional(lines.answered_us[place]), text(group), text(member), text(instance), generation.tolist(), error.tolist(),
        )  # fmt: skip
        for number, client, connection, at, answered, of, who, static, joined, code in zip(*values, strict=True):
            yield GroupEvent(
                number, client, connection, at, answered, of, "heartbeat", who, static, joined, _error(code), None, (), (), None, -1, -1, None, None,
            )  # fmt: skip

    def _commits(self, columns: dict[str, bytes]) -> Iterator[Committed]:
        """Offsets of OffsetCommit requests."""
        lines, names = self.lines, self.lines.named
        place, group, member, generation, lane, offset, error = map(column, columns.values())
        values = (
            lines.number[place].tolist(), lines.client[place].tolist(), lines.connection[place].tolist(), lines.arrived_us[place].tolist(),
            names.text(group), names.text(member), generation.tolist(), [names.lanes[number] for number in lane.tolist()], offset.tolist(),
            [_error(code) for code in error.tolist()],
        )  # fmt: skip
        return (Committed._make((*row, False)) for row in zip(*values, strict=True))

    def _positions(self, columns: dict[str, bytes]) -> Iterator[Position]:
        """Offsets that were looked up."""
        lines, names = self.lines, self.lines.named
        place, group, lane, timestamp, offset, error = map(column, columns.values())
        answered = lines.answered_us[place]
        values = (
            lines.number[place].tolist(), lines.client[place].tolist(), np.where(answered > 0, answered, lines.arrived_us[place]).tolist(), names.text(group),
            [names.lanes[number] for number in lane.tolist()], optional(timestamp), offset.tolist(), [_error(code) for code in error.tolist()],
        )  # fmt: skip
        return map(Position._make, zip(*values, strict=True))

    def _number_clients(self) -> None:
        """Numbers clients by client id and software, in the order of their first requests. Requests before ApiVersions has arrived are of the same client."""
        lines = self.lines
        numbers: dict[tuple[str, str, str], int] = {}
        first, _, kind = distinct(lines.connection, lines.client_id)
        of_kind = []
        for place, client_id in zip(first.tolist(), lines.named.text(lines.client_id[first]), strict=True):
            exchange = self._exchanges[place]
            software = (name, exchange.software_version or "") if (name := exchange.software_name) else _UNKNOWN
            of_kind.append(numbers.setdefault((client_id or "", *software), len(numbers)))
        self.clients = list(numbers)
        lines.client = np.array(of_kind, np.int64)[kind]

    def _link(self, opened: dict[int, Connection]) -> None:
        """How connections were used."""
        lines = self.lines
        ends = np.maximum(lines.arrived_us, lines.answered_us)
        self.first_us, self.last_us = int(lines.arrived_us.min()), int(ends.max())
        self.closed = {number: connection.closed_us for number, connection in opened.items() if connection.closed_us is not None}
        for number, places in sorted(split(lines.connection), key=lambda item: int(item[1][0])):
            at, connection = int(lines.arrived_us[places[0]]), opened.get(number)
            peer = ("", at) if connection is None else (connection.peer, connection.opened_us)
            link = Link(number, self._exchanges[int(places[0])].node, at, int(ends[places[-1]]), *peer)
            self.connections[number] = link
            for codes, names, counter in ((lines.api[places], lines.apis, link.apis), (lines.client[places], range(len(self.clients)), link.clients)):
                first, counts, _ = distinct(codes)
                counter.update({names[code]: count for code, count in zip(codes[first].tolist(), counts.tolist(), strict=True)})

    def _add(self, exchange: Exchange, client: int) -> None:
        """Takes a request that is read as a whole: one of few, or with an error."""
        api = exchange.api
        if api in _COLUMNS:
            self._errors(exchange, client, exchange.response or {})
            return
        request, response = exchange.request, exchange.response
        if request is None:
            return
        if response:
            throttle = response.get("throttle_time_ms") or 0
            if throttle > 0:
                self.throttled.append((exchange.number, client, throttle))
            if _fails(response):
                self._errors(exchange, client, response)
        _READERS[api](self, exchange, client, request, response or {})

    def first_fetches(self, connections: Iterable[int]) -> Iterator[Exchange]:
        """The fetches of connections in the order of arrival, to derive polls from them."""
        places = self.fetches.place[np.isin(self.fetches.connection, list(connections))]
        return (self._exchanges[place] for place in places.tolist())

    def resets(self) -> list[Position]:
        """Looked-up ends and starts of logs at which a consumer began, as auto.offset.reset says: the next fetch names this offset, and no record led to it.

        Programs look up ends for other reasons too, such as their lag.
        """
        if self._resets is None:
            self._resets = [position for _, position in sorted(self._find_resets(), key=lambda found: found[0])]
        return self._resets

    def _find_resets(self) -> Iterator[tuple[int, Position]]:
        """Each with the row of what the fetch names."""
        looked: dict[tuple[int, Lane], list[Position]] = {}
        for position in self.positions:
            if position.timestamp in {-1, -2} and not position.error:
                looked.setdefault((position.client, position.lane), []).append(position)
        fetches, named, got = self.fetches, self.fetches.named, self.fetches.got
        for client in {client for client, _ in looked}:
            mine = fetches.of(client)
            names, gots = named.of(mine), got.of(mine)
            names_of, gots_of = dict(split(named.lane[names])), dict(split(got.lane[gots]))
            for (_, lane), positions in ((key, found) for key, found in looked.items() if key[0] == client):
                number = fetches.names.number_of.get(lane, -1)
                if number not in names_of:
                    continue
                asks = names[names_of[number]]
                brought = gots[gots_of[number]] if number in gots_of else gots[:0]
                # the offset behind what the fetches before it brought; a fetch that begins elsewhere was led there
                before = np.searchsorted(got.fetch[brought], named.fetch[asks]) - 1
                expected = got.position(brought)[before] if len(brought) else before
                led = asks[(before < 0) | (expected != named.offset[asks])]
                at = 0
                for row, request, offset in zip(led.tolist(), fetches.number[named.fetch[led]].tolist(), named.offset[led].tolist(), strict=True):
                    if at == len(positions):
                        break
                    pending = []
                    while at < len(positions) and positions[at].number < request:
                        pending.append(positions[at])
                        at += 1
                    for position in [position for position in pending if position.offset == offset][-1:]:
                        yield row, position

    def numbers_changed(self, of_lines: Array) -> None:
        """Gives requests other numbers of clients."""
        self.lines.client, self._resets = of_lines, None
        self.fetches.clients_changed()
        self.produced.clients_changed()

    def name(self, client: int) -> str:
        """A client as a reader knows it: its id, and its software where it says so."""
        client_id, software, _ = self.clients[client]
        place = f" at {address}" if (address := self.addresses.get(client)) else ""
        return f"{client_id or software or 'a client without id'}{place}"

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

    def _offset_commit(self, exchange: Exchange, client: int, request: _Fields, response: _Fields) -> None:
        errors = {Lane(_topic(t), p["partition_index"]): _error(p["error_code"]) for t in response.get("topics") or () for p in t["partitions"]}
        for topic in request.get("topics") or ():
            for partition in topic["partitions"]:
                lane = self._lane(_topic(topic), partition["partition_index"])
                self.committed.append(
                    Committed(
                        exchange.number, client, exchange.connection, exchange.arrived_us, request["group_id"], request.get("member_id") or "",
                        request.get("generation_id", -1),
                        lane, partition["committed_offset"], errors.get(lane), transactional=True,
                    )
                )  # fmt: skip

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

    def _nothing(self, _exchange: Exchange, _client: int, _request: _Fields, _response: _Fields) -> None:
        """Only its errors count."""


def gather(items: Iterable[Any]) -> Facts:
    """The facts of a session, or of connections and requests of one in their order."""
    facts = Facts()
    if isinstance(items, Session):
        facts.read(items.connections, items, items.columns())
    else:
        every = list(items)
        exchanges = [item for item in every if hasattr(item, "api")]
        facts.read((item for item in every if not hasattr(item, "api")), exchanges, exchange_columns(exchanges))
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


_COLUMNS = {"Fetch", "Produce", "Heartbeat", "OffsetCommit", "OffsetFetch", "ListOffsets", "ShareFetch", "ShareAcknowledge"}
_READERS: dict[str, Callable[[Facts, Exchange, int, _Fields, _Fields], None]] = {
    "TxnOffsetCommit": Facts._offset_commit,  # noqa: SLF001 - the methods of this class, by API
    "Metadata": Facts._metadata,  # noqa: SLF001
    **dict.fromkeys(("JoinGroup", "SyncGroup", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"), Facts._group),  # noqa: SLF001
    **dict.fromkeys(("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"), Facts._transaction),  # noqa: SLF001
    **dict.fromkeys(("FindCoordinator", "SaslHandshake", "SaslAuthenticate", "CreateTopics", "DescribeGroups"), Facts._nothing),  # noqa: SLF001
}
