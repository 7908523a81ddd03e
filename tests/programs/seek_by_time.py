"""Begin at a time."""

from datetime import UTC, datetime

import fletchlog as fl

day = datetime(2026, 1, 1, tzinfo=UTC)
with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        for hour in range(5):
            producer.send("t", b"%d" % hour, timestamp_ms=day.replace(hour=hour))
    with fl.Consumer(broker) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), day.replace(hour=3))
        print([record.value for record in consumer.poll()])
        consumer.seek(("t", 0), 0)
        print(len(consumer.poll()), consumer.position(("t", 0)))
# -> [b'3', b'4']
# -> 5 5
