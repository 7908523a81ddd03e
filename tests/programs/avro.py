"""Avro, both ways."""

import fletchlog as fl

schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}
avro = fl.serde.Avro(schema)
with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker, value_serializer=avro) as producer:
        producer.send("t", {"id": 7, "item": "pear"})
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}, value_deserializer=avro) as consumer:
        consumer.assign([("t", 0)])
        print(consumer.poll()[0].value)
# -> {'id': 7, 'item': 'pear'}
