"""The audit itself, over the files of a directory or the records of a cluster: one topic and one partition after the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fletchlog._core import Broker, Cluster, clean_offsets, partition_directories
from fletchlog.audit.report import AuditReport, compared
from fletchlog.errors import UnknownTopicOrPartitionError
from fletchlog.interop import readable_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from typing import Any

    from fletchlog.audit.report import KeyAudit

WORST_KEYS = 20


def audit(source: str | PathLike[str], topics: Sequence[str] = (), *, keys: int = WORST_KEYS, config: Mapping[str, Any] | None = None) -> AuditReport:
    """Reads every record of some topics of a directory, ours or a real broker's, or of a cluster; changes nothing.

    Of a cluster the causes of gaps and repeated sequences stay None: only files show them.

    Records are read in batches. Memory holds what is kept per different key of a topic (some 300 bytes and the key), 16 bytes per lateness
    that occurs, and at most 64 MiB of hashes for repeats. More of them go to a temporary directory, 48 bytes per record of a partition; a 64th of
    that is read at once. Records are compared by two 64-bit hashes.

    Args:
        source: The broker's directory, which another process may be writing to, or `"kafka://HOST:PORT,..."`.
        topics: Topics; none: all but Kafka's internal ones.
        keys: How many keys to list.
        config: Properties of the clients of a cluster.

    Raises:
        fletchlog.errors.KafkaError: As `Broker`, `Cluster` and their `scan` raise it.
    """
    root = None if str(source).startswith("kafka://") else Path(source)
    with Cluster(str(source), config) if root is None else Broker(root, read_only=True) as broker:
        known = broker.topics(include_internal=True)
        missing = [topic for topic in topics if topic not in known]
        if missing:
            raise UnknownTopicOrPartitionError(f"{source} has no topic {', '.join(missing)}; it has {', '.join(broker.topics()) or 'none'}")
        wanted = dict.fromkeys(topics) or broker.topics()
        folders = {folder.name: folder for folder, _ in partition_directories(root)} if wanted and root is not None else {}
        found = [_Topic(broker, None if root is None else lambda name: folders.get(name, root / name), topic, keys) for topic in wanted]
    partitions = [partition for topic in found for partition in topic.partitions]
    worst = sorted((key for topic in found for key in topic.worst), key=_badness, reverse=True)
    return AuditReport(
        source=str(source) if root is None else readable_path(root),
        partitions=sorted(partitions, key=lambda p: (p.topic, p.partition)),
        keys=worst[:keys],
        keys_in_several_partitions={topic.name: topic.spread for topic in found},
        lateness={topic.name: topic.lateness for topic in found},
    )


def _badness(key: KeyAudit) -> tuple[int, int, int, int]:
    return (key.partitions, key.timestamp_inversions, key.duplicate_records, key.records)


class _Topic:
    def __init__(self, broker: Broker | Cluster, folder_of: Callable[[str], Path] | None, name: str, most: int) -> None:
        from fletchlog.audit.keys import Keys
        from fletchlog.audit.partition import Files, look

        described = broker.describe_topic(name)
        compacted = "compact" in (described.config or {}).get("cleanup.policy", "")
        self.name = name
        partitions, newest, lateness, keys = [], {}, [], Keys()
        for p in described.partitions:
            files = None
            if folder_of is not None:
                folder = folder_of(f"{name}-{p.partition}")
                files = Files(folder, p.high_watermark if compacted else clean_offsets(folder.parent).get((name, p.partition), 0))
            found = look(broker.scan(name, partition=p.partition), files, (name, p.partition), keys)
            partitions.append(found.audit)
            newest[p.partition] = found.order.newest
            lateness.append(found.order.lateness.decades())
        self.partitions = compared(partitions, newest)
        self.lateness = [sum(counts) for counts in zip(*lateness, strict=True)]
        self.worst, self.spread = keys.worst(name, most), keys.spread()
