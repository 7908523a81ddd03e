"""List groups, set their offsets, delete them."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    broker.alter_offsets("g", {("orders", 0): 3, ("orders", 1): 5})
    print([group.group_id for group in broker.groups()])
    with fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        print(sum(len(records) for records in consumer.read_to_end()))
    broker.delete_group("g")
    print(broker.groups())
# -> ['g']
# -> 2
# -> []
