"""A session in words."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import clock, seconds, several
from fletchlog.explain.session.groups import ENDS
from fletchlog.explain.session.share_text import share_groups_text
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.client import Client
    from fletchlog.explain.session.explained import Explained
    from fletchlog.explain.session.finding import Finding
    from fletchlog.explain.session.groups import Group
    from fletchlog.explain.session.polls import Poll

MOST = 20


def text_of(explained: Explained) -> str:
    """The session, findings first."""
    facts = explained.facts
    length = seconds(facts.last_us - facts.first_us)
    head = f"{counted(len(facts.lines), 'request')} of {counted(len(explained.clients), 'client')} in {length}"
    lines = [f"{explained.source}: {head}" if explained.source else head, *(f"  Incomplete: {why}." for why in explained.incomplete), ""]
    lines += findings_text(explained.findings)
    for title, part in (
        ("Clients", _clients(explained)),
        ("Groups", _groups(explained)),
        ("Share groups", share_groups_text(explained)),
        ("Producers", _producers(explained)),
        ("Lag", _lag(explained)),
        ("Order", _order(explained)),
        ("Polls", _polls(explained)),
    ):
        if found := list(part):
            lines += ["", title, *found]
    return "\n".join(lines)


def findings_text(findings: list[Finding], first: int = 1, shown_by: str = "requests show") -> list[str]:
    """Findings, each with what to change and its evidence, numbered from `first` on; without any, the line that says so."""
    if not findings:
        return [f"No findings: nothing is wrong, as far as the {shown_by}."]
    lines = ["Findings"]
    for number, finding in enumerate(findings, first):
        lines += [f"{number}. {finding.level.upper()} {finding.code}: {finding.text}", f"   Change: {finding.change}"]
        if finding.evidence:
            more = f" and {finding.count - len(finding.evidence)} more" if finding.count > len(finding.evidence) else ""
            lines.append(f"   Requests: {', '.join(map(str, finding.evidence))}{more}")
    return lines


def _clients(explained: Explained) -> Iterator[str]:
    for client in explained.clients[:MOST]:
        yield f"  {client.title}: {counted(sum(client.requests.values()), 'request')} on {counted(client.connections, 'connection')}{_does(client)}"
        if client.settings:
            yield "    " + ", ".join(f"{name}={value}" for name, value in client.settings.items())
    if len(explained.clients) > MOST:
        yield f"  and {len(explained.clients) - MOST} more"


def _does(client: Client) -> str:
    parts = []
    if client.records_read:
        parts.append(f"read {counted(client.records_read, 'record')} ({client.bytes_read:,} bytes)")
    if client.records_written:
        per = client.records_written / client.batches
        parts.append(
            f"sent {counted(client.records_written, 'record')} in {counted(client.batches, 'batch')} ({per:.1f} records, "
            f"{client.bytes_written // client.batches:,} bytes each)"
        )
    if client.groups:
        parts.append(f"in {several(client.groups)}")
    return "; " + ", ".join(parts) if parts else ""


def _groups(explained: Explained) -> Iterator[str]:
    for group in explained.groups.values():
        protocol = group.protocol or "unknown"
        yield f"  {group.id}: {counted(len(group.members), 'member')}, {counted(len(group.rebalances), 'rebalance')}, assignor {protocol}"
        for at, line in sorted(_moments(explained, group))[: 3 * MOST]:
            yield f"    {clock(at)} {line}"
        if group.repeated:
            count = sum(item.last - item.first + 1 for item in group.repeated)
            yield f"    {counted(count, 'record')} fetched twice: {several(f'{item.lane} {item.first}..{item.last}' for item in group.repeated)}"


def _moments(explained: Explained, group: Group) -> Iterator[tuple[int, str]]:
    for rebalance in group.rebalances:
        phases = f"joins took {seconds(rebalance.joined_us - rebalance.began_us)}, assignment {seconds(rebalance.ended_us - rebalance.joined_us)}"
        slow = f"; last {rebalance.slowest}" if rebalance.slowest and rebalance.slow_us else ""
        yield rebalance.began_us, f"generation {rebalance.generation}: {rebalance.text}; {phases}{slow}"
    for member in group.members.values():
        if member.assigned is not None:
            who = f"{member.id} ({explained.facts.name(member.client)})"
            yield member.assigned_us or member.joined_us, f"{who} has {several(map(str, member.assigned)) or 'no partition'}"
        if member.how and member.ended_us is not None:
            why = f" ({member.reason})" if member.reason else ""
            yield member.ended_us, f"{member.id} {ENDS[member.how]}{why}"


def _producers(explained: Explained) -> Iterator[str]:
    for number, repeats in explained.repeats.items():
        name = explained.clients[number].client_id
        yield f"  {name} sent {counted(repeats.sent, 'batch')} again; the broker dropped {repeats.dropped} that it had"
    for transaction in explained.transactions[:MOST]:
        end = transaction.ended_us or explained.facts.last_us
        how = {"commit": "committed", "abort": "aborted", "open": "still open", "refused": "its end was refused"}[transaction.how]
        yield (
            f"  {clock(transaction.began_us)} {transaction.transactional_id}: {counted(transaction.records, 'record')} in "
            f"{several(map(str, sorted(transaction.lanes))) or 'no partition'}, {how} after {seconds(end - transaction.began_us)}"
        )
    if len(explained.transactions) > MOST:
        yield f"  and {len(explained.transactions) - MOST} more transactions"


def _lag(explained: Explained) -> Iterator[str]:
    late = [behind for behind in explained.lag if behind.lag]
    for behind in late[:MOST]:
        clears = "it does not get smaller" if behind.clears_s is None else f"gone in {seconds(behind.clears_s * 1_000_000)} at the rates of the session"
        held = f"; {behind.held_by}" if behind.held_by else ""
        yield f"  {behind.group or 'no group'}, {behind.lane}: {counted(behind.lag, 'record')} behind, {clears}{held}"
    if len(late) > MOST:
        yield f"  and {len(late) - MOST} more partitions"


def _order(explained: Explained) -> Iterator[str]:
    for client in explained.clients:
        if not len(explained.facts.fetches.of(client.number)):
            continue
        order = explained.order(client.number)
        short: list[str] = []
        for lane, _ in groupby(order.arrivals, key=attrgetter("lane")):
            short.append(str(lane))
            if len(short) > MOST:
                break
        yield f"  {explained.facts.name(client.number)}: records arrived from {', '.join(short[:MOST])}{' ..' if len(short) > MOST else ''}"
        for entry in order.waiting:
            if entry.reason:
                yield f"    {entry.lane} waited {counted(entry.worst_wait, 'fetch')} ({seconds(entry.worst_wait_us)}) for its turn: {entry.reason}"


def _polls(explained: Explained) -> Iterator[str]:
    for polls in explained.shown_polls():
        name = explained.facts.name(polls.client)
        if polls.why_not:
            yield f"  {name}: not derived: {polls.why_not}"
            continue
        between = polls.max_poll_records_between
        assumed = {
            "given": "as given",
            "default": "the default" + ("" if between is None or between[0] == between[1] else f"; {between[0]} to {between[1]} agree, too"),
            "inferred": "inferred" + ("" if between is None else f": {between[0]} to {between[1]} agree"),
        }[polls.max_poll_records_from]
        yield f"  {name}: {counted(len(polls.polls), 'poll')} with records, by the rules of {polls.release}"
        yield f"    max.poll.records={polls.max_poll_records}, {assumed}"
        yield from (f"    {_poll(number, poll)}" for number, poll in enumerate(polls.polls[:MOST], 1))
        if len(polls.polls) > MOST:
            yield f"    and {len(polls.polls) - MOST} more polls"
        for call in polls.calls[:MOST]:
            place = f" to {call.offset}" if call.offset >= 0 else ""
            yield f"    {call.method} of {call.lane}{place}: inferred from request {call.fetch}"
        if polls.parted:
            yield f"    From request {polls.parted[0]} on the polls are not known: {polls.parted[1]}"
        if polls.buffered:
            yield f"    Had arrived, and no fetch shows that a poll returned it: {several(map(str, polls.buffered))}"
        yield from (f"    {starved.lane} waited {counted(starved.polls, 'poll')}: {starved.reason}" for starved in polls.starved[:MOST])


def _poll(number: int, poll: Poll) -> str:
    runs = (f"{run.lane} {'' if run.exact else 'about '}{run.first}..{run.last} ({run.records})" for run in poll.runs)
    later = f"; left for later: {several(map(str, poll.buffered))}" if poll.buffered else ""
    return f"{number}. {', '.join(runs)}{later}{'' if poll.decided else ' (the fetches allow another way)'}"
