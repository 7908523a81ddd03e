"""A recorded run can be made again on the same log, and a difference is found where it begins."""

import pytest

import fletchlog as fl
from fletchlog.explain import explanation, parting

CONFIGS = [
    {"fletchlog.consumer.version": release, "max.poll.records": most, "fletchlog.fetch.order": order, **group}
    for release, most in (("2.6", 7), ("3.1", 10), ("3.9", 11), ("4.1", 30), ("4.3", 7))
    for order in ("partition", "kip-387")
    for group in ({}, {"group.id": "g"})
]


def record(broker, config, act, *, subscribe=False):
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "fletchlog.trace": True, "enable.auto.commit": False, **config}) as consumer:
        if subscribe:
            consumer.subscribe(["orders", "payments"])
        else:
            consumer.assign([(topic, p) for topic in ("payments", "orders") for p in (2, 0, 1)])
        act(consumer)
        return consumer.trace().to_pyarrow()


def drain(consumer):
    while len(consumer.poll(timeout_ms=100)):
        pass


def moves(consumer):
    for _ in range(3):
        consumer.poll()
    consumer.seek(("orders", 1), 3)
    consumer.pause([("payments", 0), ("orders", 0)])
    for _ in range(5):
        consumer.poll(timeout_ms=100)
    consumer.resume([("payments", 0)])
    consumer.seek_to_beginning([("payments", 1)])
    drain(consumer)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(str(v) for v in c.values()))
@pytest.mark.parametrize("act", [drain, moves])
def test_the_same_log_gives_the_same_run(small_broker, config, act):
    trace = record(small_broker, config, act)
    again = fl.explain.replay(trace, small_broker)
    assert again.same, str(again)
    assert again.replayed.polls == again.recorded.polls
    assert sum(run.count for runs in again.recorded.polls for run in runs) >= 90


def test_a_subscription_is_replayed_from_the_offsets_it_began_with(small_broker):
    config = {"group.id": "g", "max.poll.records": 7}
    with fl.Consumer(small_broker, {"auto.offset.reset": "earliest", **config}) as first:
        first.subscribe(["orders", "payments"])
        for _ in range(6):
            first.poll()
        first.commit()
    trace = record(small_broker, config, drain, subscribe=True)
    begun = explanation(trace).polls[0][0]
    again = fl.explain.replay(trace, small_broker)
    assert again.same, str(again)
    assert sum(run.count for runs in again.replayed.polls for run in runs) == 180 - 42
    assert next(runs[0] for runs in again.replayed.polls if runs) == begun


@pytest.mark.parametrize("release", ["2.6", "4.3"])
def test_calls_of_a_rebalance_callback_are_made_in_a_callback(small_broker, release):
    config = {"auto.offset.reset": "earliest", "fletchlog.trace": True, "group.id": "g", "max.poll.records": 9, "fletchlog.consumer.version": release}
    with fl.Consumer(small_broker, config) as consumer:
        consumer.subscribe(["orders"], on_assigned=lambda _: consumer.seek(("orders", 1), 20))
        drain(consumer)
        trace = consumer.trace().to_pyarrow()
    again = fl.explain.replay(trace, small_broker)
    assert again.same, str(again)
    assert sum(run.count for runs in again.replayed.polls for run in runs) == 70


def test_a_log_that_has_grown_is_refused(small_broker):
    trace = record(small_broker, {"max.poll.records": 7}, drain)
    with fl.Producer(small_broker) as producer:
        producer.send("orders", value=b"more", partition=1)
    with pytest.raises(fl.errors.ReplayRefusedError, match="the log is not what it was: the runs part at poll 1") as refused:
        fl.explain.replay(trace, small_broker)
    assert "orders-1 (30 records in 1 batch)" in str(refused.value)
    assert "orders-1 (31 records in 2 batches)" in str(refused.value)


@pytest.mark.slow
def test_records_appended_while_the_run_was_recorded_are_refused(small_broker):
    def late(consumer):
        drain(consumer)
        with fl.Producer(small_broker) as producer:
            producer.send("orders", value=b"more", partition=1)
        drain(consumer)

    trace = record(small_broker, {}, late)
    with pytest.raises(fl.errors.ReplayRefusedError, match="the log is not what it was"):
        fl.explain.replay(trace, small_broker)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_log_that_has_lost_records_is_refused(small_broker, reset):
    trace = record(small_broker, {"auto.offset.reset": reset}, drain)
    assert fl.explain.replay(trace, small_broker).same
    if reset == "earliest":
        small_broker.delete_records("payments", 2, 5)
    else:
        with fl.Producer(small_broker) as producer:
            producer.send("payments", value=b"more", partition=2)
    with pytest.raises(fl.errors.ReplayRefusedError, match="the log is not what it was"):
        fl.explain.replay(trace, small_broker)


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_run_with_other_members_is_refused(small_broker, assignor):
    config = {"group.id": "g", "partition.assignment.strategy": assignor, "auto.offset.reset": "earliest", "fletchlog.trace": True}
    with fl.Consumer(small_broker, config) as one, fl.Consumer(small_broker, config) as two:
        one.subscribe(["orders", "payments"])
        drain(one)
        two.subscribe(["orders", "payments"])
        shared = lambda: two.assignment() and len(one.assignment()) + len(two.assignment()) == 6  # noqa: E731
        for _ in range(200):
            if shared():
                break
            one.poll(timeout_ms=50)
            two.poll(timeout_ms=50)
        assert shared()
        with pytest.raises(fl.errors.ReplayRefusedError, match="the assignment changed in poll"):
            fl.explain.replay(one.trace(), small_broker)
        with pytest.raises(fl.errors.ReplayRefusedError, match="did not have"):
            fl.explain.replay(two.trace(), small_broker)


def test_a_directory_is_replayed_without_being_written(tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("orders", partitions=2)
        with fl.Producer(broker) as producer:
            for i in range(100):
                producer.send("orders", value=b"x", partition=i % 2)
        explained = fl.explain.polls(broker, ["orders"], {"max.poll.records": 9}, polls=30)
    assert fl.explain.replay(explained.trace, tmp_path / "data").same


def test_a_trace_that_does_not_begin_with_the_consumer_is_refused(small_broker):
    trace = record(small_broker, {}, drain)
    with pytest.raises(fl.errors.InvalidArgumentError, match="does not begin"):
        fl.explain.replay(trace.slice(20), small_broker)


def test_two_runs_part_where_they_first_decide_otherwise(small_broker):
    def explained(release, **config):
        return fl.explain.polls(small_broker, ["orders", "payments"], {"max.poll.records": 7, "fletchlog.consumer.version": release, **config}, polls=40)

    assert parting(explained("2.6").story, explained("3.0").story) is None
    found = parting(explained("2.6").story, explained("4.3").story)
    # the first partition is used up in poll 5: 2.6 asks for it at once, 4.3 waits for the others of its node
    assert found.poll == 5
    assert "node" in found.first or "buffered" in found.first
    shorter = fl.explain.polls(small_broker, ["orders", "payments"], {"max.poll.records": 7}, polls=3)
    found = parting(explained("2.6").story, shorter.story)
    assert (found.poll, found.second) == (4, None)
