"""Delete the records before an offset."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    print(broker.delete_records("orders", 0, 3))
    print(fl.scan(broker, "orders", 0).to_pyarrow()["value"].to_pylist())
# -> 3
# -> [b'6', b'8']
