"""The threads of the 0.8 consumer."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)
    with fl.legacy.LegacyConsumer(broker, {"group.id": "g", "auto.offset.reset": "smallest"}) as consumer:
        streams = consumer.create_message_streams({"orders": 3})["orders"]
        print([len(stream.assignment()) for stream in streams])
# -> [1, 1, 0]
