"""Let another client connect."""

import confluent_kafka

import fletchlog as fl

with fl.Broker.in_memory() as broker, broker.listen() as kafka:
    broker.create_topic("t")
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("t", b"from librdkafka")
    producer.flush(10)
    print([record.value for record in fl.scan(broker, "t").records()])
# -> [b'from librdkafka']
