"""Errors whose cause Kafka names itself: a table of what each means, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fletchlog.explain.session.columns import NONE, among, mixed, np
from fletchlog.explain.session.finding import found, several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Level, Scene
    from fletchlog.explain.session.rows import Produced, Refused


class _Meaning(NamedTuple):
    code: str
    level: Level
    weight: int
    least: int
    """So many such responses make a finding: some errors are normal once."""
    text: str
    change: str


_TABLE: dict[str, _Meaning] = {
    "INCONSISTENT_GROUP_PROTOCOL": _Meaning(
        "assignors-differ", "error", 97, 1, "{client} cannot join {about}: its assignors and those of the members have none in common",
        "Give all members of the group one common assignor in partition.assignment.strategy, and change it in two rolling restarts.",
    ),
    "INVALID_SESSION_TIMEOUT": _Meaning(
        "session-timeout-refused", "error", 96, 1, "{client} cannot join {about}: the broker refuses its session time-out",
        "Set session.timeout.ms between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms.",
    ),
    "GROUP_MAX_SIZE_REACHED": _Meaning(
        "group-full", "error", 96, 1, "{client} cannot join {about}: the group has as many members as group.max.size allows",
        "Run fewer members, or raise group.max.size on the brokers.",
    ),
    "SHARE_SESSION_LIMIT_REACHED": _Meaning(
        "share-sessions-full", "error", 96, 3, "{client} reads nothing: its node has as many share sessions as group.share.max.share.sessions allows",
        "Run fewer share consumers, spread the leaders of partitions over more nodes, or raise group.share.max.share.sessions on the brokers.",
    ),
    "OFFSET_METADATA_TOO_LARGE": _Meaning(
        "commit-metadata-too-large", "error", 95, 1, "{client} cannot commit {about}: the metadata of its commit is larger than the broker takes",
        "Put less into the metadata of a commit, or raise offset.metadata.max.bytes on the brokers.",
    ),
    "MESSAGE_TOO_LARGE": _Meaning(
        "message-too-large", "error", 94, 1, "{client} sends batches to {about} that are larger than the topic takes",
        "Raise the topic's max.message.bytes, compress (compression.type), or send smaller records; large values belong in a store, with a reference in Kafka.",
    ),
    "RECORD_LIST_TOO_LARGE": _Meaning(
        "message-too-large", "error", 94, 1, "{client} sends batches to {about} that are larger than a segment",
        "Send smaller batches (batch.size, max.request.size), or raise segment.bytes.",
    ),
    "INVALID_RECORD": _Meaning(
        "record-refused", "error", 94, 1, "the broker refuses records of {client} for {about}; a compacted topic takes no record without a key",
        "Give every record for a compacted topic a key.",
    ),
    "INVALID_TIMESTAMP": _Meaning(
        "timestamps-off", "error", 93, 1, "the broker refuses records of {client} for {about}: their timestamps are too far from its clock",
        "Send timestamps in milliseconds since 1970, check the client's clock, or use message.timestamp.type=LogAppendTime.",
    ),
    "NOT_ENOUGH_REPLICAS": _Meaning(
        "not-enough-replicas", "error", 90, 3, "{client} cannot write to {about} with acks=all: fewer replicas are in sync than min.insync.replicas asks for",
        "Bring the missing replicas back; min.insync.replicas has to be smaller than the replication factor, so that one node may fail.",
    ),
    "TOPIC_AUTHORIZATION_FAILED": _Meaning(
        "not-authorized", "error", 96, 1, "{client} may not use the topic {about}", "Give its user the ACL (Read, Write or Describe) of this topic.",
    ),
    "GROUP_AUTHORIZATION_FAILED": _Meaning(
        "not-authorized", "error", 96, 1, "{client} may not use the group {about}", "Give its user the ACL Read of this group.",
    ),
    "CLUSTER_AUTHORIZATION_FAILED": _Meaning(
        "not-authorized", "error", 96, 1, "{client} may not do this in the cluster {about}", "Give its user the ACL of the cluster that it needs.",
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _Meaning(
        "not-authorized", "error", 96, 1, "{client} may not use the transactional id {about}", "Give its user the ACLs Write and Describe of this id.",
    ),
    "SASL_AUTHENTICATION_FAILED": _Meaning(
        "authentication-failed", "error", 97, 1, "the broker refuses the user or the password of {client}",
        "Check sasl.username and sasl.password (sasl.jaas.config), and the mechanism.",
    ),
    "UNSUPPORTED_SASL_MECHANISM": _Meaning(
        "authentication-failed", "error", 97, 1, "the broker has not the SASL mechanism of {client}",
        "Set sasl.mechanism to one of the broker's sasl.enabled.mechanisms.",
    ),
    "INVALID_TRANSACTION_TIMEOUT": _Meaning(
        "transaction-timeout-refused", "error", 96, 1, "{client} cannot begin {about}: its transaction time-out is longer than the broker allows",
        "Set transaction.timeout.ms to at most the broker's transaction.max.timeout.ms.",
    ),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": _Meaning(
        "sequence-broken", "error", 90, 1, "batches of {client} for {about} arrive with a gap in their sequence: a batch before them is lost",
        "Let no batch expire while others are sent: raise delivery.timeout.ms; end the producer when a send fails, and begin with a new one.",
    ),
    "UNKNOWN_PRODUCER_ID": _Meaning(
        "sequence-broken", "error", 90, 1, "the broker does not know the producer id of {client} for {about}: its records were deleted or expired",
        "Raise producer.id.expiration.ms or the topic's retention; use a newer client, which recovers from this.",
    ),
    "UNSUPPORTED_VERSION": _Meaning(
        "version-unsupported", "error", 90, 1, "{client} uses a version of a request that this broker does not have",
        "Use a client of this cluster's generation, or remove its setting for the broker's version.",
    ),
    "INVALID_TOPIC_EXCEPTION": _Meaning(
        "topic-invalid", "error", 90, 1, "{client} asks for the topic {about}, which is no valid name",
        "A name has letters, digits, `.`, `_` and `-`, at most 249 of them.",
    ),
    "INVALID_REQUIRED_ACKS": _Meaning("acks-invalid", "error", 90, 1, "{client} sends acks that Kafka does not have", "acks is 0, 1 or all."),
    "INVALID_GROUP_ID": _Meaning("group-id-invalid", "error", 90, 1, "{client} uses a group without a name", "Set group.id."),
    "UNRELEASED_INSTANCE_ID": _Meaning(
        "instance-id-shared", "error", 95, 1, "two members of {about} use one group.instance.id: {client} may not join with it",
        "Give every process a group.instance.id of its own.",
    ),
    "UNSUPPORTED_ASSIGNOR": _Meaning(
        "assignors-differ", "error", 95, 1, "{client} asks for an assignor that the broker does not have", "Set group.remote.assignor to `uniform` or `range`.",
    ),
}  # fmt: skip

# ApiVersions with a version that is too new is how clients find out which one there is
_NORMAL = {("ApiVersions", "UNSUPPORTED_VERSION")}


def rule(scene: Scene) -> Iterator[Finding]:
    """A finding for each error of the table and each client."""
    by: dict[tuple[str, int], list[Refused]] = {}
    for refused in scene.facts.refused:
        if refused.error in _TABLE and (refused.api, refused.error) not in _NORMAL:
            by.setdefault((refused.error, refused.client), []).append(refused)
    groups = {event.number: event.group for event in scene.facts.group_events}
    again = _written_later(scene)
    for (error, client), every in by.items():
        # an idempotent producer repeats what followed a batch that failed
        items = [item for item in every if error != "OUT_OF_ORDER_SEQUENCE_NUMBER" or (item.number, item.about) not in again]
        meaning = _TABLE[error]
        if len(items) < meaning.least:
            continue
        about = several(dict.fromkeys(item.about or groups.get(item.number, "") for item in items))
        text = meaning.text.format(client=scene.name(client), about=about or "(not named)")
        text = f"{text[0].upper() if not text.startswith(scene.name(client)) else text[0]}{text[1:]}: {error}, {_times(len(items))}."
        yield found(meaning.code, meaning.level, meaning.weight, text, meaning.change, [item.number for item in items], about or scene.name(client))


def _written_later(scene: Scene) -> set[tuple[int, str]]:
    """Batches that were refused for their sequence, and written later: request and partition."""
    batches = scene.facts.produced
    failed = np.flatnonzero(batches.error)
    if not len(failed):
        return set()
    same = mixed(batches.client, batches.lane, batches.first_timestamp, batches.records, batches.size)
    written = among(same, same[failed])
    written = written[batches.base_offset[written] != NONE]
    last = dict(zip(map(_content, batches.rows(written)), batches.number[written].tolist(), strict=True))
    return {(batch.number, str(batch.lane)) for batch in batches.rows(failed) if last.get(_content(batch), -1) > batch.number}


def _content(batch: Produced) -> tuple[object, ...]:
    return batch.client, batch.lane, batch.first_timestamp, batch.records, batch.size


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
