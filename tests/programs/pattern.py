"""Subscribe to every topic with a name of a pattern."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topics(["eu.orders", "us.orders", "eu.payments"])
    with fl.Producer(broker) as producer:
        for topic in broker.topics():
            producer.send(topic, topic.encode())
    with fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(pattern=r"(eu|us)\.orders")
        print(sorted(record.value for records in consumer.read_to_end() for record in records))
# -> [b'eu.orders', b'us.orders']
