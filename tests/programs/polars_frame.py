"""Count by partition with polars."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

frame = fl.scan("data/", "orders", columns=["partition"]).to_polars()
print(frame.group_by("partition").len().sort("partition").rows())
# -> [(0, 5), (1, 5)]
