"""aiokafka: a producer in transactions, a group of two. Prints what it saw as JSON."""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

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
    await admin.create_topics([NewTopic(name="orders", num_partitions=3, replication_factor=1)])
    await admin.close()
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
            for _ in range(100):
                await first.getmany(timeout_ms=50)
                await second.getmany(timeout_ms=50)
                shared = [sorted(p.partition for p in member.assignment()) for member in (first, second)]
                if all(shared):
                    break
    print(json.dumps({"reports": [(report.partition, report.offset) for report in sent], "before": before, "shared": shared}))


asyncio.run(main())
