"""How far a group is behind."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    with fl.Consumer(broker, {"group.id": "billing", "auto.offset.reset": "earliest", "max.poll.records": 3}) as consumer:
        consumer.subscribe(["orders"])
        consumer.poll()
        consumer.commit()
    print(sum(partition.lag for partition in broker.lag("billing").values()))
    print(sum(offset.offset for offset in broker.group_offsets("billing").values()))
# -> 7
# -> 3
