"""Keep the newest record of each key."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("prices", config={"cleanup.policy": "compact"})
    with fl.Producer(broker) as producer:
        for price in range(5):
            producer.send("prices", key=b"apple", value=b"%d" % price)
            producer.send("prices", key=b"pear", value=b"%d" % (10 * price))
    broker.clean_topic("prices", force=True)
    print([(record.key, record.value) for record in fl.scan(broker, "prices").records()])
# -> [(b'apple', b'4'), (b'pear', b'40')]
