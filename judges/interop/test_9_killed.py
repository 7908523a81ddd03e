"""Part 9: what a killed fletchlog process leaves, a real broker recovers to the same records as fletchlog does."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl

from . import kafka, wreck
from .conftest import CASES
from .kraft import Kraft, cluster_of, meta_properties, strays
from .rows import Row, ours, read_all, theirs
from .test_2_broker import Committed, check_offsets
from .test_8_compaction import their_transactions, transactions

PART = "9 killed, a real broker's recovery"
# log directories of one broker, each of a process of its own
DIRECTORIES = max(2, CASES // 25)


def committed_of(broker: fl.Broker) -> Committed:
    """Everything that the groups of the killed process have."""
    found = {}
    places = [(topic, p.partition) for topic in broker.topics() for p in broker.describe_topic(topic).partitions]
    for group in wreck.GROUPS:
        with fl.Consumer(broker, {"group.id": group}) as consumer:
            for place, at in consumer.committed(places).items():
                if at is not None:
                    found[group, place.topic, place.partition] = (at.offset, -1 if at.leader_epoch is None else at.leader_epoch, at.metadata)
    return found


@pytest.mark.parametrize("release", kafka.SERVERS)
def test_both_recoveries_find_the_same(release: str, seed: int, scratch: Path, count: Callable[..., None]) -> None:
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    names = [wreck.MAIN, *(f"side{number}" for number in range(1, DIRECTORIES))]
    directories = [scratch / name for name in names]
    for directory in directories:
        wreck.kill_one(directory, f"{seed} {release} {directory.name}", directory.name)
    cluster = meta_properties(directories[0])["cluster.id"]
    wanted: dict[str, dict[tuple[str, int], list[Row]]] = {"read_uncommitted": {}, "read_committed": {}}
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    known, lines = [], ""
    committed: Committed = {}
    for directory in directories:
        properties = directory / "meta.properties"
        properties.write_text(properties.read_text().replace(meta_properties(directory)["cluster.id"], cluster))
        copy = shutil.copytree(directory, directory.with_name(f"{directory.name}-copy"))
        with fl.Broker(copy) as broker:
            for topic in broker.topics():
                for p in broker.describe_topic(topic).partitions:
                    ranges[topic, p.partition] = (p.log_start_offset, p.high_watermark)
            if directory.name == wreck.MAIN:
                known, committed = transactions(broker), committed_of(broker)
        for isolation, rows in wanted.items():
            rows.update(ours(copy, isolation))
        lines += cluster_of(copy)
    config = {"log.dirs": ",".join(map(str, directories))}
    with Kraft(release, directories[0], scratch, lines, config) as broker:
        deadline = time.monotonic() + 60
        while theirs(broker.address, kafka.NEWEST, "read_committed") != wanted["read_committed"]:
            assert time.monotonic() < deadline, "what was decided is carried out in the end"
        rows, their_ranges = read_all(broker.address, kafka.NEWEST, "read_uncommitted")
        assert rows == wanted["read_uncommitted"]
        assert their_ranges == ranges
        assert their_transactions(broker) == known
        check_offsets(broker, committed)
    assert [name for directory in directories for name in strays(directory)] == []
    sizes = {f"records_{isolation}": sum(map(len, rows.values())) for isolation, rows in wanted.items()}
    count(PART, killed_processes=len(directories), partitions=len(ranges), **sizes, transactions=len(known), committed_offsets=len(committed))
