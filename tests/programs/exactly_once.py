"""Copy records and commit their offsets in one transaction."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topics(["in", "out"])
    with fl.Producer(broker) as producer:
        producer.send_many("in", [b"a", b"b"])
    config = {"group.id": "copier", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with fl.Consumer(broker, config) as consumer, fl.Producer(broker, {"transactional.id": "copier"}) as producer:
        consumer.subscribe(["in"])
        producer.init_transactions()
        records = consumer.poll(timeout_ms=5000)
        with producer.transaction():
            for record in records:
                producer.send("out", record.value.upper())
            producer.send_offsets_to_transaction({("in", 0): records[-1].offset + 1}, consumer.group_metadata())
    print([record.value for record in fl.scan(broker, "out", isolation_level="read_committed").records()])
    print(broker.group_offsets("copier")["in", 0].offset)
# -> [b'A', b'B']
# -> 2
