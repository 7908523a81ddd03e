"""`fletchlog groups`: where groups go on, and how to set it."""

import pytest

import fletchlog as fl


@pytest.fixture
def data(tmp_path):
    """A topic of two partitions with ten records each, of which group g has read three of the first."""
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for number in range(20):
                producer.send("t", value=b"v", partition=number % 2)
        with fl.Consumer(broker, {"group.id": "g"}) as consumer:
            consumer.commit({("t", 0): 3})
    return tmp_path


def test_groups_are_listed_and_described_with_their_lag(cli, data):
    assert cli("groups", "list", data, "--json").json == [{"group": "g", "partitions": 1, "lag": 7}]
    assert cli("groups", "describe", data, "g", "--json").json == [{"topic": "t", "partition": 0, "committed": 3, "end": 10, "lag": 7}]
    assert "committed" in cli("groups", "describe", data, "g").out


def test_a_group_is_reset_to_a_place_and_goes_on_there(cli, data):
    assert "g goes on in t-1 at 10" in cli("groups", "reset", data, "g", "--topic", "t", "--to", "latest").out
    cli("groups", "reset", data, "g", "-t", "t", "--to", "5", "-p", "0")
    rows = cli("groups", "describe", data, "g", "--json").json
    assert [(row["partition"], row["committed"]) for row in rows] == [(0, 5), (1, 10)]
    with fl.Broker(data) as broker, fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        assert [(r.partition, r.offset) for r in consumer.poll(timeout_ms=2000)] == [(0, offset) for offset in range(5, 10)]


def test_a_deleted_group_is_gone(cli, data):
    cli("groups", "delete", data, "g", "--yes")
    assert cli("groups", "list", data).out.strip().endswith("holds no group")
    assert "g" in cli("groups", "describe", data, "g", code=1).err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--to", "yesterday"], "--to wants earliest, latest or an offset"),
        (["--to", "0", "-p", "7"], "t has no partition 7"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(cli, data, words, text):
    assert text in cli("groups", "reset", data, "g", "--topic", "t", *words, code=1).err
