"""JSON values as columns, bad ones beside them."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send_many("t", [b'{"n": 1}', b"{", b'{"n": 3}'])
    table = fl.serde.deserialize(fl.scan(broker, "t").to_pyarrow(), value=fl.serde.Json(), on_error="collect")
    print(table["value"].to_pylist())
# -> [{'n': 1}, None, {'n': 3}]
