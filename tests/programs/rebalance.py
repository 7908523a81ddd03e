"""Two members share a topic; callbacks say who has what."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    config = {"group.id": "g", "auto.offset.reset": "earliest"}
    first, second = fl.Consumer(broker, config), fl.Consumer(broker, config)
    first.subscribe(["orders"], on_assigned=lambda partitions: print("first:", len(partitions)))
    first.poll(timeout_ms=1000)
    second.subscribe(["orders"], on_assigned=lambda partitions: print("second:", len(partitions)))
    while not (first.assignment() and second.assignment()):
        first.poll(timeout_ms=100)
        second.poll(timeout_ms=100)
    second.close()
    first.close()
# -> first: 2
# -> first: 1
# -> second: 1
