"""Read everything that is there, and stop."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        print(sum(len(records) for records in consumer.read_to_end()))
# -> 10
