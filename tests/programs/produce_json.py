"""Send dictionaries as JSON."""

import json

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("events")
    with fl.Producer(broker, value_serializer=lambda value: json.dumps(value).encode()) as producer:
        producer.send("events", {"user": 7, "action": "login"})
    for record in fl.scan(broker, "events").records():
        print(record.value)
# -> b'{"user": 7, "action": "login"}'
