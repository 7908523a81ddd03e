"""A broker in memory, for a test."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        print(producer.send("t", b"hello").result().offset)
# -> 0
