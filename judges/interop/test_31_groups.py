"""Part 31: `fletchlog groups` beside groups of the new protocol (KIP-848), which DescribeGroups does not show, on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import fletchlog as fl

from . import kafka
from .kraft import Kraft, format_directory

PART = "31 groups"
RELEASE = kafka.NEWEST


def groups(*words: str) -> Any:
    """The JSON that `fletchlog groups` prints."""
    done = subprocess.run([sys.executable, "-m", "fletchlog", "groups", *words, "--json"], capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_group_of_the_new_protocol_is_shown_with_its_offsets(scratch: Path, count: Callable[..., None]) -> None:
    with Kraft(RELEASE, format_directory(scratch / "data"), scratch) as broker:
        place = f"kafka://{broker.address}"
        with fl.Cluster(place) as cluster, fl.Producer(place) as producer:
            cluster.create_topic("t", partitions=2)
            for number in range(10):
                producer.send("t", value=b"v", partition=number % 2)
            producer.flush()
            cluster.alter_offsets("classic", {("t", 0): 2})
        member = Consumer({"bootstrap.servers": broker.address, "group.id": "kip848", "group.protocol": "consumer", "enable.auto.commit": False})
        member.subscribe(["t"])
        end = time.monotonic() + 60
        while len(member.assignment()) < 2:
            assert time.monotonic() < end, "the member was assigned nothing"
            member.poll(0.1)
        member.commit(offsets=[TopicPartition("t", 0, 1), TopicPartition("t", 1, 5)], asynchronous=False)
        listed = {row["group"]: row for row in groups("list", place)}
        assert (listed["classic"]["type"], listed["classic"]["members"], listed["classic"]["lag"]) == ("classic", 0, 3)
        assert (listed["kip848"]["type"], listed["kip848"]["state"], listed["kip848"]["members"], listed["kip848"]["lag"]) == ("consumer", "Stable", None, 4)
        described = groups("describe", place, "kip848")
        assert [(row["partition"], row["committed"], row["lag"]) for row in described["partitions"]] == [(0, 1, 4), (1, 5, 0)]
        assert groups("lag", place, "kip848") == [{"topic": "t", "lag": 4}]
        member.close()
        assert groups("reset", place, "kip848", "-t", "t", "-p", "0", "--to-earliest")[0]["before"] == 1
        assert groups("delete", place, "kip848", "--yes")["group"] == "kip848"
        assert [row["group"] for row in groups("list", place)] == ["classic"]
        count(PART, groups=2)
