"""The audit itself, over a directory, an open broker or a cluster: one topic and one partition after the other."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fletchlog._core import Broker, Cluster, clean_offsets, partition_directories
from fletchlog._place import CLUSTER, STORE, Place, at
from fletchlog._whole import described_whole
from fletchlog.audit.report import AuditReport, compared
from fletchlog.errors import IllegalStateError, UnknownTopicOrPartitionError
from fletchlog.interop import readable_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from fletchlog._place import Source
    from fletchlog.admin import PartitionDescription, TopicDescription
    from fletchlog.audit.report import KeyAudit

WORST_KEYS = 20
READ_BYTES = 8 << 20
_HEADER = 27
"""Up to the last offset delta of a batch of version 2; a message of version 0 or 1 has at least 26 bytes."""
_MAGIC_2 = 2


def run(source: Source, topics: Sequence[str] = (), *, keys: int = WORST_KEYS, config: Mapping[str, Any] | None = None) -> AuditReport:
    """Reads every record of some topics of a directory, ours or a real broker's, of an open broker, or of a cluster; changes nothing.

    Of a cluster the causes of gaps and repeated sequences stay None: only files show them.

    Records are read in batches. Memory holds what is kept per different key of a topic (some 300 bytes and the key), 16 bytes per lateness
    that occurs, and at most 64 MiB of hashes for repeats. More of them go to a temporary directory, 48 bytes per record of a partition; a 64th of
    that is read at once. Records are compared by two 64-bit hashes.

    Args:
        source: The broker's directory, to which another process may be writing; a `Broker`, in memory too, whose batches are copied to a
            temporary directory, a partition at a time; a place on an object store, `"s3://bucket/prefix"`, likewise; `"kafka://HOST:PORT,..."`, or a `Cluster`.
        topics: Topics; none: all but Kafka's internal ones.
        keys: How many keys to list.
        config: Properties of the clients of a cluster.

    Raises:
        fletchlog.errors.OffsetOutOfRangeError: Records that were there when the audit began were deleted before it had read them.
        fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic; or a topic was deleted, or deleted and made again, while it was read.
        fletchlog.errors.IllegalStateError: A topic was deleted and made again; it was found out at its end.
        fletchlog.errors.KafkaError: As `Broker`, `Cluster` and their `scan` raise it.
    """
    if isinstance(source, Broker):
        with tempfile.TemporaryDirectory(prefix="fletchlog-audit-") as copies:
            return _audit(source, "a broker in this process", lambda topic, described: _copy(source, topic, described, Path(copies)), topics, keys)
    if isinstance(source, Cluster):
        return _audit(source, repr(source), None, topics, keys)
    place = Place(source)
    if place.kind == STORE:
        with Broker(place.name, read_only=True) as broker:
            return run(broker, topics, keys=keys)
    if place.kind == CLUSTER:
        with Cluster(place.name, config) as cluster:
            return _audit(cluster, place.name, None, topics, keys)
    root = Path(place)
    with at(place) as log:
        if not any((root / name).exists() for name in ("fletchlog.metadata", "meta.properties")):
            return run(log, topics, keys=keys)  # segments of tiered storage
        folders = {folder.name: folder for folder, _ in partition_directories(root)} if log.topics(include_internal=True) else {}

        def folder_of(topic: str, described: PartitionDescription) -> Path:
            name = f"{topic}-{described.partition}"
            return folders.get(name, root / name)

        return _audit(log, readable_path(root), folder_of, topics, keys)


def _audit(broker: Broker | Cluster, name: str, folder_of: Callable[[str, PartitionDescription], Path] | None, topics: Sequence[str], keys: int) -> AuditReport:
    known = broker.topics(include_internal=True)
    missing = [topic for topic in topics if topic not in known]
    if missing:
        raise UnknownTopicOrPartitionError(f"{name} has no topic {', '.join(missing)}; it has {', '.join(broker.topics()) or 'none'}")
    # all at once: what is lost from here on is an error, also in a topic whose turn comes late
    described = [described_whole(broker, topic) for topic in dict.fromkeys(topics) or broker.topics()]
    found = [_Topic(broker, folder_of, topic, keys) for topic in described]
    partitions = [partition for topic in found for partition in topic.partitions]
    worst = sorted((key for topic in found for key in topic.worst), key=_badness, reverse=True)
    return AuditReport(
        source=name,
        partitions=sorted(partitions, key=lambda p: (p.topic, p.partition)),
        keys=worst[:keys],
        keys_in_several_partitions={topic.name: topic.spread for topic in found},
        lateness={topic.name: topic.lateness for topic in found},
    )


def _copy(broker: Broker, topic: str, described: PartitionDescription, into: Path) -> Path:
    """The batches of a partition in a segment of their own, in place of those of the partition before."""
    offset = described.log_start_offset
    with (into / f"{0:020}.log").open("wb") as segment:
        while offset < described.high_watermark:
            data = broker.read_batches(topic, described.partition, offset, READ_BYTES)
            end, offset = _whole(data, offset)
            if end == 0:
                break
            segment.write(data[:end])
    return into


def _whole(data: bytes, offset: int) -> tuple[int, int]:
    """Where the last whole batch ends, and the offset behind it. Kafka: `DefaultRecordBatch`, `AbstractLegacyRecordBatch`."""
    at = 0
    while at + _HEADER <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        end = at + 12 + length
        if end > len(data):
            break
        (delta,) = struct.unpack_from(">i", data, at + 23) if data[at + 16] >= _MAGIC_2 else (0,)
        at, offset = end, base + delta + 1
    return at, offset


def _badness(key: KeyAudit) -> tuple[int, int, int, int]:
    return (key.partitions, key.timestamp_inversions, key.duplicate_records, key.records)


class _Topic:
    def __init__(self, broker: Broker | Cluster, folder_of: Callable[[str, PartitionDescription], Path] | None, described: TopicDescription, most: int) -> None:
        from fletchlog.audit.keys import Keys
        from fletchlog.audit.partition import Files, look

        compacted = "compact" in (described.config or {}).get("cleanup.policy", "")
        self.name = name = described.name
        partitions, newest, lateness, keys = [], {}, [], Keys()
        for p in described.partitions:
            files = None
            if folder_of is not None:
                folder = folder_of(name, p)
                files = Files(folder, p.high_watermark if compacted else clean_offsets(folder.parent).get((name, p.partition), 0))
            scan = broker.scan(name, p.partition, p.log_start_offset, p.high_watermark, timestamp_unit="ms")
            found = look(scan, files, (name, p.partition), keys)
            partitions.append(found.audit)
            newest[p.partition] = found.order.newest
            lateness.append(found.order.lateness.decades())
        if broker.describe_topic(name).topic_id != described.topic_id:
            raise IllegalStateError(f"topic {name} was deleted and made again while it was audited; audit it again")
        self.partitions = compared(partitions, newest)
        self.lateness = [sum(counts) for counts in zip(*lateness, strict=True)]
        self.worst, self.spread = keys.worst(name, most), keys.spread()
