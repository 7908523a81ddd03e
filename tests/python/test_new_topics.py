"""`create_topic(exist_ok=True)` and `create_topics`, on a broker and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fletchlog as fl
from fletchlog.admin import NewTopic


@pytest.fixture(params=["broker", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[fl.Broker | fl.Cluster]:
    with fl.Broker.in_memory(nodes=2) as broker:
        if request.param == "broker":
            yield broker
        else:
            with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
                yield cluster


def partitions(place: fl.Broker | fl.Cluster, topic: str) -> int:
    return len(place.describe_topic(topic).partitions)


def test_a_program_may_create_its_topic_at_every_start(place: fl.Broker | fl.Cluster) -> None:
    for _ in range(2):
        place.create_topic("t", 3, config={"retention.ms": 5000}, exist_ok=True)
    place.create_topic("t", 3, config={"retention.ms": 1}, exist_ok=True)
    assert partitions(place, "t") == 3
    assert place.describe_topic("t").config == {"retention.ms": "5000"}
    with pytest.raises(fl.errors.TopicAlreadyExistsError, match="exists; exist_ok=True accepts that"):
        place.create_topic("t", 3)


def test_another_number_of_partitions_is_an_error(place: fl.Broker | fl.Cluster) -> None:
    place.create_topic("t", 3)
    for wanted in (1, 4, 0):
        with pytest.raises(fl.errors.InvalidPartitionsError, match=f"topic t exists with 3 partitions, not {wanted}; .* create_partitions"):
            place.create_topic("t", wanted, exist_ok=True)
    assert partitions(place, "t") == 3


def test_exist_ok_hides_no_other_error(place: fl.Broker | fl.Cluster) -> None:
    with pytest.raises(fl.errors.InvalidTopicError):
        place.create_topic("no/name", exist_ok=True)
    with pytest.raises(fl.errors.KafkaError):
        place.create_topic("t", config={"no.such": 1}, exist_ok=True)
    with pytest.raises(fl.errors.InvalidPartitionsError):
        place.create_topic("t", 0, exist_ok=True)
    assert place.topics() == []


def test_topics_are_created_together(place: fl.Broker | fl.Cluster) -> None:
    place.create_topics(["a", ("b", 3), NewTopic("c", 2, {"cleanup.policy": "compact"}), NewTopic("d", replication_factor=2)])
    assert {topic: partitions(place, topic) for topic in place.topics()} == {"a": 1, "b": 3, "c": 2, "d": 1}
    assert place.describe_topic("c").config == {"cleanup.policy": "compact"}
    place.create_topics([])


def test_each_is_created_or_refused_by_itself(place: fl.Broker | fl.Cluster) -> None:
    place.create_topic("b", 2)
    with pytest.raises(fl.errors.TopicAlreadyExistsError, match="b"):
        place.create_topics(["a", ("b", 2), "no/name", "c"])
    assert place.topics() == ["a", "b", "c"]
    place.create_topics(["a", ("b", 2), "d"], exist_ok=True)
    assert place.topics() == ["a", "b", "c", "d"]
    with pytest.raises(fl.errors.InvalidPartitionsError, match="topic b exists with 2 partitions, not 1"):
        place.create_topics(["a", "b", "e"], exist_ok=True)
    assert place.topics() == ["a", "b", "c", "d", "e"]


def test_one_request_creates_them_all() -> None:
    with fl.Broker.in_memory() as broker, broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        cluster.create_topics([(f"t{number}", 2) for number in range(50)])
        counted = {row["api"]: row["requests"] for row in listener.stats().to_pyarrow().to_pylist()}
        assert counted["CreateTopics"] == 1
        assert len(broker.topics()) == 50


@pytest.mark.parametrize(
    ("topics", "error", "text"),
    [
        ("abc", TypeError, "expected a list of topics, got str 'abc'"),
        ([5], TypeError, "expected the name of a topic, or NewTopic"),
        ([("a", "b")], TypeError, "expected the name of a topic, or NewTopic"),
        ([()], TypeError, "expected the name of a topic, or NewTopic"),
        (["a", ("a", 2)], fl.errors.InvalidArgumentError, "topic a is given twice"),
        ([NewTopic("a", config=5)], TypeError, "a configuration is a dict"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_list_of_topics_is_refused(place: fl.Broker | fl.Cluster, topics: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        place.create_topics(topics)  # type: ignore[arg-type]
    assert place.topics() == []


def test_a_reader_creates_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("d")
    with fl.Broker(path) as broker:
        broker.create_topic("t")
    with fl.Broker(path, read_only=True) as broker, pytest.raises(fl.errors.ReadOnlyError):
        broker.create_topics(["t"], exist_ok=True)
