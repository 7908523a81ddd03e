"""A whole copy of a directory."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

fl.transfer.export("data/", "backup/")
print(fl.scan("backup/", "orders").to_pyarrow().num_rows)
# -> 10
