"""An exception in the block aborts the transaction."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        try:
            with producer.transaction():
                producer.send("t", b"never")
                raise RuntimeError("work failed")
        except RuntimeError as error:
            print(error)
        with producer.transaction():
            producer.send("t", b"kept")
    print([record.value for record in fl.scan(broker, "t", isolation_level="read_committed").records()])
# -> work failed
# -> [b'kept']
