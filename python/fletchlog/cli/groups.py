"""List, describe, reset, alter and delete the consumer and share groups of a directory."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from fletchlog.cli import places, times
from fletchlog.cli.arguments import option
from fletchlog.cli.common import CLUSTER_MS, CommandError, changed_properties, configured, confirm, opened
from fletchlog.cli.common import group as listed_group
from fletchlog.cli.common import topic as topic_of
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, DELETE_CONFIG, GROUP, JSON, PARTITIONS, PLACE, YES, groups_of, names_of_topics
from fletchlog.cli.tables import done, show
from fletchlog.cli.text import counted, note, say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import fletchlog as fl
    from fletchlog._place import Place


# Types of groups whose members are shown; "" is one that an older broker does not report.
_DESCRIBED = ("classic", "consumer", "share", "")


def list_groups(directory: Place = PLACE, as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG) -> None:
    """List the groups: their state, coordinator, members, and how many records they have not read.

    `without_commit` is how many partitions of its topics have no committed offset: `lag` does not count their records. What cannot be read of a group is
    left empty, and a note says why. Groups in which `fletchlog copy` keeps its ledger are left out.

    fletchlog groups list data/
    """
    client = configured(command_config)
    with opened(directory, read_only=True, client=client) as broker, contextlib.ExitStack() as stack:
        topics = _Topics(broker, client, stack)
        rows = [_row(broker, group, topics) for group in groups_of(broker)]
    show(rows, as_json=as_json, empty=f"{directory} holds no group")
    _note_without_commit(rows)


def describe(directory: Place = PLACE, group: str = GROUP, as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG) -> None:
    """Show a group's state, properties and members, where it continues in each partition, its lag, and which member has the partition.

    Of a share group `committed` is where the records begin that are not done, `lag` is how many are not done, and `done_ahead` how many behind that begin
    are done, kept in flight by an earlier one. Who has which record is known to the leaders alone: see Broker.share_state.

      fletchlog groups describe data/ g
    """
    with opened(directory, read_only=True, client=configured(command_config)) as broker:
        listed = listed_group(broker, group)
        found = _described(broker, listed)
        lags = {(row["topic"], row["partition"]): row for row in _lags(broker, listed)}
        config = _config(broker, listed)
    members: dict[tuple[str, int], str] = {}
    for member in found.members:
        for topic, partition in member.partitions:
            # several members of a share group may have the same partition
            others = members.get((topic, partition))
            members[topic, partition] = member.member_id if others is None else f"{others}, {member.member_id}"
    none: dict[str, Any] = {"committed": None, "end": None, "lag": None} | ({"done_ahead": None} if listed.group_type == "share" else {})
    # a partition that a member has may have no committed offset yet
    rows = [
        lags.get((topic, partition), {"topic": topic, "partition": partition} | none) | {"member": members.get((topic, partition))}
        for topic, partition in sorted(lags.keys() | members.keys())
    ]
    if as_json:
        facts = {"group": group, "type": listed.group_type, "state": found.state, "coordinator": found.coordinator, "protocol": found.protocol}
        print(json.dumps(facts | {"config": config, "members": [_member(member) for member in found.members], "partitions": rows}, indent=2))
        return
    protocol = f", assigned by {found.protocol}" if found.protocol else ""
    shown_members = counted(len(found.members), "member") if listed.group_type in _DESCRIBED else f"its members, of type {listed.group_type}, are not shown"
    say(f"{group} is {found.state}, its coordinator is node {found.coordinator}; {shown_members}{protocol}")
    if config:
        say(", ".join(f"{name}={value}" for name, value in config.items()))
    if found.members:
        show([_member(member) for member in found.members], as_json=False, empty="")
    show(rows, as_json=False, empty=f"{group} has committed no offsets")


def _member(member: fl.admin.GroupMember) -> dict[str, Any]:
    return {"member": member.member_id, "client": member.client_id, "host": member.client_host, "partitions": len(member.partitions)}


def lag(directory: Place = PLACE, group: str = GROUP, as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG) -> None:
    """Show how many records of each topic a group has not read.

    `without_commit` is how many partitions of the topic have no committed offset: `lag` does not count their records.

    fletchlog groups lag data/ g
    """
    client = configured(command_config)
    with opened(directory, read_only=True, client=client) as broker, contextlib.ExitStack() as stack:
        topics: dict[str, list[dict[str, Any]]] = {}
        for row in _lags(broker, listed_group(broker, group)):
            topics.setdefault(row["topic"], []).append(row)
        known = _Topics(broker, client, stack)
        found = [{"topic": topic, "lag": _sum(rows), "without_commit": known.without_commit(rows)} for topic, rows in topics.items()]
    show(found, as_json=as_json, empty=f"{group} has committed no offsets")
    _note_without_commit(found)


def reset(
    directory: Place = PLACE,
    group: str = GROUP,
    topic: list[str] = option("--topic -t", "Topic whose offsets are set; may be repeated.", ..., complete=names_of_topics),
    partition: list[int] | None = PARTITIONS,
    to_earliest: bool = option("--to-earliest", "To the first record.", False),
    to_latest: bool = option("--to-latest", "Behind the last record.", False),
    to_offset: int | None = option("--to-offset", "To this offset."),
    to_time: str | None = option("--to-time", f"To the first record of this time or later: {times.HELP}.", metavar="TIME"),
    shift_by: int | None = option("--shift-by", "N records further, or back if N is negative.", metavar="N"),
    share: bool = option("--share", "GROUP is a share group; it is made if it does not exist.", False),
    execute: bool = option("--execute", "Do it; without it, only show what would be done.", False),
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Set where a group continues. The group must have no members. Without --execute nothing is changed, as in Kafka's tool.

    An offset that a partition does not have becomes its first or its end. A group that does not exist is made.

      fletchlog groups reset data/ g --topic orders --to-earliest

      fletchlog groups reset data/ g --topic orders --to-time 2h --execute

      fletchlog groups reset data/ g --topic orders -p 0 --shift-by -10 --execute

      fletchlog groups reset data/ queue --share --topic orders --to-earliest --execute
    """
    chosen = {"--to-earliest": to_earliest, "--to-latest": to_latest, "--to-offset": to_offset is not None,
              "--to-time": to_time is not None, "--shift-by": shift_by is not None}  # fmt: skip
    if sum(chosen.values()) != 1:
        raise CommandError(f"say where the group continues: one of {', '.join(chosen)}")
    import fletchlog as fl

    asked = configured(command_config)
    with opened(directory, read_only=not execute, client=asked) as broker, fl.Consumer(broker, asked) as consumer:
        found = places.partitions([topic_of(broker, name) for name in topic], partition)
        begin, ends = consumer.beginning_offsets(found), consumer.end_offsets(found)
        known = next((listed for listed in broker.groups() if listed.group_id == group), None)
        shares = share if known is None else known.group_type == "share"
        if share and not shares:
            raise CommandError(f"{group} is no share group: a group has one type; leave out --share, or choose another name")
        if shares and shift_by is not None:
            raise CommandError("--shift-by counts from a position, which a share group does not have: give --to-offset or --to-time")
        before: dict[fl.TopicPartition, int | None] = dict.fromkeys(found)
        if shares and known is not None:
            before |= {tp: at.start_offset for tp, at in broker.share_group_offsets(group).items() if tp in before}
        elif not shares:
            before |= {tp: at.offset for tp, at in broker.group_offsets(group).items() if tp in before}
        if to_time is not None:
            targets = places.at(consumer, found, times.when("--to-time", to_time), ends)
        elif to_offset is not None:
            targets = dict.fromkeys(found, to_offset)
        elif shift_by is not None:
            targets = {tp: (begin[tp] if (offset := before[tp]) is None else offset) + shift_by for tp in found}
        else:
            targets = begin if to_earliest else ends
        offsets: dict[tuple[str, int], int] = {tp: min(max(targets[tp], begin[tp]), ends[tp]) for tp in found}
        if execute and shares:
            broker.alter_share_group_offsets(group, offsets)
        elif execute:
            broker.alter_offsets(group, offsets)
    rows = [{"topic": tp.topic, "partition": tp.partition, "before": before[tp], "after": offsets[tp]} for tp in found]
    show(rows, as_json=as_json, empty="no partition")
    for tp in found:
        if targets[tp] != offsets[tp]:
            note(f"{tp} has no offset {targets[tp]}: it {'begins' if targets[tp] < begin[tp] else 'ends'} at {offsets[tp]}")
    if not execute:
        note("nothing was changed; --execute does it")
    elif known is None:
        note(f"{group} did not exist: it is a {'share' if shares else 'consumer'} group now")


def alter(
    directory: Place = PLACE,
    group: str = GROUP,
    config: list[str] | None = CONFIG,
    delete_config: list[str] | None = DELETE_CONFIG,
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Change properties of a group, which need not exist yet. Consumer groups of group.protocol=consumer, share and Streams groups follow them.

    fletchlog groups alter data/ queue -c share.auto.offset.reset=earliest

    fletchlog groups alter data/ queue -d share.record.lock.duration.ms
    """
    changes = changed_properties(config, delete_config, "nothing to alter: give --config or --delete-config")
    with opened(directory, client=configured(command_config)) as broker:
        broker.alter_group_config(group, changes)
    done(f"altered {group} in {directory}", as_json=as_json, group=group, changes=changes)


def delete(directory: Place = PLACE, group: str = GROUP, yes: bool = YES, as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG) -> None:
    """Delete a group and its offsets.

    fletchlog groups delete data/ g --yes
    """
    confirm(f"delete {group} with all its offsets from {directory}", yes=yes)
    with opened(directory, client=configured(command_config)) as broker:
        listed_group(broker, group)
        broker.delete_group(group)
    done(f"deleted {group}", as_json=as_json, group=group)


def _row(broker: fl.Broker | fl.Cluster, group: fl.admin.GroupListing, topics: _Topics) -> dict[str, Any]:
    """A line of the list. A group that cannot be read does not hide the others."""
    from fletchlog.errors import KafkaError

    row: dict[str, Any] = {"group": group.group_id, "type": group.group_type, "state": group.state, "coordinator": group.coordinator}
    row |= {"members": None, "partitions": None, "lag": None, "without_commit": None}
    try:
        if group.group_type in _DESCRIBED:
            row["members"] = len(_described(broker, group).members)
        lags = _lags(broker, group)
        row |= {"partitions": len(lags), "lag": _sum(lags), "without_commit": topics.without_commit(lags)}
    except KafkaError as error:
        note(f"{group.group_id}: {error}")
    return row


def _config(broker: fl.Broker | fl.Cluster, listed: fl.admin.GroupListing) -> dict[str, str | None]:
    """The properties that were set for a group; a classic group follows none. Where they cannot be read, a note says why."""
    from fletchlog.errors import KafkaError

    if listed.group_type not in {"consumer", "share", "streams"}:
        return {}
    try:
        return {entry.name: entry.value for entry in broker.describe_config(group=listed.group_id) if entry.source == "DYNAMIC_GROUP_CONFIG"}
    except KafkaError as error:
        note(f"the properties of {listed.group_id} cannot be read: {error}")
        return {}


def _sum(lags: list[dict[str, Any]]) -> int | None:
    """The records that are not read, in the partitions where it is known; of a share group without a start it is not."""
    known = [row["lag"] for row in lags if row["lag"] is not None]
    return sum(known) if known or not lags else None


class _Topics:
    """How many partitions topics have; each is asked for once, a cluster by one small request a topic."""

    def __init__(self, broker: fl.Broker | fl.Cluster, client: Mapping[str, Any], stack: contextlib.ExitStack) -> None:
        self._broker = broker
        self._client = client
        self._stack = stack
        self.partitions = functools.cache(self._partitions)

    def without_commit(self, rows: list[dict[str, Any]]) -> int:
        """Partitions without a committed offset, of topics that have some with one, or of a share group."""
        if any("done_ahead" in row for row in rows):
            return sum(row["committed"] is None for row in rows)
        with_commit = Counter(row["topic"] for row in rows)
        return sum(max(self.partitions(topic) - with_commit[topic], 0) for topic in with_commit.keys() & self._known)

    def _partitions(self, topic: str) -> int:
        import fletchlog as fl

        if isinstance(self._broker, fl.Broker):
            return len(self._broker.describe_topic(topic).partitions)
        number: int = self._producer.partitions_for(topic)
        return number

    @functools.cached_property
    def _known(self) -> set[str]:
        return set(self._broker.topics(include_internal=True))

    @functools.cached_property
    def _producer(self) -> fl.Producer:
        import fletchlog as fl

        return self._stack.enter_context(fl.Producer(self._broker, {"max.block.ms": CLUSTER_MS, **self._client}))


def _note_without_commit(rows: list[dict[str, Any]]) -> None:
    """Says that a lag is not all that is not read."""
    if count := sum(row["without_commit"] or 0 for row in rows):
        note(f"{counted(count, 'partition has', 'partitions have')} no committed offset and {'is' if count == 1 else 'are'} not counted in the lag")


def _described(broker: fl.Broker | fl.Cluster, group: fl.admin.GroupListing) -> fl.admin.GroupDescription:
    """A listed group with its members, which are not known of groups of other protocols, nor of one that has ended since it was listed."""
    import fletchlog as fl
    from fletchlog.errors import GroupIdNotFoundError

    if group.group_type in _DESCRIBED:
        try:
            return broker.describe_group(group.group_id)
        except GroupIdNotFoundError:
            pass
    return fl.admin.GroupDescription(group.group_id, group.state, group.protocol_type, "", [], group.coordinator)


def _lags(broker: fl.Broker | fl.Cluster, listed: fl.admin.GroupListing) -> list[dict[str, Any]]:
    """A row for each partition with a committed offset; of a share group, for each partition that it reads."""
    group = listed.group_id
    if listed.group_type == "share":
        return _share_lags(broker, group)
    return [
        {"topic": tp.topic, "partition": tp.partition, "committed": behind.committed, "end": behind.end, "lag": behind.lag}
        for tp, behind in broker.lag(group).items()
    ]


def _share_lags(broker: fl.Broker | fl.Cluster, group: str) -> list[dict[str, Any]]:
    """Of a share group: `committed` is where the records begin that are not done, `lag` their number, `done_ahead` those behind it that are done."""
    import fletchlog as fl

    starts = broker.share_group_offsets(group)
    with fl.Consumer(broker) as consumer:
        ends = consumer.end_offsets(list(starts))
    rows = []
    for tp, at in starts.items():
        ahead = None if at.start_offset is None or at.lag is None else max(ends[tp] - at.start_offset - at.lag, 0)
        row = {"topic": tp.topic, "partition": tp.partition, "committed": at.start_offset, "end": ends[tp], "lag": at.lag, "done_ahead": ahead}
        rows.append(row)
    return rows


COMMANDS = {"list": list_groups, "describe": describe, "lag": lag, "reset": reset, "alter": alter, "delete": delete}
