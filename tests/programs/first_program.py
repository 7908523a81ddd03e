"""Write and read records in a directory; running it again is no error."""

import fletchlog as fl

for _ in range(2):
    with fl.Broker("data/", create=True) as broker:
        broker.create_topic("orders", partitions=3, exist_ok=True)
        with fl.Producer(broker) as producer:
            producer.send("orders", key=b"customer-1", value=b"12.50")
        with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([("orders", p) for p in range(3)])
            print(len(consumer.poll()))
# -> 1
# -> 2
