"""A session as a whole: its clients, groups, producers, lag and findings; as text and as values for JSON."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from fletchlog._core import __version__
from fletchlog.errors import InvalidArgumentError
from fletchlog.explain.session.client import Client, clients_of
from fletchlog.explain.session.facts import Facts, gather
from fletchlog.explain.session.finding import LEVELS, Finding, Scene
from fletchlog.explain.session.groups import Group, Rebalance, Repeated, groups_of
from fletchlog.explain.session.lag import Behind, lag_of
from fletchlog.explain.session.order import Order, order_of
from fletchlog.explain.session.polls import JAVA, Polls, polls_of
from fletchlog.explain.session.producers import Repeats, Transaction, repeats_of, transactions_of
from fletchlog.explain.session.rules import findings_of
from fletchlog.explain.session.share_groups import ShareGroup, share_groups_of
from fletchlog.explain.session.share_values import values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = "fletchlog-session/1"
# of so many Java consumers text, page and JSON have the polls, and of so many fetches of each
MOST_SHOWN_CLIENTS, MOST_SHOWN = 10, 300


@dataclass(slots=True)
class Explained:
    """What a session shows.

    Attributes:
        findings: What is wrong, the most important first.
        clients: Its clients, in the order in which they appeared.
        groups: Its groups of consumers, by name.
        share_groups: Its share groups, by name.
        transactions: Its transactions, in the order in which they began.
        repeats: By number of a client: batches of an idempotent producer that were sent again.
        lag: How far groups are behind, the greatest lag first.
        facts: Its requests and responses as rows.
        source: Where the session comes from.
    """

    findings: list[Finding]
    clients: list[Client]
    groups: dict[str, Group]
    transactions: list[Transaction]
    repeats: dict[int, Repeats]
    lag: list[Behind]
    facts: Facts
    source: str = ""
    share_groups: dict[str, ShareGroup] = field(default_factory=dict)
    incomplete: list[str] = field(default_factory=list)
    """Why requests may be missing, in words."""
    max_poll_records: int | None = None
    """What Java consumers have set; None: not known."""
    _orders: dict[int, Order] = field(default_factory=dict, repr=False)
    _polls: dict[int, Polls] = field(default_factory=dict, repr=False)
    _shown: list[Polls] | None = field(default=None, repr=False)

    def order(self, client: int | str) -> Order:
        """In which order a client asked for partitions, and their records arrived.

        Args:
            client: Its number, or its client id; of several clients with this id the first.

        Raises:
            fletchlog.errors.InvalidArgumentError: The session has no such client.
        """
        number = self._number(client)
        if number not in self._orders:
            with no_collection():
                self._orders[number] = order_of(self.facts, number)
        return self._orders[number]

    def polls(self, client: int | str, max_poll_records: int | None = None, release: str | None = None) -> Polls:
        """What each `poll()` of a Java consumer returned, as it follows from its fetches and their responses.

        Args:
            client: Its number, or its client id.
            max_poll_records: What the program has set; None: that of `fl.explain.clients`, else Kafka's default if it agrees with the fetches, else a value
                that does.
            release: The release of Kafka whose rules the client has, such as 3.9; None: the one that it says.

        Raises:
            fletchlog.errors.InvalidArgumentError: The session has no such client, max_poll_records is not positive, or release is none from 2.4 to 4.4.
        """
        number = self._number(client)
        if release is not None or max_poll_records not in {None, self.max_poll_records}:
            given = self.max_poll_records if max_poll_records is None else max_poll_records
            return polls_of(self.facts, number, given, release)
        if number not in self._polls:
            self._polls[number] = polls_of(self.facts, number, self.max_poll_records)
        return self._polls[number]

    def shown_polls(self) -> list[Polls]:
        """Those that text, page and JSON have: of the first Java consumers, and of their first fetches."""
        if self._shown is None:
            java = [client.number for client in self.clients if client.records_read and client.software == JAVA]
            self._shown = [polls_of(self.facts, number, self.max_poll_records, most=MOST_SHOWN) for number in java[:MOST_SHOWN_CLIENTS]]
        return self._shown

    def _number(self, client: int | str) -> int:
        number = client if isinstance(client, int) else next((c.number for c in self.clients if c.client_id == client), -1)
        if not 0 <= number < len(self.clients):
            raise InvalidArgumentError(f"the session has no client {client!r}; it has {', '.join(c.client_id for c in self.clients) or 'none'}")
        return number

    def failing(self, level: str = "error") -> list[Finding]:
        """Findings of this level, and of those above it.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such level.
        """
        if level not in LEVELS:
            raise InvalidArgumentError(f"there is no level {level!r}; levels are {' and '.join(LEVELS)}")
        return [finding for finding in self.findings if finding.level == LEVELS[0] or level == LEVELS[1]]

    def text(self) -> str:
        """All of it, for a reader."""
        from fletchlog.explain.session.text import text_of

        return text_of(self)

    def page(self) -> str:
        """A page of HTML that needs no network."""
        from fletchlog.explain.session.page import page_of

        return page_of(self)

    def as_dict(self, *, whole: bool = True) -> dict[str, Any]:
        """All of it but the requests, as values for JSON. Times are us since 1970.

        Args:
            whole: Also what grows with the number of requests: heartbeats, joins, records that were fetched twice, arrivals.
        """
        facts = self.facts
        return {
            "format": FORMAT,
            "version": __version__,
            "source": self.source,
            "requests": len(facts.lines),
            "first_us": facts.first_us,
            "last_us": facts.last_us,
            "incomplete": self.incomplete,
            "findings": [asdict(finding) for finding in self.findings],
            "clients": [asdict(client) | {"name": facts.name(client.number)} for client in self.clients],
            "groups": [
                *(_group(group, whole=whole) for group in self.groups.values()),
                *(_group(group, whole=whole) | values_of(group) for group in self.share_groups.values()),
            ],
            "transactions": [asdict(t) | {"lanes": sorted(map(str, t.lanes))} for t in self.transactions],
            "repeats": {str(client): asdict(repeats) for client, repeats in self.repeats.items()},
            "lag": [asdict(behind) | {"lane": str(behind.lane)} for behind in self.lag],
            "order": [_order(self.order(client.number), whole=whole) for client in self.clients if len(facts.fetches.of(client.number))],
            "polls": [polls.as_dict() for polls in self.shown_polls()],
        }


def _group(group: Group, *, whole: bool) -> dict[str, Any]:
    members = [
        {
            "id": member.id, "client": member.client, "instance": member.instance, "topics": list(member.topics), "protocols": list(member.protocols),
            "session_timeout_ms": member.session_timeout_ms, "rebalance_timeout_ms": member.rebalance_timeout_ms, "joined_us": member.joined_us,
            "ended_us": member.ended_us, "how": member.how, "reason": member.reason,
            "assigned_us": member.assigned_us, "assigned": None if member.assigned is None else list(map(str, member.assigned)),
            **({"heartbeats_us": list(member.beats)} if whole else {}),
        }
        for member in group.members.values()
    ]  # fmt: skip
    return {
        "id": group.id,
        "protocol": group.protocol,
        "group_protocol": "share" if isinstance(group, ShareGroup) else "consumer" if group.is_consumer_protocol else "classic",
        "members": members,
        "rebalances": [_rebalance(rebalance, whole=whole) for rebalance in group.rebalances],
        "repeated": [_repeated(item) for item in group.repeated] if whole else [],
    }


def _repeated(item: Repeated) -> dict[str, Any]:
    return {"lane": str(item.lane), "first": item.first, "last": item.last, "before": item.before, "after": item.after, "by": item.by}


def _rebalance(rebalance: Rebalance, *, whole: bool) -> dict[str, Any]:
    return {each.name: getattr(rebalance, each.name) for each in fields(rebalance) if whole or each.name != "joins"}


def _order(order: Order, *, whole: bool) -> dict[str, Any]:
    return {
        "client": order.client,
        **({"arrivals": [[a.number, str(a.lane), a.first, a.last, a.records] for a in order.arrivals[:1000]]} if whole else {}),
        "waiting": [asdict(entry) | {"lane": str(entry.lane)} for entry in order.waiting],
    }


def of_facts(facts: Facts, source: str = "", incomplete: Iterable[str] = (), max_poll_records: int | None = None) -> Explained:
    """What these facts show; `max_poll_records` is that of its Java consumers."""
    with no_collection():
        groups, share_groups = groups_of(facts), share_groups_of(facts)
        clients = clients_of(facts, groups, share_groups)
        findings = findings_of(Scene(facts, groups, clients, share_groups))
        lag = lag_of(facts, groups)
        explained = Explained(findings, clients, groups, transactions_of(facts), repeats_of(facts), lag, facts, source, share_groups, list(incomplete))
        explained.max_poll_records = max_poll_records
        return explained


@contextmanager
def no_collection() -> Iterator[None]:
    """Without Python's search for cycles: rows have none, and it would walk through all of them again and again, half of the time of a large session."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def clients(session: Any, *, max_poll_records: int | None = None) -> Explained:
    """Explains the clients of a recorded session: who they are, what they do, and what is wrong.

        print(fl.explain.clients("session.fltrace").text())

    Args:
        session: The path of a session, a `fletchlog.explain.session.Session`, or exchanges.
        max_poll_records: What its Java consumers have set, for `Explained.polls`. None: Kafka's default if it agrees with their fetches.

    Raises:
        fletchlog.errors.StorageError: The file cannot be read.
        fletchlog.errors.DamagedFileError: It is no session, or damaged.
    """
    import os

    if isinstance(session, str | os.PathLike):
        from fletchlog.explain.session.recorded import Session

        session = Session(session)
    incomplete = []
    if getattr(session, "dropped", 0):
        incomplete.append(f"{session.dropped} requests were not recorded: the recorder could not keep up")
    if getattr(session, "dropped_bodies", 0):
        incomplete.append(f"the fields of {session.dropped_bodies} responses were not recorded")
    if getattr(session, "is_cut", False):
        incomplete.append("the file ends in the middle of a block: its end was not written")
    with no_collection():
        facts = gather(session)
    return of_facts(facts, str(getattr(session, "path", "")), incomplete, max_poll_records)
