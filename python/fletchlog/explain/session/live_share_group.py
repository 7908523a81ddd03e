"""What can be seen of a share group of a live cluster; of a broker in this process also every record that is not done, and who has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.explain.session.finding import Finding, found, seconds, several
from fletchlog.explain.session.share_values import nth
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    import fletchlog as fl

MOST = 20
OFTEN = 3


def share_group(cluster: fl.Cluster | fl.Broker, group_id: str) -> tuple[list[str], list[Finding]]:
    """A share group in words, and what is wrong with it.

    Args:
        cluster: The cluster, or a broker in this process, which knows what is in flight.
        group_id: The group.

    Raises:
        fletchlog.errors.KafkaError: The cluster does not answer.
    """
    group, starts = cluster.describe_group(group_id), cluster.share_group_offsets(group_id)
    behind = sum(max(at.lag or 0, 0) for at in starts.values())
    lines = [f"  {group_id}: share group, {group.state}, {counted(len(group.members), 'member')}, {counted(behind, 'record')} not done"]
    late = sorted(((tp, at) for tp, at in starts.items() if (at.lag or 0) > 0), key=lambda item: (-(item[1].lag or 0), item[0]))
    lines += [f"    {tp.topic}-{tp.partition}: {at.lag:,} not done (from {at.start_offset})" for tp, at in late[:MOST]]
    findings = []
    if late and not group.members:
        findings.append(
            found(
                "share-group-unread", "error", 77,
                f"Share group {group_id} has no member, and {behind:,} records of {several(f'{tp.topic}-{tp.partition}' for tp, _ in late)} are not done.",
                "Start its consumers, or delete the group if it is not used.", [], group_id,
            )
        )  # fmt: skip
    rows = in_flight(cluster, group_id, sorted({tp.topic for tp in starts} | {tp.topic for member in group.members for tp in member.partitions}))
    names = {member.member_id: member.client_id or member.member_id for member in group.members}
    for row in rows[:MOST]:
        has = f"acquired by {names.get(row['member_id'], row['member_id'])}" if row["member_id"] else row["state"].lower()
        lock = f", its lock ends in {seconds(row['lock_left_ms'] * 1000)}" if row["lock_left_ms"] is not None else ""
        lines.append(f"    {_range(row)}: {has}, {nth(row['delivery_count'])} delivery{lock}")
    if len(rows) > MOST:
        lines.append(f"    and {len(rows) - MOST} more ranges")
    often = [row for row in rows if row["delivery_count"] >= OFTEN]
    if often:
        most = max(row["delivery_count"] for row in often)
        findings.append(
            found(
                "share-record-again", "error", 91,
                f"Share group {group_id} delivers {several(map(_range, often))} again and again, {most} times so far.",
                "Release only what another attempt can mend. Reject a record that cannot be processed, and give the group a dead-letter topic "
                "(errors.deadletterqueue.topic.name), so that it is kept.", [], group_id,
            )
        )  # fmt: skip
    return lines, findings


def in_flight(cluster: fl.Cluster | fl.Broker, group_id: str, topics: list[str]) -> list[dict[str, Any]]:
    """The rows of `Broker.share_state` of these topics, with the topic; none of a cluster, whose leaders do not tell."""
    from fletchlog import Broker

    if not isinstance(cluster, Broker):
        return []
    return [{"topic": topic, **row} for topic in topics for row in cluster.share_state(group_id, topic).to_pyarrow().to_pylist()]


def _range(row: dict[str, Any]) -> str:
    last = f"..{row['last_offset']}" if row["last_offset"] > row["first_offset"] else ""
    return f"{row['topic']}-{row['partition']} at {row['first_offset']}{last}"
