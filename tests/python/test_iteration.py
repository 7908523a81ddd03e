"""`for record in consumer`: record by record; positions and commits only over what was handed out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

import fletchlog as fl

T0 = fl.TopicPartition("t", 0)


@pytest.fixture(params=["embedded", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[fl.Broker | str]:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            for number in range(10):
                producer.send("t", value=b"%d" % number)
        if request.param == "embedded":
            yield broker
        else:
            with broker.listen() as listener:
                yield f"kafka://{listener.bootstrap}"


def consumer(place: fl.Broker | str, **config: object) -> fl.Consumer:
    return fl.Consumer(place, {"group.id": "g", "auto.offset.reset": "earliest", **config})


def test_each_record_comes_once_and_positions_follow_what_was_handed_out(place: fl.Broker | str) -> None:
    with consumer(place, **{"enable.auto.commit": False}) as first:
        first.subscribe(["t"])
        for number, record in enumerate(first):
            assert (record.offset, record.value) == (number, b"%d" % number)
            assert first.position(T0) == number + 1
            if number == 3:
                break
        first.commit()
        # poll goes on behind it
        assert [record.offset for record in first.poll(10_000)] == [4, 5, 6, 7, 8, 9]
    with consumer(place) as second:
        second.subscribe(["t"])
        assert next(second).offset == 4


def test_a_commit_at_close_reaches_what_was_handed_out(place: fl.Broker | str) -> None:
    with consumer(place) as first:
        first.subscribe(["t"])
        assert [next(first).offset for _ in range(3)] == [0, 1, 2]
    with consumer(place) as second:
        assert (second.committed(T0) or fl.types.OffsetAndMetadata(-1, "")).offset == 3


def test_a_seek_in_the_body_decides_the_next_record(place: fl.Broker | str) -> None:
    with consumer(place) as reader:
        reader.assign([T0])
        assert next(reader).offset == 0
        reader.seek(T0, 8)
        assert [next(reader).offset, next(reader).offset] == [8, 9]


def test_ctrl_c_ends_the_wait_for_the_next_record(place: fl.Broker | str) -> None:
    with consumer(place) as reader:
        reader.assign([T0])
        reader.seek_to_end()
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(reader)
        timer.join()
        reader.seek(T0, 9)
        assert next(reader).offset == 9


def test_a_wakeup_ends_it_too(place: fl.Broker | str) -> None:
    with consumer(place) as reader:
        reader.assign([T0])
        reader.seek_to_end()
        reader.wakeup()
        with pytest.raises(fl.errors.WakeupError):
            next(reader)
