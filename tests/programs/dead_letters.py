"""Move what cannot be parsed to another topic, with the reason in a header."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topics(["numbers", "dead-letters"])
    with fl.Producer(broker) as producer:
        for value in (b"1", b"two", b"3"):
            producer.send("numbers", value)
        producer.flush()
        with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([("numbers", 0)])
            for record in consumer.poll():
                try:
                    print(int(record.value))
                except ValueError as error:
                    producer.send("dead-letters", record.value, headers=[("reason", str(error).encode())])
    for record in fl.scan(broker, "dead-letters", include_headers=True).records():
        print(record.value, record.headers[0][0])
# -> 1
# -> 3
# -> b'two' reason
