"""The records of the last hour."""

from datetime import UTC, datetime, timedelta

import fletchlog as fl

now = datetime.now(UTC)
with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send("t", b"old", timestamp_ms=now - timedelta(hours=3))
        producer.send("t", b"new", timestamp_ms=now - timedelta(minutes=3))
    for record in fl.scan(broker, "t", start_time=now - timedelta(hours=1)).records():
        print(record.value)
    try:
        fl.scan(broker, "t", start_time=datetime.now())
    except (TypeError, ValueError) as error:
        print("time zone" in str(error))
# -> b'new'
# -> True
