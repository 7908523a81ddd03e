"""Several partitions merged by time."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(6):
            producer.send("t", b"%d" % number, partition=number % 2, timestamp_ms=1000 + number)
    print([record.value for record in fl.scan(broker, "t", order="timestamp").records()])
    with fl.Consumer(broker, {"fletchlog.fetch.order": "timestamp", "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        print([record.value for records in consumer.read_to_end() for record in records])
# -> [b'0', b'1', b'2', b'3', b'4', b'5']
# -> [b'0', b'1', b'2', b'3', b'4', b'5']
