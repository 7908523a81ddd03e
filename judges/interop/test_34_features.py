"""Part 34: `kafka-features.sh` of 4.4 moves transaction.version on a real broker and on our listener: both print and then answer the same."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fletchlog as fl

from . import kafka
from .kraft import Kraft, format_directory
from .takeovers import Step, ends, ran, send, topic
from .test_12_wire_tools import BROKER, TOOLS, jvm
from .test_32_taken_over import CONFIG, begin, commit_in, end, produce

PART = "34 levels of features"
TOOL = f"{TOOLS}FeatureCommand"
# each followed by what clients do at that level. At level 0 the requests of 4.x that add partitions themselves are no part of it: a real coordinator
# cannot write what they begin, and answers 35, then 51 for ever
CHANGES = [
    ("downgrade --feature transaction.version=1", 1),
    ("upgrade --feature transaction.version=2", 2),
    ("downgrade --feature transaction.version=0", 0),
    ("upgrade --feature transaction.version=1", 1),
]
# these change nothing
REFUSED = [
    "upgrade --feature transaction.version=3",
    "downgrade --feature transaction.version=2",
    "upgrade --feature transaction.version=2 --dry-run",
    "downgrade --feature transaction.version=1 --dry-run",
    "upgrade --feature transaction.version=2 --feature group.version=1",
    "upgrade --feature nosuch.version=1",
    "disable --feature nosuch.version",
]


def tool(address: str, words: str) -> list[str]:
    """What it prints; of a description, the line of the feature without the epoch of all changes."""
    done = subprocess.run([*jvm(kafka.NEWEST), TOOL, BROKER, address, *words.split()], capture_output=True, text=True, timeout=90, check=False)
    lines = [f"{words}: {done.returncode}", *done.stdout.splitlines(), *done.stderr.splitlines()]
    lines = [line for line in lines if not line.startswith(("SLF4J", "\tat "))]
    if words == "describe":
        lines = [re.sub(r"\s+Epoch: \d+", "", line) for line in lines if line.startswith(("Feature: transaction.version", words))]
    return lines


def clients(names: list[str], producers: list[str], level: int) -> list[Step]:
    """Transactions of requests of new and of old versions, ends again, and nothing to end."""
    (first, old, new, empty), (p1, p2, p3, p4) = names, producers
    whole = {"V3AndBelowTopics": [{"Name": "$x1", "Partitions": [0]}]}
    added = send("p", "AddPartitionsToTxn", 3, V3AndBelowTransactionalId=old, V3AndBelowProducerId=p2, V3AndBelowProducerEpoch=0, **whole)
    described = send("z", "DescribeTransactions", 0, TransactionalIds=names)
    end4 = send("p", "EndTxn", 4, TransactionalId=old, ProducerId=p2, ProducerEpoch=0, Committed=True)
    seen = [send("z", "DescribeProducers", 0, Topics=[{"Name": "$x1", "PartitionIndexes": [0, 1]}]), ends("$x1", 2, isolation=1)]
    by_old = [begin(old), produce(old, p2, 0, 0, version=11), added, produce(old, p2, 0, 0, version=11), end4, {"sleep": 300}, described]
    if level == 0:
        return [*by_old, *seen]
    return [
        *[begin(first), produce(first, p1, 0, 0), produce(first, p1, 0, 1), described, *end(first, p1, 0, True), *end(first, p1, 0, True), described],
        *by_old,
        *[begin(new), produce(new, p3, 0, 1), commit_in(new, p3, "$g9", "", -1, 7, 0), described, *end(new, p3, 0, False), *end(new, p3, 0, False)],
        *[begin(empty), *end(empty, p4, 0, False), *end(empty, p4, 0, True), begin(new), described],
        *seen,
    ]


def course(address: str) -> list[str]:
    """Everything that was printed and answered, a line each."""
    lines: list[str] = []
    names: Any = None
    # the number of the next producer id, as `P1` is the first that was seen
    first = 1
    steps: list[Step] = [*topic("$x1", 2), *topic("$t1", 4), {"sleep": 500}]
    for number, (change, level) in enumerate([("", 2), *CHANGES]):
        for words in [*(REFUSED if number == 1 else []), change, "describe"] if change else []:
            lines += tool(address, words)
        ids = [f"$w{number}{name}" for name in range(4)]
        begun = 1 if level == 0 else 4
        masks = [f"P{first + one}" for one in range(4)] if level else [f"P{first}"] * 4
        first += begun
        steps += clients(ids, masks, level)
        following = []
        if CHANGES[number : number + 1] and level and CHANGES[number][1]:
            # it is open over the next change
            name, producer = f"$w{number}9", f"P{first}"
            first += 1
            steps += [begin(name), produce(name, producer, 0, 0)]
            following = [produce(name, producer, 0, 1), *end(name, producer, 0, True), send("z", "DescribeTransactions", 0, TransactionalIds=[name])]
        # nothing ends
        answered, names = ran(address, lambda: None, steps, "killed", names)
        lines += answered
        steps = following
    return lines


def test_levels_are_moved_as_on_a_real_broker(scratch: Path, count: Callable[..., None]) -> None:
    with (
        Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch, config=CONFIG) as real,
        fl.Broker.in_memory(config=CONFIG) as broker,
        broker.listen() as ours,
    ):
        wanted, found = course(real.address), course(ours.bootstrap)
    differ = [f"{number}\n  kafka {one}\n  here  {other}" for number, (one, other) in enumerate(itertools.zip_longest(wanted, found)) if one != other]
    assert not differ, f"{len(differ)} of {len(wanted)} lines differ\n" + "\n".join(differ[:10])
    count(PART, lines=len(found), changes=len(CHANGES))
