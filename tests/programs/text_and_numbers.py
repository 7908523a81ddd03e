"""Kafka's own types: text keys, whole numbers."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker, key_serializer=fl.serde.String(), value_serializer=fl.serde.Long()) as producer:
        producer.send("t", key="visits", value=42)
    config = {"auto.offset.reset": "earliest"}
    with fl.Consumer(broker, config, key_deserializer=fl.serde.String(), value_deserializer=fl.serde.Long()) as consumer:
        consumer.assign([("t", 0)])
        print([(record.key, record.value) for record in consumer.poll()])
# -> [('visits', 42)]
