"""Records with one key stay in one partition, in order."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t", partitions=8)
    with fl.Producer(broker) as producer:
        for number in range(6):
            producer.send("t", key=b"customer-7", value=b"%d" % number)
    records = list(fl.scan(broker, "t").records())
    print(len({record.partition for record in records}), [record.value for record in records])
# -> 1 [b'0', b'1', b'2', b'3', b'4', b'5']
