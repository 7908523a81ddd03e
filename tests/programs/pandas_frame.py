"""A topic as a pandas DataFrame."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

frame = fl.scan("data/", "orders").to_pandas()
print(len(frame), sorted(frame["partition"].unique().tolist()))
# -> 10 [0, 1]
