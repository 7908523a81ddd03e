import pytest

import fletchlog as fl
from tests.support.landed import FORMATS, Place


@pytest.fixture
def broker():
    """With the topic `t`, which has two partitions."""
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture(params=FORMATS)
def place(request, tmp_path):
    """A table of each format."""
    return Place(request.param, tmp_path)


@pytest.fixture
def parquet(tmp_path):
    return Place("parquet", tmp_path)


@pytest.fixture
def send(broker):
    """Sends records to a partition of `t`: values, or as many as a number says."""

    def send(values, partition=0, topic="t", **options):
        values = [b"v%d" % n for n in range(values)] if isinstance(values, int) else values
        with fl.Producer(broker) as producer:
            for n, value in enumerate(values):
                producer.send(topic, value=value, key=b"k%d" % n, partition=partition, headers=[("h", b"%d" % n)], **options)

    return send
