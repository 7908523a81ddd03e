"""Who the clients are, and their settings as far as the wire shows them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import distinct

if TYPE_CHECKING:
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.groups import Group
    from fletchlog.explain.session.share_groups import ShareGroup

ISOLATION = ("read_uncommitted", "read_committed")
ACQUIRE_MODES = ("batch_optimized", "record_limit")


@dataclass(slots=True)
class Client:
    """A client of the session: requests with one client id, of one software; of several such clients at a time, those of one (`instances.py`)."""

    number: int
    client_id: str
    software: str
    version: str
    requests: dict[str, int]
    connections: int
    address: str = ""
    """Where it connects from (`host:port` of its first connection), if other clients have the same client id and software; otherwise empty."""
    settings: dict[str, str] = field(default_factory=dict)
    """Properties by Kafka's names, where the wire shows their values."""
    groups: list[str] = field(default_factory=list)
    transactional_ids: list[str] = field(default_factory=list)
    records_read: int = 0
    bytes_read: int = 0
    records_written: int = 0
    bytes_written: int = 0
    batches: int = 0

    @property
    def title(self) -> str:
        """Its id, and its software."""
        software = " ".join(part for part in (self.software, self.version) if part) or "software unknown: it does not say"
        return f"{self.client_id or '(no client id)'} ({software})" + (f" at {self.address}" if self.address else "")


def clients_of(facts: Facts, groups: dict[str, Group], share_groups: dict[str, ShareGroup]) -> list[Client]:
    """The clients in the order in which they appeared."""
    apis: dict[int, Counter[str]] = {}
    first, counts, _ = distinct(facts.lines.client, facts.lines.api)
    for number, api, count in zip(facts.lines.client[first].tolist(), facts.lines.api[first].tolist(), counts.tolist(), strict=True):
        apis.setdefault(number, Counter())[facts.lines.apis[api]] = count
    connections: Counter[int] = Counter()
    for link in facts.connections.values():
        for number in link.clients:
            connections[number] += 1
    found = [
        Client(number, name, software, version, dict(apis.get(number, Counter()).most_common()), connections[number], facts.addresses.get(number, ""))
        for number, (name, software, version) in enumerate(facts.clients)
    ]
    _readers(facts, found)
    _writers(facts, found)
    _members(groups, found)
    _shares(facts, share_groups, found)
    for event in facts.transactions:
        if event.transactional_id and event.transactional_id not in found[event.client].transactional_ids:
            found[event.client].transactional_ids.append(event.transactional_id)
        if event.kind == "init" and event.timeout_ms >= 0 and event.transactional_id:
            found[event.client].settings["transaction.timeout.ms"] = str(event.timeout_ms)
    return found


def _readers(facts: Facts, clients: list[Client]) -> None:
    fetches = facts.fetches
    for number in fetches.clients():
        client, mine = clients[number], fetches.of(number)
        client.records_read, client.bytes_read = int(fetches.got.records[fetches.got.of(mine)].sum()), int(fetches.size[mine].sum())
        last = mine[-1]
        client.settings |= {
            "fetch.max.wait.ms": str(fetches.max_wait_ms[last]),
            "fetch.min.bytes": str(fetches.min_bytes[last]),
            "fetch.max.bytes": str(fetches.max_bytes[last]),
            "isolation.level": ISOLATION[fetches.isolation[last]],
        }
        limits = fetches.partition_max_bytes[mine]
        if limits.any():
            client.settings["max.partition.fetch.bytes"] = str(limits[limits != 0][-1])
    for position in facts.resets():
        clients[position.client].settings["auto.offset.reset"] = "earliest" if position.timestamp == -2 else "latest"  # noqa: PLR2004 - Kafka's sentinel


def _writers(facts: Facts, clients: list[Client]) -> None:
    batches = facts.produced
    for number in batches.clients():
        client, mine = clients[number], batches.of(number)
        client.records_written, client.bytes_written, client.batches = int(batches.records[mine].sum()), int(batches.size[mine].sum()), len(mine)
        acks, codecs = batches.acks[mine[-1]], batches.codec[mine]
        client.settings["acks"] = "all" if acks == -1 else str(acks)
        client.settings["enable.idempotence"] = str(batches.producer_id[mine[-1]] >= 0).lower()
        first, counts, _ = distinct(codecs)
        client.settings.setdefault("compression.type", batches.names.texts[codecs[first[counts.argmax()]]])


def _members(groups: dict[str, Group], clients: list[Client]) -> None:
    for group in groups.values():
        for member in group.members.values():
            client = clients[member.client]
            if group.id not in client.groups:
                client.groups.append(group.id)
            client.settings["group.protocol"] = "consumer" if group.is_consumer_protocol else "classic"
            if member.session_timeout_ms >= 0:
                client.settings["session.timeout.ms"] = str(member.session_timeout_ms)
            if member.rebalance_timeout_ms >= 0:
                client.settings["max.poll.interval.ms"] = str(member.rebalance_timeout_ms)
            if member.protocols:
                client.settings["partition.assignment.strategy"] = ", ".join(member.protocols)
            if member.instance:
                client.settings["group.instance.id"] = member.instance
            if member.interval_us is not None:
                client.settings["heartbeat.interval.ms"] = f"about {member.interval_us // 1000}"


def _shares(facts: Facts, groups: dict[str, ShareGroup], clients: list[Client]) -> None:
    for row in facts.shared:
        client = clients[row.client]
        client.bytes_read += row.size
        if row.group and row.group not in client.groups:
            client.groups.append(row.group)
        # a fetch that only renews locks has zeros
        if row.api != "ShareFetch" or row.max_records <= 0:
            continue
        client.settings |= {
            "max.poll.records": str(row.max_records),
            "fetch.max.wait.ms": str(row.max_wait_ms),
            "fetch.min.bytes": str(row.min_bytes),
            "fetch.max.bytes": str(row.max_bytes),
            "share.acquire.mode": ACQUIRE_MODES[min(max(row.acquire_mode, 0), 1)],
        }
    for group in groups.values():
        for number, work in group.work().items():
            clients[number].records_read += work.delivered
        for member in group.members.values():
            if group.id not in clients[member.client].groups:
                clients[member.client].groups.append(group.id)
