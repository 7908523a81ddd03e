"""Read JSON as dictionaries."""

import json

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("events")
    with fl.Producer(broker) as producer:
        producer.send("events", b'{"user": 7}')
        producer.send("events", None)
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}, value_deserializer=json.loads) as consumer:
        consumer.assign([("events", 0)])
        for record in consumer.poll():
            print(record.offset, record.value)
# -> 0 {'user': 7}
# -> 1 None
