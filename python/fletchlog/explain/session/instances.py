"""Programs that share a client id and their software: which of their connections are of one client.

A client sends Fetch, Produce and the requests of its group to one node over one connection at a time. So two connections that were used for the same
kind of request at the same time are of two clients, and so are connections from two hosts. What else a connection was used for (the first metadata, a
coordinator) is of the client whose member id, transactional id, producer id or partitions it has in common, or else of the one that connected next to it.
Clients that were used one after the other may be one that connected again: they stay one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fletchlog.explain.session.columns import distinct, np, split

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.rows import Lane, Link

KINDS = {
    "Produce": "produce", "Fetch": "fetch", "JoinGroup": "group", "SyncGroup": "group", "Heartbeat": "group", "ConsumerGroupHeartbeat": "group",
    "ShareGroupHeartbeat": "group", "ShareFetch": "share",
}  # fmt: skip
# so many requests of one connection among those of another: what was in flight when a client connected again is fewer
LEAST = 6
# of a client id with more connections none are separated
MOST_LINKS = 2_000
# of more pairs of a connection and a client the best is not looked for: connections are placed in the order of time
MOST_PAIRS = 100_000
# rows that have a client and a connection
_ROWS = ("committed", "positions", "group_events", "transactions", "shared", "refused", "topics_asked")


@dataclass(slots=True)
class _Use:
    """What a connection was used for."""

    link: Link
    times: dict[str, list[int]] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    marks: set[Hashable] = field(default_factory=set)
    lanes: set[Lane] = field(default_factory=set)
    last: set[Lane] = field(default_factory=set)
    """The last partitions that were assigned or fetched, before any that were given up at the end."""

    @property
    def host(self) -> str:
        return self.link.peer.rpartition(":")[0]

    def begins(self, kind: str) -> int:
        times = self.times.get(kind)
        return times[0] if times else self.link.first_us


def separate(facts: Facts) -> None:
    """Gives each of several clients with one client id and software a number of its own, in all rows, and an address by which it is named."""
    by: dict[int, list[Link]] = {}
    for link in facts.connections.values():
        by.setdefault(link.clients.most_common(1)[0][0], []).append(link)
    several = [number for number, links in by.items() if len(links) <= MOST_LINKS and _may_be_several(links)]
    if not several:
        return
    uses = _uses(facts, {link.number for number in several for link in by[number]})
    parts = {number: _parts([uses[link.number] for link in by[number]]) for number in several}
    if any(len(found) > 1 for found in parts.values()):
        _renumber(facts, parts)


def _may_be_several(links: list[Link]) -> bool:
    """A first look, at little cost."""
    if len({link.peer.rpartition(":")[0] for link in links}) > 1:
        return True
    last: dict[tuple[str, int], int] = {}
    for link in sorted(links, key=lambda link: link.first_us):
        for kind in {KINDS[api] for api in link.apis if api in KINDS}:
            if last.get((kind, link.node), -1) > link.first_us:
                return True
            last[kind, link.node] = max(last.get((kind, link.node), -1), link.last_us)
    return False


def _uses(facts: Facts, numbers: set[int]) -> dict[int, _Use]:
    """How these connections were used."""
    uses = {number: _Use(facts.connections[number]) for number in numbers}
    lines = facts.lines
    kinds = sorted(set(KINDS.values()))
    kind_of = np.array([kinds.index(KINDS[api]) if api in KINDS else -1 for api in lines.apis], np.int64)[lines.api]
    theirs = np.flatnonzero(np.isin(lines.connection, list(numbers)) & (kind_of >= 0))
    for number, at in split(lines.connection[theirs]):
        places = theirs[at]
        of_kind = sorted(split(kind_of[places]), key=lambda item: int(item[1][0]))
        uses[number].times = {kinds[kind]: lines.arrived_us[places[rows]].tolist() for kind, rows in of_kind}
    for event in facts.group_events:
        if use := uses.get(event.connection):
            use.members |= {event.member} - {""}
            use.marks |= {("member", event.member)} if event.member else set()
            use.lanes |= set(event.assigned or ())
            use.last = set(event.assigned or ()) or use.last
    for commit in facts.committed:
        if use := uses.get(commit.connection):
            use.marks |= {("member", commit.member)} if commit.member else set()
            use.lanes.add(commit.lane)
    for row in facts.shared:
        if use := uses.get(row.connection):
            use.marks.add(("member", row.member))
            use.lanes |= set(row.wanted)
            use.last = set(row.wanted) or use.last
    batches = facts.produced
    for batch in batches.rows(distinct(batches.connection, batches.producer_id, batches.transactional_id)[0]):
        if use := uses.get(batch.connection):
            use.marks |= {mark for mark in (("producer", batch.producer_id), ("transactions", batch.transactional_id)) if mark[1] not in (-1, None)}
    for transaction in facts.transactions:
        if use := uses.get(transaction.connection):
            use.marks |= {mark for mark in (("producer", transaction.producer_id), ("transactions", transaction.transactional_id)) if mark[1] not in (-1, None)}
    fetches = facts.fetches
    for connection, at in split(fetches.connection):
        if use := uses.get(connection):
            wanted = fetches.wanted[at]
            use.lanes |= {lane for number in np.unique(wanted).tolist() for lane in fetches.wants(number)}
            use.last = set(next((lanes for number in wanted[::-1].tolist() if (lanes := fetches.wants(number))), ())) or use.last
    return uses


def _parts(uses: list[_Use]) -> list[list[_Use]]:
    """The connections of each client."""
    kinds = sorted({kind for use in uses for kind in use.times})
    # the kind of request that shows most clients comes first
    kinds.sort(key=lambda kind: -len(_divide([], (use for use in uses if kind in use.times), kind)))
    found: list[list[_Use]] = []
    placed: set[int] = set()
    for kind in kinds:
        new = [use for use in uses if kind in use.times and use.link.number not in placed]
        placed |= {use.link.number for use in new}
        found = _divide(found, new, kind)
    return _divide(found, (use for use in uses if use.link.number not in placed), "")


def _divide(found: list[list[_Use]], uses: Iterable[_Use], kind: str) -> list[list[_Use]]:
    """Adds connections to the clients that were found, those with most in common first, and makes a client of what fits nowhere."""
    found = [list(part) for part in found]
    waiting = sorted(uses, key=lambda use: use.begins(kind))
    pairs = [(_nearness(use, part), at, use, part) for at, use in enumerate(waiting) for part in found] if len(waiting) * len(found) <= MOST_PAIRS else []
    placed: set[int] = set()
    for _, at, use, part in sorted(pairs, key=lambda pair: pair[0], reverse=True):
        if at not in placed and not any(_differ(use, other) for other in part):
            placed.add(at)
            part.append(use)
    for at, use in enumerate(waiting):
        if at in placed:
            continue
        fits = [part for part in found if not any(_differ(use, other) for other in part)]
        if fits:
            max(fits, key=lambda part: _nearness(use, part)).append(use)
        else:
            found.append([use])
    return found


def _differ(one: _Use, other: _Use) -> bool:
    """Whether two connections cannot be of one client."""
    if one.host and other.host and one.host != other.host:
        return True
    if one.link.node != other.link.node:
        return False
    for kind, mine in one.times.items():
        theirs = other.times.get(kind)
        if not theirs:
            continue
        least = 1 if kind == "group" and one.members and other.members and not one.members & other.members else LEAST
        if _among(mine, theirs) >= least and _among(theirs, mine) >= least:
            return True
    return False


def _among(these: list[int], others: list[int]) -> int:
    """How many of these times lie between the first and the last of the others."""
    return bisect_right(these, others[-1]) - bisect_left(these, others[0])


def _nearness(use: _Use, part: list[_Use]) -> tuple[int, float, float, int]:
    marks = len(use.marks & {mark for other in part for mark in other.marks})
    last = max(_common(use.last, other.last) for other in part)
    lanes = max(_common(use.lanes, other.lanes) for other in part)
    return marks, last, lanes, -min(abs(other.link.opened_us - use.link.opened_us) for other in part)


def _common(these: set[Lane], others: set[Lane]) -> float:
    """How much two sets of partitions have in common: 1 if they are equal, and not empty."""
    return len(these & others) / (len(these | others) or 1)


def _renumber(facts: Facts, parts: dict[int, list[list[_Use]]]) -> None:
    clients: list[tuple[str, str, str]] = []
    first: dict[int, int] = {}
    number_of: dict[tuple[int, int], int] = {}
    for number, who in enumerate(facts.clients):
        first[number] = len(clients)
        found = sorted(parts.get(number, [[]]), key=lambda part: min((use.link.first_us for use in part), default=0))
        for part in found:
            if len(found) > 1:
                facts.addresses[len(clients)] = min(part, key=lambda use: use.link.first_us).link.peer
            number_of |= {(number, use.link.number): len(clients) for use in part}
            clients.append(who)
    facts.clients = clients
    lines = facts.lines
    at, _, kind = distinct(lines.client, lines.connection)
    pairs = zip(lines.client[at].tolist(), lines.connection[at].tolist(), strict=True)
    facts.numbers_changed(np.array([number_of.get(pair, first[pair[0]]) for pair in pairs], np.int64)[kind])

    def renumbered(row: Any) -> Any:
        connection = getattr(row, "connection", None)
        connection = int(lines.connection[lines.at(row.number)]) if connection is None else connection
        new = number_of.get((row.client, connection), first[row.client])
        return row if new == row.client else row._replace(client=new)

    for name in _ROWS:
        rows: list[Any] = getattr(facts, name)
        rows[:] = map(renumbered, rows)
    facts.throttled[:] = [(number, int(lines.client[lines.at(number)]), ms) for number, _, ms in facts.throttled]
    for link in facts.connections.values():
        new = {number_of.get((number, link.number), first[number]): count for number, count in link.clients.items()}
        link.clients.clear()
        link.clients.update(new)
