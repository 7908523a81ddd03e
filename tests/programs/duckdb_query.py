"""SQL over a topic."""

import duckdb

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

orders = fl.scan("data/", "orders").to_reader()
print(duckdb.sql('select partition, max("offset") from orders group by partition order by partition').fetchall())
# -> [(0, 4), (1, 4)]
