"""Transactions: left open, expired, fenced, one for each record, aborted again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import among, np, split
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
    lines = scene.facts.lines
    return int(lines.number[lines.are(*OF_TRANSACTIONS) & (lines.client == client)].max(initial=0))


def _standing(scene: Scene) -> dict[Lane, _Still]:
    """By partition: the longest time for which readers of committed records saw the same last stable offset below the end."""
    fetches, got = scene.facts.fetches, scene.facts.fetches.got
    rows = np.flatnonzero((got.error == 0) & (fetches.isolation[got.fetch] == 1))
    is_behind = got.last_stable[rows] < got.high_watermark[rows]
    longest: list[tuple[int, Lane, _Still]] = []
    for lane, at in split(got.lane[rows]):
        behind = is_behind[at]
        if not behind.any():
            continue
        stable = got.last_stable[rows[at]]
        # a run ends where the last stable offset moves, or is at the end
        is_new = behind & np.append(True, (stable[1:] != stable[:-1]) | ~behind[:-1])
        run = np.cumsum(is_new)
        counts = np.bincount(run, behind)
        last = len(counts) - 1 - int(counts[::-1].argmax())
        these = rows[at[(run == last) & behind]]
        by, end = got.fetch[these], these[-1]
        still = _Still(
            int(fetches.arrived_us[by[0]]), int(got.last_stable[end]), int(got.high_watermark[end]), int(fetches.at_us[by[-1]]), fetches.number[by].tolist(),
        )  # fmt: skip
        longest.append((int(at[behind][0]), fetches.names.lanes[lane], still))
    return {lane: still for _, lane, still in sorted(longest)}


def _fenced(scene: Scene, transactions: list[Transaction], refused: set[int]) -> Iterator[Finding]:
    events = scene.facts.transactions
    batches = scene.facts.produced
    theirs = batches.rows(among(batches.number, np.array(list(refused), np.int64)))
    producers = {event.number: event.transactional_id for event in events} | {b.number: b.transactional_id for b in theirs}
    clients = {r.number: r.client for r in scene.facts.refused}
    for name in dict.fromkeys(producers.get(number) for number in sorted(refused)):
        if not name:
            continue
        mine = [number for number in sorted(refused) if producers.get(number) == name]
        inits = [event for event in events if event.kind == "init" and event.transactional_id == name and not event.error]
        victim_at = min(mine)
        old = [event for event in inits if event.client == clients[victim_at] and event.number < victim_at]
        taken = [event for event in inits if old and event.number > old[0].number and event.connection != old[0].connection]
        expired = [t for t in transactions if t.transactional_id == name and t.began_by < victim_at and t.how in {"open", "refused"}]
        if expired and not taken:
            transaction = expired[0]
            late = _ran_out(transaction, mine, scene)
            why = "was open for longer than" if late else "was ended by the broker, as after"
            yield found(
                "transaction-expired", "error", 93,
                f"A transaction of {scene.name(transaction.client)} (transactional.id {name}) {why} transaction.timeout.ms "
                f"({transaction.timeout_ms / MS:g} s): the broker aborted it, and what followed was refused.",
                "Make transactions shorter: no slow work between begin and commit; or raise transaction.timeout.ms.", [transaction.began_by, *mine], name,
            )  # fmt: skip
        elif taken:
            other = taken[0]
            yield found(
                "producer-fenced", "error", 97,
                f"Two producers use the transactional.id {name}: {scene.name(other.client)} initialized it (request {other.number}) while "
                f"{scene.name(clients[victim_at])} worked with it, which was fenced.",
                "Give each running producer a transactional.id of its own; the same one only after a restart.", [*(e.number for e in inits), *mine], name,
            )  # fmt: skip


def _ran_out(transaction: Transaction, refused: list[int], scene: Scene) -> bool:
    lines = scene.facts.lines
    return any(int(lines.arrived_us[lines.at(number)]) - transaction.began_us >= transaction.timeout_ms * MS for number in refused)


def _each_record(scene: Scene, name: str, items: list[Transaction]) -> Iterator[Finding]:
    whole = [t for t in items if t.ended_us is not None and t.records]
    if len(whole) < MANY or sum(t.records for t in whole) > 1.5 * len(whole):
        return
    length = (whole[-1].ended_us or 0) - whole[0].began_us
    # Kafka Streams commits every 100 ms, which with few records is one for each
    if length < len(whole) * 80_000:
        yield found(
            "transaction-per-record", "warning", 61,
            f"{scene.name(whole[0].client)} makes a transaction for each record ({name}): {len(whole)} in {seconds(length)}, each with requests to the "
            "coordinator and a marker in every partition.",
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
