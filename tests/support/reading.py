"""What is read back from a place: an open broker or cluster, or the directory of a broker."""

import time

import fletchlog as fl


def table_of(place, topic="t", **options):
    """Records of a topic as a table; `options` are those of `scan`."""
    if isinstance(place, fl.Broker | fl.Cluster):
        return place.scan(topic, **options).to_pyarrow()
    with fl.Broker(place, read_only=True) as broker:
        return table_of(broker, topic, **options)


def rows_of(place, topic="t", **options):
    """Records of a topic as dicts of their columns."""
    return table_of(place, topic, **options).to_pylist()


def values_of(place, topic="t", **options):
    """Their values. Nothing else is decoded: some tests read millions."""
    return table_of(place, topic, columns=["value"], **options)["value"].to_pylist()


def numbers_of(place, topic="t"):
    """The numbers that readers of committed records see."""
    return [int(value) for value in values_of(place, topic, isolation_level="read_committed")]


def consumed(config, count=1):
    """The first values of partition 0 of topic t, by a consumer with this configuration."""
    values = []
    with fl.Consumer({"auto.offset.reset": "earliest"} | config) as consumer:
        consumer.assign([("t", 0)])
        end = time.monotonic() + 20
        while len(values) < count and time.monotonic() < end:
            values += [record.value for record in consumer.poll(timeout_ms=200)]
    return values
