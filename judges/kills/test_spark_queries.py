"""The judge of the kills of Spark queries finds what it is there to find."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from judges.kills.spark_driver import PARTITIONS, WRITE_ROWS, Plan, lines
from judges.kills.spark_queries import CLUSTER, LOCAL, ROWS, Judge, Running, Standalone, fill, rows_a, rows_b, rows_c, spark_home
from judges.kills.spark_watched import note, tasks

pytestmark = pytest.mark.spark  # the suite imports PySpark

# Two batches that Spark noted as done, and one that it did not.
ENDS = [[2, 1, 1], [3, 3, 2], [4, 3, 3]]
VERSIONS = 2
Rows = dict[str, list[list[str]]]


def sound() -> Rows:
    """What must be in the directory, by topic and partition."""
    return {"a": rows_a(ENDS[:2]), "b": rows_b(ENDS), "c": rows_c(VERSIONS), "d": [[f"{name} {n}" for name in ("1f", "2f") for n in range(WRITE_ROWS)]]}


def wrong(root: Path, rows: Rows, *, topics: str = "abcd") -> list[str]:
    """The judge's complaints about a directory with these rows."""
    for query in "ab":
        for folder, number in (("offsets", 3), ("commits", 2)):
            (root / f"checkpoint-{query}" / folder).mkdir(parents=True)
            for batch in range(number):
                offsets = json.dumps({"in": {str(partition): end for partition, end in enumerate(ENDS[batch])}})
                (root / f"checkpoint-{query}" / folder / str(batch)).write_text(f"v1\n{{}}\n{offsets}\n")
    note(root / "c.done", str(VERSIONS - 1))
    for name in ("1f", "2f", "3f"):
        note(root / "d.begun", name)
    note(root / "d.done", "1f")
    with fl.Broker(root / "log", create=True) as broker, fl.Producer(broker) as producer:
        for topic, partitions in rows.items():
            broker.create_topic(topic, partitions=len(partitions))
            for partition, values in enumerate(partitions):
                for value in values:
                    producer.send(topic, value=value.encode(), partition=partition)
    return Judge(root, topics, last=False).wrong


def test_what_was_done_and_what_may_have_been_is_sound(tmp_path: Path) -> None:
    assert wrong(tmp_path, sound()) == []
    assert [len(partition) for partition in rows_a(ENDS)] == [4, 3, 3]
    assert rows_b(ENDS)[0] == ["0", "1", "2", "3", *("4", "5", "6", "7"), "8", "9"]
    assert len(rows_c(VERSIONS)) == PARTITIONS


@pytest.mark.parametrize(
    ("topic", "change", "complaint"),
    [
        ("a", lambda rows: rows[1].pop(), "a-1: 0 repeated, 2 of 3 records, from place 2 on"),
        ("a", lambda rows: rows[0].append(rows[0][-1]), "a-0: 1 repeated, 4 of 4 records, from place 3 on"),
        ("a", lambda rows: rows[0].append("9"), "a-2: 0 repeated, 2 of 3 records"),
        ("b", lambda rows: rows[0].insert(4, rows[0].pop(0)), "b-0: 0 repeated, 10 of 10 records, from place 0 on"),
        ("b", lambda rows: rows[0].pop(), "b-0: 0 repeated, 9 of 10 records, from place 9 on"),
        ("c", lambda rows: rows[2].extend(rows[2][-3:]), "c-2: 3 repeated"),
        ("d", lambda rows: rows[0].pop(5), "d: the write 1f at 0 of 299 rows is torn or out of order"),
        ("d", lambda rows: rows[0].reverse(), "d: the write 2f at 0 of 300 rows is torn or out of order"),
        ("d", lambda rows: rows[0].__delitem__(slice(WRITE_ROWS)), "d: the write 1f is lost"),
        ("d", lambda rows: rows[0].extend(rows[0][:WRITE_ROWS]), "d: the write 1f is there 2 times"),
    ],
)
def test_what_is_lost_repeated_moved_or_torn_is_named(tmp_path: Path, topic: str, change: Callable[[Any], Any], complaint: str) -> None:
    rows = sound()
    change(rows[topic])
    found = wrong(tmp_path, rows)
    assert any(complaint in line for line in found), found
    assert {line[0] for line in found} == {topic}


def test_a_batch_that_is_done_and_left_its_files_is_named(tmp_path: Path) -> None:
    old = tmp_path / "log.staging" / f"fletchlog-{'0' * 32}-{'1' * 32}"
    old.mkdir(parents=True)
    (tmp_path / "log.staging" / f"fletchlog-write-{'1' * 32}").mkdir()
    assert wrong(tmp_path, sound()) == [f"staging: ['{old.name}'] were left behind"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_executor_processes_read_and_write_directories_that_both_see(tmp_path: Path) -> None:
    fill(tmp_path)
    home = spark_home(tmp_path)
    standalone = Standalone(home, tmp_path)
    drawn = {"seed": 0, "min_partitions": 6, "max_offsets": ROWS // 10, "inline": 0, "planted": False}
    running = Running(Plan(str(tmp_path), standalone.url, {**LOCAL, **CLUSTER}, last=True, topics="a", **drawn), home, standalone)
    try:
        running.process.wait(400)
    finally:
        running.end()
        standalone.end()
    assert running.process.returncode == 0, running.said()
    assert Judge(tmp_path, "a", last=True).wrong == []
    attempts = [line.split() for line in lines(tasks(tmp_path / "log"))]
    assert len({executor for executor, _ in attempts}) == 2
    assert any(attempt != "0" for _, attempt in attempts), "no task was run a second time by speculation"
