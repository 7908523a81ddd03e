"""Part 7: a real broker reads the transactions that fletchlog left, and ends what was decided but not done."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl

from . import kafka
from .dump import TOOL
from .kraft import Kraft, cluster_of, format_directory
from .rows import ours, theirs

PART = "7 transactions, a real broker"
GROUP = "group"


def producer(broker: fl.Broker, name: str) -> fl.Producer:
    made = fl.Producer(broker, {"transactional.id": name, "transaction.timeout.ms": 900_000})
    made.init_transactions()
    return made


def cut(log: Path, batches: int) -> None:
    """Takes the last batches of a log away, as if they had never been written."""
    data = log.read_bytes()
    starts, at = [], 0
    while at + 12 <= len(data) and (length := struct.unpack_from(">i", data, at + 8)[0]) > 0:
        starts.append(at)
        at += 12 + length
    log.write_bytes(data[: starts[-batches]])


def first_segment(directory: Path, prefix: str) -> list[Path]:
    return sorted(directory.glob(f"{prefix}-*/00000000000000000000.log"))


def write(directory: Path) -> None:
    """Committed, aborted and open transactions, and one that is decided but lacks a marker and its end."""
    with fl.Broker(directory, create=True) as broker, fl.Consumer(broker, {"group.id": GROUP}) as consumer:
        for topic in ("source", "decided", "open"):
            broker.create_topic(topic, partitions=2)
        group = consumer.group_metadata()
        assert group is not None
        plain = producer(broker, "plain")
        for number in range(6):
            plain.begin_transaction()
            for i in range(5):
                plain.send("source", value=b"%d.%d" % (number, i), partition=i % 2)
            plain.flush()
            if number % 3 == 2:
                plain.abort_transaction()
            else:
                plain.send_offsets_to_transaction({("source", 0): number}, group)
                plain.commit_transaction()
        with producer(broker, "decided") as decided, decided.transaction():
            for i in range(4):
                decided.send("decided", value=b"%d" % i, partition=i % 2)
        left = producer(broker, "open")
        left.begin_transaction()
        left.send("open", value=b"open", partition=0).result()
        # as a killed process leaves it: nothing is closed but the files
        shutil.copytree(directory, directory.with_name("killed"))
        left.abort_transaction()
        plain.close()


@pytest.mark.parametrize("release", kafka.SERVERS)
def test_a_broker_ends_what_was_decided_and_keeps_what_is_open(release: str, scratch: Path, count: Callable[..., None]) -> None:
    write(scratch / "data")
    directory, copy = scratch / "killed", scratch / "twin"
    # the decision of `decided` is written: without CompleteCommit and the marker of partition 1 a broker has to go on with it
    states = first_segment(directory, "__transaction_state")
    for log in states:
        if b"decided" in log.read_bytes():
            cut(log, 1)
    cut(directory / "decided-1" / "00000000000000000000.log", 1)
    for log in states:
        printed = kafka.run("server", kafka.server(release), TOOL[release], "--transaction-log-decoder", "--files", str(log))
        assert "transactionalId" in printed or "transactional_id" in printed.lower(), printed
        assert "error" not in printed.lower(), printed
    shutil.copytree(directory, copy)
    with fl.Broker(copy) as twin:
        known = {one.transactional_id: one.state for one in twin.transactions()}
        assert known == {"plain": "CompleteAbort", "decided": "CompleteCommit", "open": "Ongoing"}
    wanted = ours(copy, "read_committed")
    assert sum(map(len, wanted.values())) == 20 + 4
    with Kraft(release, directory, scratch, cluster_of(copy)) as broker:
        deadline = time.monotonic() + 60
        while (seen := theirs(broker.address, kafka.NEWEST, "read_committed")) != wanted:
            assert time.monotonic() < deadline, (seen, wanted)
        offsets = kafka.run("clients", [("kafka-clients", kafka.NEWEST)], "Offsets", broker.address, GROUP)
        assert f"admin {GROUP} source 0 4 -1 " in offsets, offsets
    # and back: what the broker has written into __transaction_state is understood, and its open transaction ended
    with fl.Broker(directory, create=True) as back:
        states_of = {one.transactional_id: (one.state, one.producer_epoch) for one in back.transactions()}
        assert {name: state for name, (state, _) in states_of.items()} == known
        with producer(back, "open") as heir:
            assert heir.producer_id is not None
            assert heir.producer_id[1] == states_of["open"][1] + 2
        assert ours(directory, "read_committed") == wanted
    count(PART, broker_starts=1, transactions=8, records=24)


def test_where_a_java_producer_waits_for_ever_ours_ends(scratch: Path, count: Callable[..., None]) -> None:
    """docs/differences.md: offsets that are refused for ever hold Java's abort and its close() back."""
    with Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch) as broker:
        printed = kafka.run("clients", [("kafka-clients", kafka.NEWEST)], "Stuck", broker.address)
    assert printed.splitlines() == [
        "sendOffsetsToTransaction TimeoutException",
        "abortTransaction TimeoutException",
        "beginTransaction IllegalStateException",
        "close waits",
        "close(1s) ok",
    ]
    with fl.Broker.in_memory() as broker, fl.Consumer(broker, {"group.id": GROUP}) as consumer:
        group = consumer.group_metadata()
        assert group is not None
        stuck = fl.Producer(broker, {"transactional.id": "stuck", "max.block.ms": 1000})
        stuck.init_transactions()
        stuck.begin_transaction()
        with pytest.raises(fl.errors.KafkaTimeoutError):
            stuck.send_offsets_to_transaction({("missing", 0): 1}, group)
        stuck.abort_transaction()
        stuck.begin_transaction()
        stuck.close()
    count(PART, broker_starts=1)
