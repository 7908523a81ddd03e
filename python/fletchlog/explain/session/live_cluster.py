"""What can be seen of a live cluster without a session: its groups, their lag, its open transactions; and what a recording would add."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import Finding, found, seconds, several
from fletchlog.explain.session.live_share_group import share_group
from fletchlog.explain.session.text import findings_text
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import fletchlog as fl
    from fletchlog.admin import GroupDescription, PartitionLag
    from fletchlog.types import TopicPartition

MOST = 20
ADDS = (
    "A recording adds why: who triggered each rebalance, which member is slow, what was repeated, how fetches and batches are set, and when the lag is gone.",
    "  fletchlog proxy {source} --record session.fltrace    (clients connect to the proxy)",
    "  fletchlog explain session.fltrace",
)


def live(cluster: fl.Cluster | fl.Broker, source: str = "kafka://HOST:PORT") -> tuple[str, list[Finding]]:
    """Groups, lag and open transactions of a cluster, in words, and what is wrong with them.

    Nothing is written and no group is joined.

    Args:
        cluster: The cluster.
        source: How the reader knows it.

    Raises:
        fletchlog.errors.KafkaError: The cluster does not answer.
    """
    lines: list[str] = []
    findings: list[Finding] = []
    open_since = _open(cluster, findings)
    for listed in sorted(cluster.groups()):
        if listed.group_type == "streams":
            continue
        if listed.group_type == "share":
            shown, wrong = share_group(cluster, listed.group_id)
            lines += shown
            findings += wrong
            continue
        group, lag = cluster.describe_group(listed.group_id), cluster.lag(listed.group_id)
        findings += _of_group(group, lag, open_since)
        behind = sum(entry.lag or 0 for entry in lag.values())
        lines.append(f"  {group.group_id}: {group.state}, {counted(len(group.members), 'member')}, {counted(behind, 'record')} behind")
        late = sorted(((tp, entry) for tp, entry in lag.items() if entry.lag), key=lambda item: (-(item[1].lag or 0), item[0]))
        lines += [f"    {tp.topic}-{tp.partition}: {entry.lag:,} behind (committed {entry.committed}, end {entry.end})" for tp, entry in late[:MOST]]
    findings.sort(key=lambda finding: (finding.level, -finding.weight, finding.about))
    text = [*findings_text(findings, shown_by="cluster shows"), "", "Groups", *(lines or ["  none"]), "", *(line.format(source=source) for line in ADDS)]
    return "\n".join(text), findings


def _open(cluster: fl.Cluster | fl.Broker, findings: list[Finding]) -> dict[TopicPartition, str]:
    """Open transactions by partition; those that are older than half of their time-out are findings."""
    found_open: dict[TopicPartition, str] = {}
    now = time.time() * 1000
    for transaction in cluster.transactions():
        if transaction.state != "Ongoing":
            continue
        age = now - transaction.start_ms
        for partition in transaction.partitions:
            found_open[partition] = transaction.transactional_id
        if age > max(0.5 * transaction.timeout_ms, 5_000):
            where = several(f"{tp.topic}-{tp.partition}" for tp in transaction.partitions)
            findings.append(
                found(
                    "open-transaction", "error", 90,
                    f"The transaction of {transaction.transactional_id} has been open for {seconds(age * 1000)} (transaction.timeout.ms "
                    f"{transaction.timeout_ms:,}): readers of {where} with read_committed stand still there.",
                    "Find out what its producer does; `fletchlog transactions` lists open ones.", [], transaction.transactional_id,
                )
            )  # fmt: skip
    return found_open


def _of_group(group: GroupDescription, lag: dict[TopicPartition, PartitionLag], open_since: dict[TopicPartition, str]) -> Iterator[Finding]:
    idle = [member for member in group.members if not member.partitions]
    if group.state == "Stable" and idle and len(idle) < len(group.members):
        yield found(
            "idle-members", "warning", 60,
            f"Group {group.group_id} has {len(group.members)} members, and {several(member.client_id or member.member_id for member in idle)} "
            "has no partition.",
            "Run at most as many members as there are partitions; where there are more partitions, use an assignor that divides all topics "
            "together.", [], group.group_id,
        )  # fmt: skip
    behind = {tp: entry for tp, entry in lag.items() if entry.lag}
    owned = {partition for member in group.members for partition in member.partitions}
    nobody = sorted(tp for tp in behind if tp not in owned)
    if nobody and group.state in {"Stable", "Empty"}:
        yield found(
            "partition-unread", "error", 77,
            f"Nobody in group {group.group_id} reads {several(f'{tp.topic}-{tp.partition}' for tp in nobody)}, which is "
            f"{sum(behind[tp].lag or 0 for tp in nobody):,} records behind{'' if group.members else ': the group has no member'}.",
            "Start its consumers, or delete its offsets if the group has left the topic.", [], group.group_id,
        )  # fmt: skip
    held = sorted(tp for tp in behind if tp in open_since)
    if held:
        yield found(
            "lag-behind-transaction", "warning", 66,
            f"Group {group.group_id} is behind in {several(f'{tp.topic}-{tp.partition}' for tp in held)}, where "
            f"{several(open_since[tp] for tp in held)} has an open transaction.",
            "With read_committed the group can read on when the transaction ends.", [], group.group_id,
        )  # fmt: skip
    if group.state in {"PreparingRebalance", "CompletingRebalance"}:
        yield found(
            "rebalancing", "warning", 55, f"Group {group.group_id} rebalances now ({group.state}): its members read nothing.",
            "Look again in a minute; if it lasts, record a session to see which member it waits for.", [], group.group_id,
        )  # fmt: skip
