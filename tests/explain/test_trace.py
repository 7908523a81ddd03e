"""What a trace holds, and that it can be kept."""

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog.explain import explanation, tell


def test_a_trace_has_the_programs_calls_in_their_order(small_broker):
    with fl.Consumer(small_broker, {"auto.offset.reset": "earliest", "fletchlog.trace": True, "max.poll.records": 7}) as consumer:
        consumer.assign([("orders", 2), ("orders", 0)])
        consumer.poll()
        consumer.seek(("orders", 0), 5)
        consumer.pause([("orders", 2)])
        consumer.resume([("orders", 2)])
        consumer.seek_to_end()
        consumer.seek_to_beginning([("orders", 2)])
        consumer.unsubscribe()
        trace = consumer.trace().to_pyarrow()
    story = tell(trace)
    zero, two = (story.lanes.index(("orders", p)) for p in (0, 2))
    calls = [step[1:] for steps in story.polls for step in steps if step[0] == "call"]
    assert calls[0] == ("assign", [(two, -1), (zero, -1)], -1)
    assert calls[1:4] == [("seek", [(zero, 5)], -1), ("pause", [(two, -1)], -1), ("resume", [(two, -1)], -1)]
    assert calls[4][0] == "seek_to_end"
    assert sorted(calls[4][1]) == [(zero, -1), (two, -1)]
    assert calls[5:] == [("seek_to_beginning", [(two, -1)], -1), ("unsubscribe", [], -1)]
    assert len(story.polls) == 2
    assert story.polls[0][0][0] == "call"


def test_a_seek_with_a_leader_epoch_is_replayed_with_it(small_broker):
    with fl.Consumer(small_broker, {"fletchlog.trace": True, "max.poll.records": 5}) as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek(("orders", 0), fl.types.OffsetAndMetadata(7, "", 0))
        assert consumer.poll().runs()[0].first_offset == 7
        trace = consumer.trace().to_pyarrow()
        with pytest.raises(TypeError, match="an OffsetAndMetadata or a datetime"):
            consumer.seek(("orders", 0), "7")
    assert ("call", "seek", [(0, 7)], 0) in tell(trace).polls[0]
    assert fl.explain.replay(trace, small_broker).same


def test_a_call_that_was_refused_is_not_in_the_trace(small_broker):
    with fl.Consumer(small_broker, {"fletchlog.trace": True}) as consumer:
        consumer.assign([("orders", 0)])
        with pytest.raises(fl.errors.IllegalStateError):
            consumer.seek(("orders", 1), 3)
        with pytest.raises(fl.errors.IllegalStateError):
            consumer.pause([("orders", 0), ("orders", 1)])
        assert [row["text"] for row in consumer.trace().to_pyarrow().to_pylist() if row["kind"] == "call"] == ["assign"]


@pytest.mark.parametrize("release", ["2.6", "4.3"])
def test_the_assignment_is_in_the_story_in_request_order_and_once(small_broker, release):
    config = {"group.id": "g", "auto.offset.reset": "earliest", "fletchlog.trace": True, "fletchlog.consumer.version": release}
    with fl.Consumer(small_broker, config) as consumer:
        consumer.subscribe(["payments", "orders"])
        consumer.poll()
        first = consumer.assignment()
        for _ in range(8):
            consumer.poll(timeout_ms=50)
        story = tell(consumer.trace().to_pyarrow())
    orders = [step[1] for steps in story.polls for step in steps if step[0] == "order"]
    assert len(orders) == 1
    assert sorted(orders[0]) == list(range(6))
    if release == "4.3":
        assert [story.lanes[lane] for lane in orders[0]] == sorted(first)
    assert story.polls[0] == [("call", "subscribe", [("payments", -1), ("orders", -1)], -1)]


def test_properties_are_in_the_metadata(small_broker):
    with fl.Consumer(small_broker, {"fletchlog.trace": True, "max.poll.records": 7}) as consumer:
        consumer.assign([("orders", 0)])
        explained = explanation(consumer.trace())
    assert explained.config == {"fletchlog.trace": "true", "max.poll.records": "7"}
    with fl.Producer(small_broker, {"fletchlog.trace": True}) as producer:
        assert producer.trace().to_pyarrow().schema.metadata[b"fletchlog.trace"] == b"producer"


def test_a_trace_survives_a_file(small_broker, tmp_path):
    explained = fl.explain.polls(small_broker, ["orders"], {"max.poll.records": 7}, polls=20)
    fl.explain.save_trace(explained.trace, tmp_path / "t.arrow")
    again = explanation(fl.explain.load_trace(tmp_path / "t.arrow"), ends=explained.ends)
    assert again.story == explained.story
    assert again.config == explained.config
    assert again.text() == explained.text()
    assert again.text(full=True) == explained.text(full=True)


def test_what_is_no_trace_is_refused(tmp_path, small_broker):
    (tmp_path / "x").write_bytes(b"no arrow file at all")
    with pytest.raises(fl.errors.InvalidArgumentError, match="no saved trace"):
        fl.explain.load_trace(tmp_path / "x")
    with pytest.raises(fl.errors.SchemaError, match="no trace"):
        fl.explain.save_trace(pa.table({"a": [1]}), tmp_path / "y")
    with pytest.raises(fl.errors.SchemaError, match="no column poll"):
        tell(pa.table({"a": [1]}))
    with fl.Consumer(small_broker) as consumer, pytest.raises(fl.errors.IllegalStateError, match=r"fletchlog\.trace"):
        consumer.explain()


def test_exclusions_are_reported_as_changes_that_add_up(small_broker):
    explained = fl.explain.polls(small_broker, ["orders", "payments"], {"max.poll.records": 7}, polls=40)
    left_out, seen = {}, []
    for steps in explained.story.polls:
        for step in steps:
            if step[0] == "skip":
                _, why, came, went = step
                now = left_out.setdefault(why, set())
                assert came or went
                assert not now & set(came)
                assert set(went) <= now
                left_out[why] = (now | set(came)) - set(went)
                seen.append(why)
        reasons = [lane for lanes in left_out.values() for lane in lanes]
        assert len(reasons) == len(set(reasons)), "left out for two reasons"
    assert len(seen) > 5


@pytest.mark.parametrize("release", ["2.6", "3.1", "3.6", "3.9", "4.1", "4.3"])
@pytest.mark.parametrize("order", ["partition", "kip-387"])
def test_a_partition_is_either_asked_for_or_reported_as_left_out(small_broker, release, order):
    config = {"fletchlog.consumer.version": release, "fletchlog.fetch.order": order, "max.poll.records": 7, "max.partition.fetch.bytes": 100}
    explained = fl.explain.polls(small_broker, ["orders", "payments"], config, polls=60)
    buffered, left_out, seen = set(), {}, set()
    for step in (step for steps in explained.story.polls for step in steps):
        match step:
            case ("skip", why, came, went):
                left_out[why] = (left_out.get(why, set()) | set(came)) - set(went)
                seen |= {why, "no longer left out" if went else why}
            case ("ask", _, _, asked, _):
                assert not {lane for lane, _ in asked} & set().union(*left_out.values())
                # what is buffered when a request is made was reported as left out
                assert buffered == left_out.get("the last fetch is still buffered", set())
            case ("answer", _, _, parts, _):
                buffered |= {part[0] for part in parts}
            case ("drained" | "drop", lane, _):
                buffered.discard(lane)
    assert {"no position yet", "the last fetch is still buffered", "no longer left out"} <= seen
    assert ("the leader also leads a buffered partition" in seen) == (release in {"4.1", "4.3"})


def test_idle_partitions_cost_a_trace_nothing(small_broker):
    small_broker.create_topic("many", partitions=200)
    with fl.Consumer(small_broker, {"fletchlog.trace": True, "auto.offset.reset": "earliest"}) as consumer, fl.Producer(small_broker) as producer:
        consumer.assign([("many", p) for p in range(200)])
        consumer.poll(timeout_ms=10)
        consumer.poll(timeout_ms=10)
        before = len(consumer.trace())
        for number in range(50):
            producer.send("many", value=b"v", partition=number % 3).result()
            while not len(consumer.poll(timeout_ms=1000)):
                pass
        assert len(consumer.trace()) - before < 50 * 30
