"""Read a directory while another program writes it."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    with fl.Consumer("data/", {"auto.offset.reset": "earliest"}) as beside:
        beside.assign([("orders", 0), ("orders", 1)])
        print(sum(len(records) for records in beside.read_to_end()))
    try:
        fl.Broker("data/")
    except fl.errors.DirectoryLockedError:
        print("one writer at a time")
# -> 10
# -> one writer at a time
