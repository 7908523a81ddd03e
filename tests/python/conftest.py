import pytest


@pytest.fixture(params=["embedded", "remote"])
def place(request, broker):
    """The broker, and what a client of it is given."""
    if request.param == "embedded":
        yield broker, broker
        return
    with broker.listen() as listener:
        yield broker, f"kafka://{listener.bootstrap}"
