"""Wait for what was sent, at most ten seconds."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    producer = fl.Producer(broker)
    producer.send("t", b"v")
    producer.flush(timeout=10)
    print(fl.scan(broker, "t").to_pyarrow().num_rows)
    producer.close()
# -> 1
