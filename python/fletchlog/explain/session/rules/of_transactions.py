"""Transactions: left open, expired, fenced, one for each record, aborted again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS
from fletchlog.explain.session.producers import transactions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.producers import Transaction
    from fletchlog.explain.session.rows import Lane

FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"}
STUCK_US = 5_000_000
# long polls in a row that brought nothing
SEVERAL = 5
OF_TRANSACTIONS = {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn"}
MANY = 20


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about transactions."""
    transactions = transactions_of(scene.facts)
    yield from _open(scene, transactions)
    fenced = [r for r in scene.facts.refused if r.error in FENCED]
    refused = fenced + [r for r in scene.facts.refused if r.error in {"INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING"}]
    if refused:
        yield from _fenced(scene, transactions, {r.number for r in refused})
    by: dict[str, list[Transaction]] = {}
    for transaction in transactions:
        by.setdefault(transaction.transactional_id, []).append(transaction)
    for name, items in by.items():
        yield from _each_record(scene, name, items)
        yield from _aborts(scene, name, items)


@dataclass(slots=True)
class _Still:
    """A last stable offset that stays below the end."""

    since_us: int
    stable: int
    high: int
    until_us: int
    fetches: list[int]


def _open(scene: Scene, transactions: list[Transaction]) -> Iterator[Finding]:
    """Partitions whose last stable offset does not move, seen by fetches for some time, or by several while its producer is silent."""
    for lane, still in _standing(scene).items():
        # a transaction that began here or before and did not end
        holders = [t for t in transactions if lane in t.lanes and (t.ended_us is None or t.ended_us > still.since_us)]
        holder = min(holders, key=lambda t: t.began_us, default=None)
        silent = holder is not None and holder.ended_us is None and len(still.fetches) >= SEVERAL and _last_of(scene, holder.client) < still.fetches[1]
        if still.until_us - still.since_us < STUCK_US and not silent:
            continue
        if holder:
            who = (
                f"the transaction of {scene.name(holder.client)} (transactional.id {holder.transactional_id}, producer id {holder.producer_id}), open for "
                f"{seconds((holder.ended_us or still.until_us) - holder.began_us)}"
            )
        else:
            who = "a transaction that began before this session, or outside of it"
        yield found(
            "open-transaction", "error", 90,
            f"Readers of {lane} with read_committed stand still at offset {still.stable}, {still.high - still.stable} records behind: {who}, holds them back.",
            "End each transaction soon: commit or abort also after an error, a shorter transaction.timeout.ms; `fletchlog transactions` lists open ones.",
            [*([holder.began_by] if holder else []), *still.fetches], str(lane),
        )  # fmt: skip
        return


def _last_of(scene: Scene, client: int) -> int:
    """The last request of a client's that belongs to a transaction."""
    return max((line.number for line in scene.facts.lines if line.client == client and line.api in OF_TRANSACTIONS), default=0)


def _standing(scene: Scene) -> dict[Lane, _Still]:
    """By partition: the longest time for which readers of committed records saw the same last stable offset below the end."""
    now: dict[Lane, _Still] = {}
    longest: dict[Lane, _Still] = {}
    for fetch in scene.facts.fetches:
        if fetch.isolation != 1:
            continue
        for got in fetch.got:
            if got.error:
                continue
            if got.last_stable >= got.high_watermark:
                now.pop(got.lane, None)
                continue
            still = now.get(got.lane)
            if still is None or still.stable != got.last_stable:
                still = now[got.lane] = _Still(fetch.arrived_us, got.last_stable, got.high_watermark, fetch.arrived_us, [])
            still.high, still.until_us = got.high_watermark, fetch.answered_us or fetch.arrived_us
            still.fetches.append(fetch.number)
            if got.lane not in longest or len(still.fetches) >= len(longest[got.lane].fetches):
                longest[got.lane] = still
    return longest


def _fenced(scene: Scene, transactions: list[Transaction], refused: set[int]) -> Iterator[Finding]:
    events = scene.facts.transactions
    producers = {event.number: event.transactional_id for event in events} | {b.number: b.transactional_id for b in scene.facts.produced}
    clients = {r.number: r.client for r in scene.facts.refused}
    for name in dict.fromkeys(producers.get(number) for number in sorted(refused)):
        if not name:
            continue
        mine = [number for number in sorted(refused) if producers.get(number) == name]
        inits = [event for event in events if event.kind == "init" and event.transactional_id == name and not event.error]
        victim_at = min(mine)
        old = [event for event in inits if event.client == clients[victim_at] and event.number < victim_at]
        connections = {line.number: line.connection for line in scene.facts.lines}
        taken = [event for event in inits if old and event.number > old[0].number and connections[event.number] != connections[old[0].number]]
        expired = [t for t in transactions if t.transactional_id == name and t.began_by < victim_at and t.how in {"open", "refused"}]
        if expired and not taken:
            transaction = expired[0]
            late = _ran_out(transaction, mine, scene)
            why = "was open for longer than" if late else "was ended by the broker, as after"
            yield found(
                "transaction-expired", "error", 93,
                f"A transaction of {scene.name(transaction.client)} (transactional.id {name}) {why} transaction.timeout.ms "
                f"({transaction.timeout_ms / MS:g} s): the broker aborted "
                f"it, and what followed was refused.",
                "Make transactions shorter: no slow work between begin and commit; or raise transaction.timeout.ms.", [transaction.began_by, *mine], name,
            )  # fmt: skip
        elif taken:
            other = taken[0]
            yield found(
                "producer-fenced", "error", 97,
                f"Two producers use the transactional.id {name}: {scene.name(other.client)} initialized it (request {other.number}) while "
                f"{scene.name(clients[victim_at])} worked "
                f"with it, which was fenced.",
                "Give each running producer a transactional.id of its own; the same one only after a restart.", [*(e.number for e in inits), *mine], name,
            )  # fmt: skip


def _ran_out(transaction: Transaction, refused: list[int], scene: Scene) -> bool:
    at = {line.number: line.arrived_us for line in scene.facts.lines if line.number in set(refused)}
    return any(time - transaction.began_us >= transaction.timeout_ms * MS for time in at.values())


def _each_record(scene: Scene, name: str, items: list[Transaction]) -> Iterator[Finding]:
    whole = [t for t in items if t.ended_us is not None and t.records]
    if len(whole) < MANY or sum(t.records for t in whole) > 1.5 * len(whole):
        return
    length = (whole[-1].ended_us or 0) - whole[0].began_us
    if length < len(whole) * 500_000:
        yield found(
            "transaction-per-record", "warning", 61,
            f"{scene.name(whole[0].client)} makes a transaction for each record ({name}): {len(whole)} in {seconds(length)}, each with requests to "
            "the coordinator and a "
            f"marker in every partition.",
            "Put the records of a poll, or of some 100 ms, into one transaction.", [t.began_by for t in whole], name,
        )  # fmt: skip


def _aborts(scene: Scene, name: str, items: list[Transaction]) -> Iterator[Finding]:
    aborted = [t for t in items if t.how == "abort"]
    if len(aborted) >= 5 and len(aborted) > 0.5 * len(items):  # noqa: PLR2004 - not by chance
        yield found(
            "transactions-aborted", "error", 74,
            f"{scene.name(aborted[0].client)} aborts its transactions ({name}): {len(aborted)} of {len(items)}. Its work fails and begins again; the log keeps "
            f"{sum(t.records for t in aborted)} aborted records ({several(str(lane) for t in aborted for lane in t.lanes)}).",
            "Look into the program's log for the error before each abort; a record that always fails belongs into a dead letter "
            "topic.", [t.ended_by for t in aborted], name,
        )  # fmt: skip
