"""A topic batch by batch, in bounded memory."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

for batch in fl.scan("data/", "orders", batch_rows=4):
    print(batch.num_rows)
# -> 4
# -> 1
# -> 4
# -> 1
