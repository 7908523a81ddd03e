import pytest


@pytest.fixture(params=["embedded", "remote"])
def place(request, broker):
    """The broker, and what a client of it is given."""
    if request.param == "embedded":
        yield broker, broker
        return
    with broker.listen() as listener:
        yield broker, f"kafka://{listener.bootstrap}"


@pytest.fixture(params=["embedded", "cluster"])
def peer(request, broker):
    """What clients connect to; topic `t` has two partitions."""
    broker.create_topic("t", partitions=2)
    if request.param == "embedded":
        yield broker
    else:
        with broker.listen() as listener:
            yield f"kafka://{listener.bootstrap}"
