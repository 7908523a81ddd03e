"""Headers and a timestamp of one's own."""

from datetime import UTC, datetime

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        producer.send("t", b"v", headers={"trace": b"42"}, timestamp_ms=when)
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("t", 0)])
        record = consumer.poll().with_headers()[0]
        print(record.timestamp, record.headers)
# -> 1767323045000 [('trace', b'42')]
