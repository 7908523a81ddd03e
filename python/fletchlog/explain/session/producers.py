"""Producers: transactions with their length, and what was sent again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fletchlog.explain.session.columns import mixed, np, repeated

if TYPE_CHECKING:
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.rows import Lane


@dataclass(slots=True)
class Transaction:
    """A transaction, from its first partition or record until its end. Times are us since 1970."""

    transactional_id: str
    client: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    began_us: int
    began_by: int
    lanes: set[Lane] = field(default_factory=set)
    records: int = 0
    ended_us: int | None = None
    ended_by: int = 0
    how: str = "open"
    """`open`, `commit`, `abort`, or `refused`: its end had an error."""


@dataclass(slots=True)
class Repeats:
    """Batches of idempotent producers that were sent again; `dropped` of them had been written before."""

    sent: int = 0
    dropped: int = 0
    evidence: list[int] = field(default_factory=list)


def transactions_of(facts: Facts) -> list[Transaction]:
    """The transactions of a session, in the order in which they began."""
    steps: list[tuple[int, str, object]] = [(event.number, "event", event) for event in facts.transactions]
    steps += [(batch.number, "batch", batch) for batch in facts.produced.rows(np.flatnonzero(facts.produced.transactional))]
    timeouts: dict[str, int] = {}
    running: dict[str, Transaction] = {}
    found: list[Transaction] = []

    def current(name: str, client: int, producer: tuple[int, int], at_us: int, number: int) -> Transaction:
        if name not in running:
            running[name] = Transaction(name, client, *producer, timeouts.get(name, -1), at_us, number)
            found.append(running[name])
        return running[name]

    for number, kind, step in sorted(steps, key=lambda item: item[:2]):
        if kind == "batch":
            batch: Any = step
            name = batch.transactional_id or f"producer id {batch.producer_id}"
            transaction = current(name, batch.client, (batch.producer_id, batch.producer_epoch), batch.arrived_us, number)
            transaction.lanes.add(batch.lane)
            transaction.records += batch.records if batch.error is None else 0
            continue
        event: Any = step
        name = event.transactional_id
        if not name:
            continue
        if event.kind == "init":
            # the coordinator aborts what an earlier producer left open
            if event.error is None and (left := running.pop(name, None)):
                left.ended_us, left.ended_by, left.how = event.at_us, number, "abort"
            timeouts[name] = event.timeout_ms
        elif event.kind in {"add", "offsets"}:
            if event.error is None:
                current(name, event.client, (event.producer_id, event.producer_epoch), event.at_us, number).lanes.update(event.lanes)
        elif transaction_ended := running.get(name):
            if event.error in {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"}:
                continue
            transaction_ended.ended_us, transaction_ended.ended_by = event.at_us, number
            transaction_ended.how = "refused" if event.error else event.kind
            running.pop(name)
    return found


def repeats_of(facts: Facts) -> dict[int, Repeats]:
    """By client: batches with a producer id that were sent more than once."""
    before: dict[tuple[object, ...], int | None] = {}
    found: dict[int, Repeats] = {}
    batches = facts.produced
    idempotent = np.flatnonzero(batches.producer_id >= 0)
    columns = batches.producer_id, batches.producer_epoch, batches.lane, batches.sequence
    for batch in batches.rows(idempotent[repeated(mixed(*(column[idempotent] for column in columns)), 2)]):
        key = (batch.producer_id, batch.producer_epoch, batch.lane, batch.sequence)
        if key in before:
            repeats = found.setdefault(batch.client, Repeats())
            repeats.sent += 1
            repeats.evidence.append(batch.number)
            if batch.error == "DUPLICATE_SEQUENCE_NUMBER" or (before[key] is None and batch.base_offset is not None):
                repeats.dropped += 1
        before[key] = batch.base_offset
    return found
