"""librdkafka through confluent-kafka: admin, produce, a group of two that rebalances, a transaction. Prints what it saw as JSON."""

import json
import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

servers = {"bootstrap.servers": sys.argv[1]}


def produced(topic, count, **config):
    """Sends `count` records and returns their (partition, offset)s."""
    reports = []

    def report(error, message):
        assert error is None, error
        reports.append((message.partition(), message.offset()))

    producer = Producer(servers | config)
    for number in range(count):
        producer.produce(topic, value=str(number).encode(), key=str(number % 5).encode(), headers={"n": str(number)}, on_delivery=report)
    assert producer.flush(20) == 0
    return reports


def consumed(consumer, count):
    """The next `count` records, by partition in the order in which they came."""
    found = {}
    while sum(map(len, found.values())) < count:
        for message in consumer.consume(count, 10):
            if message.error() is None:
                found.setdefault(message.partition(), []).append(int(message.value()))
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise AssertionError(message.error())
    return found


def group(topic, count):
    """Two members share the partitions; what one read and committed, the other does not read again."""
    config = servers | {"group.id": f"readers of {topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000}
    first, second = Consumer(config), Consumer(config)
    first.subscribe([topic])
    before = consumed(first, count)
    first.commit(asynchronous=False)
    second.subscribe([topic])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        first.poll(0.05), second.poll(0.05)
        shared = [sorted(p.partition for p in member.assignment()) for member in (first, second)]
        if all(shared) and sum(map(len, shared)) == 3:  # while members rejoin, one still names partitions of another
            break
    committed = second.committed([TopicPartition(topic, p) for p in before], timeout=10)
    first.close(), second.close()
    return before, shared, {p.partition: p.offset for p in committed}


def transactions(topic):
    """One is aborted, one committed with offsets."""
    producer = Producer(servers | {"transactional.id": "copier"})
    producer.init_transactions(20)
    for end, value in ((producer.abort_transaction, b"0"), (producer.commit_transaction, b"1")):
        producer.begin_transaction()
        producer.produce(topic, key=b"k", value=value)
        end(20)
    reader = Consumer(servers | {"group.id": "committed", "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    reader.subscribe([topic])
    seen = consumed(reader, 1)
    reader.close()
    return seen


admin = AdminClient(servers)
admin.create_topics([NewTopic("orders", 3), NewTopic("payments", 1, config={"cleanup.policy": "compact"})])["orders"].result(10)
admin.create_partitions([NewPartitions("payments", 2)])["payments"].result(10)
resource = ConfigResource(ConfigResource.Type.TOPIC, "payments")
policy = admin.describe_configs([resource])[resource].result(10)["cleanup.policy"].value
reports = produced("orders", 100, **{"enable.idempotence": True})
before, shared, committed = group("orders", 100)
seen = transactions("payments")
listed = sorted(g.group_id for g in admin.list_consumer_groups().result(10).valid)
deleted = admin.delete_topics(["payments"])["payments"].result(10)
topics = sorted(name for name in admin.list_topics(timeout=10).topics if not name.startswith("__"))
print(
    json.dumps(
        {"policy": policy, "reports": reports, "before": before, "shared": shared, "committed": committed, "seen": seen, "groups": listed, "topics": topics}
    )
)
