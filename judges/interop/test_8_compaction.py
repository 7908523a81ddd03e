"""Part 8: a real broker goes on with a directory that fletchlog has compacted, its own cleaner included, and fletchlog after it."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl

from . import generate, kafka
from .conftest import CASES
from .kraft import Kraft, cluster_of, strays
from .rows import Row, ours, text, theirs
from .test_2_broker import Committed, check_offsets, commit_some

PART = "8 compaction, a real broker"
TOPICS = 8
RUNS = range(max(1, CASES // 100))
ISOLATIONS = ["read_uncommitted", "read_committed"]
# every log is due for the broker's cleaner once a segment is closed and anything in it is dirty
EAGER = {"min.cleanable.dirty.ratio": "0.0001"}
CLEANER = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "50"}
Rows = dict[tuple[str, int], list[Row]]
# topic, partition, key -> offset, value
Newest = dict[tuple[str, int, str], tuple[int, str]]


def newest(rows: Rows) -> Newest:
    """The table that a compacted log stands for: what has a value now. Which tombstones are still there is a question of time."""
    found = {(*place, row[3]): (row[0], row[4]) for place, of in rows.items() for row in of}
    return {key: at for key, at in found.items() if at[1] != "-"}


def eager(directory: Path, release: str) -> str:
    """The topics of a directory, as the broker's cleaner likes them."""
    size = "segment.bytes" if release.startswith("3.") else "internal.segment.bytes"
    with fl.Broker(directory, read_only=True) as broker:
        topics = broker.topics(include_internal=True)
    config = {**EAGER, size: "2000"}
    return cluster_of(directory) + "".join(f"config {topic} {key} {value}\n" for topic in topics for key, value in config.items())


def clean(broker: fl.Broker) -> int:
    """Every topic, Kafka's own included, up to its end. Returns how many records went."""
    done = [one for topic in broker.topics(include_internal=True) for one in broker.clean_topic(topic, force=True)]
    return sum(one.messages_read - one.messages_written for one in done)


def transactions(broker: fl.Broker) -> list[str]:
    """In the words of `Transactions`."""
    return [f"{one.transactional_id} {one.state} {one.producer_id} {one.producer_epoch} {one.timeout_ms}" for one in broker.transactions()]


def their_transactions(broker: Kraft) -> list[str]:
    return kafka.run("admin", [("kafka-clients", kafka.NEWEST)], "Transactions", broker.address).splitlines()


def checkpoint(directory: Path) -> dict[tuple[str, int], int]:
    """How far each log is clean."""
    path = directory / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {(topic, int(partition)): int(offset) for topic, partition, offset in (line.split(" ") for line in lines)}


def write_on(rng: random.Random, places: list[tuple[str, int]], committed: Committed) -> tuple[str, dict[tuple[str, int, str], str]]:
    """For `Write`: values and tombstones, plain and in transactions that carry a group's offsets, block by block so that the last
    of each key is known. Returns the lines and what is there afterwards."""
    lines = ["producer plain compression.type=lz4", "producer txn transactional.id=their-txn batch.size=300"]
    table = {}
    for topic, partition in places:
        for who in ("plain", "txn", "txn", "plain"):
            commit = rng.random() < 0.7
            if who == "txn":
                offset = rng.randrange(10**6)
                lines += ["begin txn", f"txnoffset txn their-group {topic} {partition} {offset}"]
            for _ in range(40):
                key = text(b"key-%d" % rng.randrange(40))
                value = text(None if rng.random() < 0.1 else rng.randbytes(rng.choice([1, 40])))
                lines.append(f"send {who} {topic} {partition} -1 {key} {value}")
                if who == "plain" or commit:
                    table[topic, partition, key] = value
            if who == "plain":
                lines.append("flush plain")
            else:
                lines.append("commit txn" if commit else "abort txn")
                if commit:
                    committed["their-group", topic, partition] = (offset, -1, "")
    return "".join(line + "\n" for line in lines), table


def rested(directory: Path, before: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """How far each log is clean once the cleaner has done something, and nothing for a while."""
    deadline = time.monotonic() + 90
    seen, since = before, time.monotonic()
    while seen == before or time.monotonic() < since + 3:
        assert time.monotonic() < deadline, "the broker's cleaner does not come to rest"
        time.sleep(0.1)
        now = checkpoint(directory)
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


def read_at_rest(broker: Kraft, before: dict[tuple[str, int], int]) -> tuple[dict[tuple[str, int], int], dict[str, Rows]]:
    """How far each log is clean when the cleaner has nothing more to do, and what a consumer of each isolation reads then."""
    for _ in range(5):
        clean_now = rested(broker.directory, before)
        rows = {isolation: theirs(broker.address, kafka.NEWEST, isolation) for isolation in ISOLATIONS}
        if checkpoint(broker.directory) == clean_now:
            return clean_now, rows
    raise AssertionError("the broker's cleaner does not come to rest")


@pytest.mark.parametrize("release", kafka.SERVERS)
@pytest.mark.parametrize("number", RUNS)
def test_a_broker_goes_on_with_what_we_have_compacted(number: int, release: str, seed: int, scratch: Path, count: Callable[..., None]) -> None:
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    rng = random.Random(f"{seed} compaction {number} {release}")
    directory, copy = scratch / "data", scratch / "twin"
    for _ in generate.write(directory, rng.randrange(10**6), TOPICS, compacted=True):
        pass
    committed = commit_some(directory, rng)
    table = newest(ours(directory, "read_committed"))
    with fl.Broker(directory, create=True) as broker:
        known = transactions(broker)
        held = {place for one in broker.transactions() if one.state == "Ongoing" for place in one.partitions}
        gone = clean(broker)
        assert transactions(broker) == known
    with fl.Broker(directory) as broker:
        assert transactions(broker) == known
    wanted = {isolation: ours(directory, isolation) for isolation in ISOLATIONS}
    assert newest(wanted["read_committed"]) == table
    shutil.copytree(directory, copy)
    clean_before = checkpoint(directory)
    with Kraft(release, directory, scratch, eager(copy, release), CLEANER) as broker:
        for isolation in ISOLATIONS:
            assert theirs(broker.address, kafka.NEWEST, isolation) == wanted[isolation], isolation
        assert their_transactions(broker) == known
        check_offsets(broker, committed)
        # what they write makes their cleaner go over our segments
        places = [place for place in wanted["read_uncommitted"] if place not in held]
        lines, written = write_on(rng, places, committed)
        kafka.run("clients", [("kafka-clients", kafka.NEWEST)], "Write", broker.address, stdin=lines)
        clean_after, after = read_at_rest(broker, clean_before)
        known = their_transactions(broker)
    cleaned = {place for place, offset in clean_after.items() if offset > clean_before.get(place, 0)}
    values = {key: value for key, (_, value) in table.items()} | written
    values = {key: value for key, value in values.items() if value != "-"}
    assert {key: value for key, (_, value) in newest(after["read_committed"]).items()} == values
    assert len(cleaned & set(places)) > len(places) // 2, cleaned
    assert {"__transaction_state", "__consumer_offsets"} <= {topic for topic, _ in cleaned}
    # back to us: what they have cleaned, and then cleaned once more by us
    with fl.Broker(directory) as broker:
        for isolation in ISOLATIONS:
            assert ours(directory, isolation) == after[isolation], isolation
        assert transactions(broker) == known
        gone_again = clean(broker)
        assert transactions(broker) == known
        check_committed(broker, committed)
    assert newest(ours(directory, "read_committed")) == newest(after["read_committed"])
    assert strays(directory) == []
    assert gone > 0 < gone_again
    sums = {"records": sum(map(len, wanted["read_uncommitted"].values())), "records_cleaned_away": gone + gone_again}
    count(PART, broker_starts=1, partitions=len(wanted["read_uncommitted"]), cleaned_by_the_broker=len(cleaned), transactions=len(known), **sums)


def check_committed(broker: fl.Broker, committed: Committed) -> None:
    """Our groups have exactly these offsets."""
    for group in {group for group, _, _ in committed}:
        wanted = {(topic, partition): value for (of, topic, partition), value in committed.items() if of == group}
        with fl.Consumer(broker, {"group.id": group}) as consumer:
            for place, (offset, epoch, note) in wanted.items():
                at = consumer.committed(place)
                assert at is not None
                assert (at.offset, -1 if at.leader_epoch is None else at.leader_epoch, at.metadata) == (offset, epoch, note), (group, place)
