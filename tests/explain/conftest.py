import pytest

import fletchlog as fl


@pytest.fixture
def small_broker():
    """Topics orders and payments, three partitions with thirty records each, on two nodes."""
    with fl.Broker.in_memory(nodes=2) as broker:
        for topic in ("orders", "payments"):
            broker.create_topic(topic, partitions=3)
            with fl.Producer(broker, {"linger.ms": 10_000}) as producer:
                for partition in range(3):
                    for _ in range(30):
                        producer.send(topic, value=b"x", partition=partition)
        yield broker
