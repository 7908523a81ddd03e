"""Go on behind a value that cannot be read."""

import json

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send_many("t", [b"1", b"{", b"3"])
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}, value_deserializer=json.loads) as consumer:
        consumer.assign([("t", 0)])
        rows = iter(consumer.poll())
        while True:
            try:
                print(next(rows).value)
            except fl.errors.RecordDeserializationError as error:
                print("t-0" in str(error), "offset 1" in str(error))
            except StopIteration:
                break
# -> 1
# -> True True
# -> 3
