"""Acknowledged means on disk."""

import fletchlog as fl

with fl.Broker("data/", create=True, config={"fletchlog.durability": "fsync"}) as broker:
    broker.create_topic("t")
    with fl.Producer(broker, {"acks": "all"}) as producer:
        print(producer.send("t", b"v").result().offset)
# -> 0
