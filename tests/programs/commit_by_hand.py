"""Commit after the work is done; the next consumer goes on there."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    config = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "max.poll.records": 4}
    for _ in range(3):
        with fl.Consumer(broker, config) as consumer:
            consumer.subscribe(["orders"])
            print(len(consumer.poll(timeout_ms=5000)))
            consumer.commit()
# -> 4
# -> 4
# -> 2
