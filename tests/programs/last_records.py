"""The last three records of each partition."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

for record in fl.scan("data/", "orders", tail=3).records():
    print(record.partition, record.offset, record.value)
# -> 0 2 b'4'
# -> 0 3 b'6'
# -> 0 4 b'8'
# -> 1 2 b'5'
# -> 1 3 b'7'
# -> 1 4 b'9'
