"""Offsets without a record are reported with their reason: as the log was made, so are the gaps."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.explain import polls as explain
from fletchlog.explain import story
from fletchlog.explain.gaps import Gap

COMMITTED = {"isolation.level": "read_committed"}


def gaps_of(broker, config=None, *, polls=50):
    return explain(broker, ["t"], {"max.poll.records": 3} | (config or {}), polls=polls, timeout_ms=200).gaps["t", 0]


def send(broker, *keys, commit=None):
    config = {} if commit is None else {"transactional.id": "tx"}
    with fl.Producer(broker, config) as producer:
        if commit is not None:
            producer.init_transactions()
            producer.begin_transaction()
        for key in keys:
            producer.send("t", value=b"v", key=key.encode(), partition=0)
        producer.flush()  # an abort drops what was not sent
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)()
    # the markers are written after the call returned
    deadline = time.monotonic() + 10
    while any(transaction.state.startswith("Prepare") for transaction in broker.transactions()):
        assert time.monotonic() < deadline


@pytest.fixture
def broker():
    with fl.Broker.in_memory() as opened:
        opened.create_topic("t", config={"cleanup.policy": "compact", "segment.ms": 1})
        yield opened


def test_a_log_without_gaps_has_none(broker):
    send(broker, "a", "b", "c")
    assert gaps_of(broker) == []


def test_what_compaction_removed(broker):
    send(broker, *"abcab")
    send(broker, "z")
    broker.clean_topic("t", force=True)
    assert gaps_of(broker) == [Gap(0, 1, "compacted")]


def test_markers_and_aborted_records(broker):
    send(broker, "a", "b", commit=True)
    send(broker, "c", "d", commit=False)
    send(broker, "e")
    assert gaps_of(broker) == [Gap(2, 2, "control"), Gap(5, 5, "control")]
    assert gaps_of(broker, COMMITTED) == [Gap(2, 2, "control"), Gap(3, 4, "aborted"), Gap(5, 5, "control")]


def test_the_gap_behind_the_last_record_handed_out_is_known(broker):
    send(broker, "a", "b", "c", commit=True)
    send(broker, *"defghi")
    assert gaps_of(broker, polls=1) == [Gap(3, 3, "control")]
    send(broker, "j", commit=True)
    assert gaps_of(broker)[-1] == Gap(11, 11, "control")


def test_read_committed_ends_at_an_open_transaction(broker):
    send(broker, "a")
    with fl.Producer(broker, {"transactional.id": "tx"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", value=b"v", key=b"b", partition=0)
        producer.flush()
        send(broker, "b")
        assert gaps_of(broker) == []
        assert gaps_of(broker, COMMITTED) == [Gap(1, 2, "open")]
        producer.abort_transaction()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.text("abcd", min_size=1, max_size=5), st.sampled_from([None, True, False])), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_records_and_gaps_are_the_whole_log(batches, cleaned, committed):
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", config={"cleanup.policy": "compact", "segment.ms": 1})
        for keys, commit in batches:
            send(broker, *keys, commit=commit)
        if cleaned:
            broker.clean_topic("t", force=True)
        explained = explain(broker, ["t"], {"max.poll.records": 2} | (COMMITTED if committed else {}), polls=200, timeout_ms=200)
        isolation = "read_committed" if committed else "read_uncommitted"
        offsets = broker.scan("t", isolation_level=isolation).to_pyarrow()["offset"].to_pylist()
        missing = [offset for gap in explained.gaps["t", 0] for offset in range(gap.first, gap.last + 1)]
        assert sorted(offsets + missing) == list(range(*explained.ends["t", 0]))
        if not cleaned:
            assert sum(gap.why == "control" for gap in explained.gaps["t", 0]) == sum(commit is not None for _, commit in batches)
        assert committed or not any(gap.why == "aborted" for gap in explained.gaps["t", 0])


def test_the_page_has_them_and_a_trace_alone_does_not(broker):
    send(broker, "a", commit=True)
    explained = explain(broker, ["t"])
    assert story([explained])["gaps"] == [[[1, 1, "control"]]]
    assert story([fl.explain.explanation(explained.trace)])["gaps"] == [None]
