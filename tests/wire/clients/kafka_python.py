"""kafka-python: admin, an idempotent producer, a group of two that rebalances, offsets by time, transactions. Prints what it saw as JSON."""

import json
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

server = sys.argv[1]


def consumed(consumer, count):
    """The next `count` records, by partition in the order in which they came."""
    found = {}
    while sum(map(len, found.values())) < count:
        for partition, records in consumer.poll(timeout_ms=1000).items():
            found.setdefault(partition.partition, []).extend(int(record.value) for record in records)
    return found


admin = KafkaAdminClient(bootstrap_servers=server)
admin.create_topics([NewTopic(name="orders", num_partitions=3, replication_factor=1)])
producer = KafkaProducer(bootstrap_servers=server, acks="all")
sent = [producer.send("orders", key=str(n % 5).encode(), value=str(n).encode(), timestamp_ms=1_700_000_000_000 + n).get(20) for n in range(100)]
producer.close()
config = {"bootstrap_servers": server, "group_id": "readers", "auto_offset_reset": "earliest", "enable_auto_commit": False}
reader = KafkaConsumer("orders", **config)
before = consumed(reader, 100)
reader.commit()
partitions = [TopicPartition("orders", p) for p in range(3)]
committed = {p.partition: reader.committed(p) for p in partitions}
times = {p.partition: found.offset for p, found in reader.offsets_for_times(dict.fromkeys(partitions, 1_700_000_000_050)).items() if found}
ends = {p.partition: offset for p, offset in reader.end_offsets(partitions).items()}
other = KafkaConsumer("orders", **config)
shared = []
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    reader.poll(timeout_ms=50), other.poll(timeout_ms=50)
    shared = [sorted(p.partition for p in member.assignment()) for member in (reader, other)]
    if all(shared) and sum(map(len, shared)) == 3:  # while members rejoin, one still names partitions of another
        break
other.close(), reader.close()
copier = KafkaProducer(bootstrap_servers=server, transactional_id="copier")
copier.init_transactions()
for end, value in ((copier.abort_transaction, b"0"), (copier.commit_transaction, b"1")):
    copier.begin_transaction()
    copier.send("payments", value=value, partition=0)
    end()
copier.close()
committed_only = KafkaConsumer("payments", bootstrap_servers=server, auto_offset_reset="earliest", isolation_level="read_committed")
seen = consumed(committed_only, 1)
committed_only.close()
reports = [(report.partition, report.offset) for report in sent]
print(json.dumps({"reports": reports, "before": before, "committed": committed, "times": times, "ends": ends, "shared": shared, "seen": seen}))
