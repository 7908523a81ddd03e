"""The records of a poll by partition."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        records = consumer.poll()
        for partition, part in sorted(records.by_partition().items()):
            print(partition, [record.value for record in part])
        print(records[0].offset, records[-1].offset, len(records[2:5]))
# -> orders-0 [b'0', b'2', b'4', b'6', b'8']
# -> orders-1 [b'1', b'3', b'5', b'7', b'9']
# -> 0 4 3
