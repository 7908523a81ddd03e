"""A directory that one broker leaves and another one opens: scripts of requests in two halves, and what each request was answered."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fletchlog as fl
from judges.kills.served import Served

from . import kafka
from .kraft import Kraft, cluster_of, format_directory

SCRIPTS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "wire" / "coordinators"
Step = dict[str, Any]
# what each start of a real broker raises
UNLIKE = {"LeaderEpoch": "*", "CoordinatorEpoch": "*"}
# a coordinator that is not there yet, or is busy with the end of a transaction
LATER = [14, 15, 16, 51]
NOT_YET = [3, 5, 6, *LATER]


def once(conn: str, api: str, version: int, **request: Any) -> Step:
    """A request."""
    return {"conn": conn, "send": {"api": api, "version": version, "request": request}, "settle": 20}


def send(conn: str, api: str, version: int, **request: Any) -> Step:
    """A request; it is sent again while a leader or coordinator is not there yet."""
    return {**once(conn, api, version, **request), "retry": NOT_YET}


def topic(name: str, partitions: int, **configs: str) -> list[Step]:
    """Made, with leaders. `configs`: the dots of a name are underscores."""
    listed = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
    made = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": listed}
    return [send("admin", "CreateTopics", 7, Topics=[made], timeoutMs=5000), ends(name, partitions)]


def ends(name: str, partitions: int, isolation: int = 0) -> Step:
    """Where the partitions of a topic end."""
    asked = [{"PartitionIndex": number, "Timestamp": -1} for number in range(partitions)]
    return send("admin", "ListOffsets", 7, ReplicaId=-1, IsolationLevel=isolation, Topics=[{"Name": name, "Partitions": asked}])


@contextlib.contextmanager
def brokers(writer: str, taker: str, how: str, scratch: Path, config: dict[str, str]) -> Iterator[Iterator[tuple[str, Callable[[], None]]]]:
    """The addresses of a broker, and of the one that opens its directory when it has ended; each with what ends it."""
    directory = scratch / "data"
    if writer == "kafka":
        format_directory(directory)
    else:
        fl.Broker(directory, create=True).close()
    with contextlib.ExitStack() as stack:

        def run() -> Iterator[tuple[str, Callable[[], None]]]:
            real = Kraft(kafka.NEWEST, directory, scratch, config=config) if writer == "kafka" else None
            if real is not None:
                stack.callback(real.kill)
                real.launch()
                real.await_start()
                yield real.address, real.kill if how == "killed" else real.stop
            else:
                served = Served(directory, config)
                stack.callback(served.process.kill)
                yield served.bootstrap, served.stay_killed if how == "killed" else served.end
            if taker == "ours":
                if writer == "kafka":
                    fl.Broker(directory, take_over=True).close()
                taking = Served(directory, config)
                stack.callback(taking.process.kill)
                yield taking.bootstrap, taking.end
                return
            if real is None:
                real = Kraft(kafka.NEWEST, directory, scratch, cluster_of(directory, config), config=config)
                stack.callback(real.kill)
            real.launch()
            real.await_start()
            yield real.address, real.kill

        yield run()


def ran(address: str, end: Callable[[], None], steps: list[Step], how: str, names: Any) -> tuple[list[str], Any]:
    """What each request was answered and each step `dump` found, a line each; the names that stand for ids, for what follows. Then the broker
    ends: a killed one while its connections are open."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        with warnings.catch_warnings():
            # it does not close what it reads
            warnings.simplefilter("ignore", ResourceWarning)
            wirelib, tail = (importlib.import_module(name) for name in ("wirelib", "tail"))
    finally:
        sys.path.remove(str(SCRIPTS))
    wirelib.HIDDEN |= UNLIKE
    tail.HIDE |= UNLIKE.keys()
    host, port = address.rsplit(":", 1)
    # which member of a share group gets which partition is up to hashes of random ids
    of_share_groups = any(step.get("send", {}).get("api", "").startswith("Share") for step in steps)
    wirelib.warm_up(host, int(port), share=of_share_groups)
    script = {"steps": [*steps, {"restart": True, "open": how == "killed"}], "counts": of_share_groups}
    engine = wirelib.Engine(host, int(port), script, "x")
    engine.LIMIT = 30

    def hook() -> None:
        if how != "killed":
            # what closed connections had is released first
            time.sleep(2)
        end()

    engine.hook = hook
    names = engine.names = names or engine.names
    found = {row["after"]: row for row in engine.run()[1] if "api" in row or "records" in row}
    return [json.dumps([step.get("send", step), found.get(number)]) for number, step in enumerate(steps) if "send" in step or "dump" in step], names


class Takeover:
    """A script in two halves, and what a real broker answers over its own end.

    Args:
        config: Properties of both brokers.
        before: Steps before the end.
        after: Steps after it.
    """

    def __init__(self, config: dict[str, str], before: list[Step], after: list[Step]) -> None:
        self.config, self.before, self.after = config, before, after
        self._wanted: dict[str, list[str]] = {}

    def answers(self, writer: str, taker: str, how: str, scratch: Path) -> list[str]:
        """What each request of both halves was answered, a line each."""
        scratch = scratch / f"{writer}-{taker}"
        scratch.mkdir()
        lines: list[str] = []
        names = None
        with brokers(writer, taker, how, scratch, self.config) as running:
            for (address, end), steps in zip(running, (self.before, self.after), strict=True):
                answered, names = ran(address, end, steps, how, names)
                lines += answered
        return lines

    def check(self, writer: str, taker: str, how: str, scratch: Path) -> int:
        """Every answer is that of a real broker over its own end; how many there are."""
        if how not in self._wanted:
            self._wanted[how] = self.answers("kafka", "kafka", how, scratch)
        wanted, found = self._wanted[how], self.answers(writer, taker, how, scratch)
        differ = [
            f"request {number} of {len(self.before)} + {len(self.after)}\n  kafka {one}\n  here  {other}"
            for number, (one, other) in enumerate(itertools.zip_longest(wanted, found))
            if one != other
        ]
        assert not differ, f"{len(differ)} of {len(wanted)} answers differ\n" + "\n".join(differ[:10])
        return len(found)
