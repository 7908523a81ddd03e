"""The same log gives the same run."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

with fl.Consumer("data/", {"fletchlog.trace": True, "auto.offset.reset": "earliest"}) as consumer:
    consumer.assign([("orders", 0), ("orders", 1)])
    consumer.poll()
    print(fl.explain.replay(consumer.trace(), "data/").same)
# -> True
