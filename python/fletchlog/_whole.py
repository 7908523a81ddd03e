"""Topics of which every partition can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.errors import StorageError

if TYPE_CHECKING:
    from fletchlog import Broker, Cluster
    from fletchlog.admin import TopicDescription


def described_whole(admin: Broker | Cluster, topic: str) -> TopicDescription:
    """The description of a topic, for who relies on the offsets of all partitions.

    Raises:
        fletchlog.errors.KafkaError: What is wrong with the first partition that cannot be read.
        fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
    """
    described = admin.describe_topic(topic)
    for p in described.partitions:
        if p.high_watermark < 0:
            admin.scan(topic, p.partition)
            raise StorageError(f"{topic}-{p.partition} could not be read when the topic was described, and can be now; try again")
    return described
