"""A function that is called with the outcome of a send."""

import fletchlog as fl


def outcome(metadata, error):
    print(metadata.offset if error is None else error)


with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send("t", b"a", callback=outcome)
        producer.send("t", b"b", callback=outcome)
# -> 0
# -> 1
