"""Rows of a log, without another package."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

total = 0
for record in fl.scan("data/", "orders").records():
    total += int(record.value)
print(total)
# -> 45
