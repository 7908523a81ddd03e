"""aiokafka: admin, a producer in transactions, a group of two. Prints what it saw as JSON."""

import asyncio
import json
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

server = sys.argv[1]


async def consumed(consumer, count):
    """The next `count` records, by partition in the order in which they came."""
    found = {}
    while sum(map(len, found.values())) < count:
        for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
            found.setdefault(partition.partition, []).extend(int(record.value) for record in records)
    return found


async def main():
    """All of it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    policy = {"cleanup.policy": "compact"}
    payments = NewTopic(name="payments", num_partitions=1, replication_factor=1, topic_configs=policy)
    await admin.create_topics([NewTopic(name="orders", num_partitions=3, replication_factor=1), payments])
    await admin.create_partitions({"payments": NewPartitions(2)})
    (described,) = await admin.describe_topics(["payments"])
    (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "payments")])
    policies = [entry[1] for *_, entries in configs.resources for entry in entries if entry[0] == "cleanup.policy"]
    cluster = await admin.describe_cluster()
    async with AIOKafkaProducer(bootstrap_servers=server, transactional_id="copier") as producer:
        async with producer.transaction():
            sent = [await producer.send_and_wait("orders", key=str(n % 5).encode(), value=str(n).encode()) for n in range(50)]
        await producer.begin_transaction()
        await producer.send_and_wait("orders", value=b"-1", partition=0)
        await producer.abort_transaction()
    config = {"bootstrap_servers": server, "group_id": "readers", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with AIOKafkaConsumer("orders", **config) as first:
        before = await consumed(first, 50)
        await first.commit()
        async with AIOKafkaConsumer("orders", **config) as second:
            shared = []
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                await first.getmany(timeout_ms=50)
                await second.getmany(timeout_ms=50)
                shared = [sorted(p.partition for p in member.assignment()) for member in (first, second)]
                if all(shared) and sum(map(len, shared)) == 3:  # while members rejoin, one still names partitions of another
                    break
    groups = sorted(group for group, _ in await admin.list_consumer_groups())
    committed = {tp.partition: found.offset for tp, found in (await admin.list_consumer_group_offsets("readers")).items()}
    await admin.delete_topics(["payments"])
    saw = {
        "reports": [(report.partition, report.offset) for report in sent],
        "before": before,
        "shared": shared,
        "partitions": len(described["partitions"]),
        "policies": policies,
        "brokers": len(cluster["brokers"]),
        "groups": groups,
        "committed": committed,
        "topics": sorted(name for name in await admin.list_topics() if not name.startswith("__")),
    }
    await admin.close()
    print(json.dumps(saw))


asyncio.run(main())
