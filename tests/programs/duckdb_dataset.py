"""SQL whose conditions reach the log."""

import duckdb

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

orders = fl.scans.dataset("data/", "orders")
print(duckdb.sql('select value from orders where partition = 1 and "offset" >= 3').fetchall())
# -> [(b'7',), (b'9',)]
