"""One function for a directory, an open broker and a cluster."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)


def count(place):
    return fl.scan(place, "orders").to_pyarrow().num_rows


print(count("data/"))
with fl.Broker("data/") as broker, broker.listen() as kafka, fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
    print(count(broker), count(cluster), count(f"kafka://{kafka.bootstrap}"))
# -> 10
# -> 10 10 10
