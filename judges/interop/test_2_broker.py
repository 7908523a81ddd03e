"""Part 2: a real broker takes a directory that fletchlog wrote, as it is, and goes on where fletchlog stopped."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from tests.support.batches import batch, record

from . import generate, kafka
from .conftest import CASES
from .generate import Acked, write_and_kill
from .kraft import Kraft, cluster_of, strays
from .rows import Row, ours, text, theirs
from .wire import Connection

PART = "2 our directory, a real broker"
TOPICS = 40
DIRECTORIES = range(max(1, CASES // 100))
# group, topic, partition -> offset, leader epoch, metadata
Committed = dict[tuple[str, str, int], tuple[int, int, str]]


def commit_some(directory: Path, rng: random.Random) -> Committed:
    """Commits of several groups, some of them again and again."""
    committed = {}
    with fl.Broker(directory, create=True) as broker:
        places = [(topic, p.partition) for topic in broker.topics() for p in broker.describe_topic(topic).partitions]
        for number in range(5):
            group = f"group-{number}"
            with fl.Consumer(broker, {"group.id": group, "enable.auto.commit": False}) as consumer:
                for _ in range(rng.randrange(1, 6)):
                    chosen = rng.sample(places, rng.randrange(1, 8))
                    at = {place: (rng.randrange(1000), rng.choice([-1, 0]), rng.choice(["", "note", "größe"])) for place in chosen}
                    consumer.commit({place: fl.types.OffsetAndMetadata(offset, note, epoch) for place, (offset, epoch, note) in at.items()})
                    committed.update({(group, *place): value for place, value in at.items()})
    return committed


def check_offsets(broker: Kraft, committed: Committed) -> None:
    """AdminClient and KafkaConsumer find exactly what was committed."""
    groups = sorted({group for group, _, _ in committed})
    printed = kafka.run("clients", [("kafka-clients", kafka.NEWEST)], "Offsets", broker.address, *groups)
    wanted = sorted(
        f"{group} {topic} {partition} {offset} {epoch} {text(note.encode())}" for (group, topic, partition), (offset, epoch, note) in committed.items()
    )
    for who in ("admin", "consumer"):
        assert sorted(line.removeprefix(who + " ") for line in printed.splitlines() if line.startswith(who)) == wanted


def check_times(broker: Kraft, twin: fl.Broker, rows: dict[tuple[str, int], list[Row]], rng: random.Random) -> int:
    """Lookups by time, over index files that fletchlog wrote, give what fletchlog gives."""
    asked = []
    for (topic, partition), of in rows.items():
        stamps = [row[1] for row in of]
        targets = {0, min(stamps) - 1, max(stamps), max(stamps) + 1, *(rng.choice(stamps) + rng.choice([-1, 0, 1]) for _ in range(4))}
        asked += [(topic, partition, target) for target in sorted(targets) if target >= 0]
    lines = "".join(f"{topic} {partition} {target}\n" for topic, partition, target in asked)
    printed = kafka.run("clients", [("kafka-clients", kafka.NEWEST)], "Times", broker.address, stdin=lines).splitlines()
    with fl.Consumer(twin) as consumer:
        for (topic, partition, target), line in zip(asked, printed, strict=True):
            (found,) = consumer.offsets_for_times({(topic, partition): target}).values()
            assert (f"{found.offset} {found.timestamp}" if found else "none") == line, (topic, partition, target)
    return len(asked)


def last_batches(directory: Path) -> dict[tuple[str, int], dict[int, dict[str, Any]]]:
    """Per partition and producer id: its last batch."""
    last: dict[tuple[str, int], dict[int, dict[str, Any]]] = defaultdict(dict)
    for path in sorted(directory.glob("t*/*.log")):
        topic, partition = path.parent.name.rsplit("-", 1)
        for row in fl.files.inspect_segment(path).batches.to_pyarrow().to_pylist():
            if row["producer_id"] is not None and not row["control"]:
                last[topic, int(partition)][row["producer_id"]] = row
    return last


def check_sequences(broker: Kraft, twin: fl.Broker, directory: Path) -> int:
    """Repeats, next sequences, gaps and epochs get the same answers from the real broker and from fletchlog on a copy."""
    asked = 0
    with Connection(broker.address) as connection:
        for (topic, partition), producers in last_batches(directory).items():
            for producer_id, row in producers.items():
                epoch, base, after = row["producer_epoch"], row["base_sequence"], row["base_sequence"] + row["records"]
                probes = [
                    (producer_id, epoch, base, row["records"]),  # the last batch again: its first offset
                    (producer_id, epoch, after, 2),  # the next one
                    (producer_id, epoch, after, 2),  # and again
                    (producer_id, epoch, base, row["records"]),  # the one before, still in the window
                    (producer_id, epoch, after + 7, 1),  # a gap
                    (producer_id, epoch, max(0, base - 1), 1),
                    (producer_id, epoch + 1, 3, 1),  # a new epoch begins with 0
                    (producer_id, epoch + 1, 0, 1),
                    (producer_id, epoch, after + 2, 1),  # the old epoch is fenced
                    (producer_id + 100_000, 0, 9, 1),  # an unknown producer begins anywhere
                ]
                for number, (pid, probe_epoch, sequence, count) in enumerate(probes):
                    data = batch([record(i, b"v", key=b"k") for i in range(count)], producer=(pid, probe_epoch, sequence))
                    answer = connection.produce(topic, partition, data)
                    try:
                        base_offset, append_time, _ = twin.append_batches(topic, partition, data)
                        own = (0, base_offset, append_time >= 0)
                    except fl.errors.KafkaError as error:
                        own = (error.code or -1, -1, False)
                    assert own == (answer.error, answer.base_offset, answer.log_append_time >= 0), (topic, partition, number, probes[number])
                    asked += 1
    return asked


@pytest.mark.parametrize("release", kafka.SERVERS)
@pytest.mark.parametrize("number", DIRECTORIES)
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_broker_goes_on_with_our_directory(end: str, number: int, release: str, seed: int, scratch: Path, count: Callable[..., None]) -> None:
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    rng = random.Random(f"{seed} {end} {number} {release}")
    directory, copy = scratch / "data", scratch / "twin"
    committed = {}
    if end == "closed":
        acked = [one for some in generate.write(directory, rng.randrange(10**6), TOPICS) for one in some]
        committed = commit_some(directory, rng)
    else:
        acked = write_and_kill(directory, rng.randrange(10**6), TOPICS)
    shutil.copytree(directory, copy)
    with fl.Broker(copy) as twin:
        wanted, wanted_committed = ours(copy), ours(copy, "read_committed")
        assert_acked(acked, wanted)
        with Kraft(release, directory, scratch, cluster_of(copy)) as broker:
            deadline = time.monotonic() + 60
            while theirs(broker.address, kafka.NEWEST, "read_committed") != wanted_committed:
                assert time.monotonic() < deadline, "a killed writer's last decision is carried out in the end"
            for client in ("2.6.3", kafka.NEWEST):
                assert theirs(broker.address, client) == wanted, client
            if committed:
                check_offsets(broker, committed)
            times = check_times(broker, twin, wanted, rng)
            probes = check_sequences(broker, twin, directory)
        assert strays(directory) == []
    # and back again: what the broker wrote after us, it and our twin have alike
    plain = lambda rows: {place: [(row[0], *row[3:]) for row in of] for place, of in rows.items()}  # noqa: E731
    assert plain(ours(directory)) == plain(ours(copy))
    records = {"records": sum(map(len, wanted.values())), "records_read_committed": sum(map(len, wanted_committed.values()))}
    count(PART, broker_starts=1, partitions=len(wanted), **records, committed_offsets=len(committed), time_lookups=times, sequence_probes=probes)


def assert_acked(acked: list[Acked], rows: dict[tuple[str, int], list[Row]]) -> None:
    """Everything acknowledged is there, where its acknowledgement said."""
    at = {(*place, row[0]): row for place, of in rows.items() for row in of}
    for one in acked:
        row = at[one.topic, one.partition, one.offset]
        assert (row[1], row[3], row[4]) == (one.timestamp, text(one.key), text(one.value)), one
