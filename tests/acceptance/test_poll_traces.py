"""The recorded polls of four Java clients and of KIP-387, replayed through the public API, one poll right after the other: the
order depends on the log, the configuration and the calls, never on the time between two calls.

rust/sim/tests/poll_traces replays all of them on the engine; here each scenario with one client shows that the binding does the same, all but every 6th
of them as slow tests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from tests.support.batches import batch_of

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "poll-traces"
# No multiple of the number of clients, so that each has its turn.
EVERY = 6
CLIENTS = ["2.6.3", "3.7.2", "3.9.1", "4.3.1", "kip-387"]


def recorded() -> dict[str, list[str]]:
    """The clients of every recording whose log needs only plain batches, by scenario."""
    found = {}
    for path in sorted((GOLDEN / "scenarios").glob("*.json")):
        scenario = json.loads(path.read_text())
        batches = [b for t in scenario["topics"].values() for p in t["partitions"] for b in p["batches"]]
        plain = all(len(b) == 4 and b[3] == "none" for b in batches) and "kh" not in scenario["topics"]
        starts = [p.get("logStart", 0) for t in scenario["topics"].values() for p in t["partitions"]]
        huge = sum(b[0] * b[1] for b in batches) > 500_000
        if not plain or any(starts) or huge:
            continue
        found[path.stem] = [client for client in CLIENTS if (GOLDEN / "expected" / client / f"{path.stem}.jsonl").exists()]
    return found


def in_turn() -> list[Any]:
    """Every scenario with one of its clients: each has its turn."""
    cases = [(clients[i % len(clients)], number) for i, (number, clients) in enumerate(recorded().items())]
    return [pytest.param(client, number, marks=[pytest.mark.slow] if i % EVERY else [], id=f"{client}-{number}") for i, (client, number) in enumerate(cases)]


def recording(client: str, number: str) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """A scenario, what each poll returned, and the final positions."""
    scenario = json.loads((GOLDEN / "scenarios" / f"{number}.json").read_text())
    lines = [json.loads(line) for line in (GOLDEN / "expected" / client / f"{number}.jsonl").read_text().splitlines()]
    polls = [(line.get("got", []), bool(line.get("err"))) for line in lines if "poll" in line]
    return scenario, polls, sorted(lines[-1]["end"]["positions"])


def fill(broker: fl.Broker, topics: dict[str, Any]) -> None:
    """Rebuilds the log of a scenario."""
    for name, topic in topics.items():
        config = dict(item.split("=", 1) for item in topic["config"].split(",") if item)
        broker.create_topic(name, partitions=len(topic["partitions"]), config=config)
        for number, partition in enumerate(topic["partitions"]):
            for repeat, count, size, *_ in partition["batches"]:
                data = batch_of(count, size)
                for _ in range(repeat):
                    broker.append_batches(name, number, data)


def config_of(scenario: dict[str, Any], client: str) -> dict[str, Any]:
    """The client's configuration."""
    config = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.max.wait.ms": 20, **scenario["client"]}
    if client == "kip-387":
        config["fletchlog.fetch.order"] = "kip-387"
    else:
        config["fletchlog.consumer.version"] = client
    if scenario["group"]:
        config.setdefault("group.id", "g")
    return config


def position_of(consumer: fl.Consumer, tp: fl.TopicPartition) -> int:
    """The position, or -1 where there is none and no policy to find one."""
    try:
        return consumer.position(tp)
    except fl.errors.NoOffsetForPartitionError:
        return -1


def run(scenario: dict[str, Any], client: str) -> tuple[list[Any], list[Any]]:
    """What each poll returned, and the final positions."""
    with fl.Broker.in_memory() as broker:
        fill(broker, scenario["topics"])
        return replay(broker, scenario, client)


def replay(peer: fl.Broker | str, scenario: dict[str, Any], client: str, settle: float = 0, begins: Callable[[], object] = bool) -> tuple[list[Any], list[Any]]:
    """The calls of a scenario on a broker that has its topics.

    `settle`: seconds after each poll in which a remote one answers. `begins` is called when a poll begins and when the last one is over.
    """
    polls: list[Any] = []
    total = 0
    consumer = fl.Consumer(peer, config_of(scenario, client))
    partitions = lambda pairs: [fl.TopicPartition(t, p) for t, p, *_ in pairs]  # noqa: E731
    for step in scenario["steps"]:
        match step:
            case {"assign": pairs}:
                consumer.assign(partitions(pairs))
            case {"subscribe": names}:
                consumer.subscribe(names)
            case {"unsubscribe": _}:
                consumer.unsubscribe()
            case {"seek": triples}:
                for t, p, offset in triples:
                    consumer.seek(fl.TopicPartition(t, p), offset)
            case {"seekToBeginning": pairs}:
                consumer.seek_to_beginning(partitions(pairs))
            case {"seekToEnd": pairs}:
                consumer.seek_to_end(partitions(pairs))
            case {"pause": pairs}:
                consumer.pause(partitions(pairs))
            case {"resume": pairs}:
                consumer.resume(partitions(pairs))
            case {"poll": times, **rest}:
                for _ in range(times):
                    got, error = [], None
                    begins()
                    try:
                        # the first poll of a Java client has to connect: it gets time, whatever the others have
                        timeout = scenario.get("pollTimeout", 1000)
                        records = consumer.poll(timeout_ms=timeout if polls else max(timeout, 1000))
                    except fl.errors.KafkaError as caught:
                        error = type(caught).__name__
                    else:
                        got = java_runs(records)
                    total += sum(run[4] for run in got)
                    polls.append((got, error is not None))
                    time.sleep(settle)
                    if "total" in rest and total >= rest["total"]:
                        break
    begins()
    positions = sorted([tp.topic, tp.partition, position_of(consumer, tp)] for tp in consumer.assignment())
    consumer.close()
    return polls, positions


def java_runs(records: fl.Records) -> list[list[Any]]:
    """Runs in the order of the rows (a Java for-each)."""
    table = records.to_pyarrow().select(["topic", "partition", "offset"]).to_pydict()
    runs: list[list[Any]] = []
    for topic, partition, offset in zip(table["topic"], table["partition"], table["offset"], strict=True):
        if runs and runs[-1][:2] == [topic, partition]:
            runs[-1][3] = offset
            runs[-1][4] += 1
        else:
            runs.append([topic, partition, offset, offset, 1])
    return runs


@pytest.mark.parametrize(("client", "number"), in_turn())
def test_every_poll_returns_what_the_java_client_returned(client: str, number: str) -> None:
    scenario, polls, positions = recording(client, number)
    shown = run(scenario, client)
    assert shown[0][: len(polls)] == polls
    assert shown == (polls, positions)
