"""The order of another client release."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

for release in ("2.6", "3.9"):
    with fl.Consumer("data/", {"fletchlog.consumer.version": release, "auto.offset.reset": "earliest", "max.poll.records": 4}) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        print([run.count for run in consumer.poll().runs()])
# -> [4]
# -> [4]
